// What this server has and how it was set: its tools, its settings, and what failures taught it.
import { type ReactNode, useEffect, useState } from "react";
import { get, remove } from "../lib/api";
import { duration } from "../lib/format";
import { t, word } from "../lib/i18n";
import { bad, good } from "../lib/toasts";
import type { Lesson, SettingRow, ToolRow } from "../lib/types";
import { Button, Dialog, Empty, Tag } from "../parts/basics";
import { Icon } from "../parts/icons";

function useAsked<T>(path: string, turn = 0): T | null {
  const [found, setFound] = useState<T | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    get<T>(path, {}, abort.signal).then(setFound, (error: unknown) => { if (!abort.signal.aborted) bad(error); });
    return () => abort.abort();
  }, [path, turn]);
  return found;
}

export function SetupPage({ readOnly }: { readOnly: boolean }): ReactNode {
  const [typed, setTyped] = useState("");
  const words = typed.trim().toLowerCase();
  useEffect(() => { document.title = t("title.setup"); }, []);
  return (
    <main id="content" tabIndex={-1} className="list-page setup">
      <div className="list-head">
        <h1>{t("setup.title")}</h1>
        <label className="search">
          <Icon name="search" />
          <input data-search type="search" value={typed} placeholder={t("setup.search")} aria-label={t("setup.search")} onChange={(event) => setTyped(event.target.value)} />
          <kbd aria-hidden="true">/</kbd>
        </label>
      </div>
      <Tools words={words} />
      <Settings words={words} />
      <Memory words={words} readOnly={readOnly} />
    </main>
  );
}

function Part({ name, title, text, tools, children }: {
  name: string; title: string; text: string; tools?: ReactNode; children: ReactNode;
}): ReactNode {
  return (
    <section className="setup-part" aria-labelledby={`setup-${name}`} data-part={name}>
      <header><h2 id={`setup-${name}`}>{title}</h2><p className="muted">{text}</p>{tools}</header>
      {children}
    </section>
  );
}

const fits = (words: string, ...texts: (string | undefined)[]): boolean => !words || texts.some((text) => text?.toLowerCase().includes(words));
const Loading = (): ReactNode => <p className="muted" role="status">{t("common.loading")}</p>;

function Tools({ words }: { words: string }): ReactNode {
  const found = useAsked<{ tools: ToolRow[]; withheld: { name: string; kind: string }[] }>("/tools");
  const rows = (found?.tools ?? []).filter((tool) => fits(words, tool.name, tool.description));
  return (
    <Part name="tools" title={t("setup.tools")} text={t("setup.tools_text")}>
      {!found ? <Loading /> : rows.length === 0 ? <Empty title={found.tools.length === 0 ? t("setup.no_tools") : t("setup.nothing")} /> : (
        <ul className="setup-list">
          {rows.map((tool) => (
            <li key={tool.name} data-tool={tool.name}>
              <div className="setup-line">
                <code className="setup-name">{tool.name}</code>
                {tool.effect && <Tag>{word("effect.name", tool.effect)}</Tag>}
                {tool.timeout ? <Tag>{t("setup.timeout", { span: duration(tool.timeout) })}</Tag> : null}
                {tool.source && <code className="muted setup-source">{tool.source}</code>}
              </div>
              {tool.description && <p>{tool.description}</p>}
              <p className="setup-args"><span className="muted">{t("setup.arguments")}</span> <Arguments schema={tool.schema} /></p>
            </li>
          ))}
        </ul>
      )}
      {found && found.withheld.length > 0 && <p className="notice">{t("setup.withheld", { names: found.withheld.map((one) => one.name).join(", ") })}</p>}
    </Part>
  );
}

function Arguments({ schema }: { schema: ToolRow["schema"] }): ReactNode {
  const names = Object.keys(schema?.properties ?? {});
  if (names.length === 0) return <span>{schema?.additionalProperties === false ? t("setup.no_arguments") : t("setup.any_arguments")}</span>;
  const needed = new Set(schema?.required ?? []);
  return (
    <>{names.map((name) => (
      <span key={name} className="setup-arg"><code>{name}</code>{needed.has(name) && <span className="muted small"> {t("setup.needed")}</span>}</span>
    ))}</>
  );
}

function Settings({ words }: { words: string }): ReactNode {
  const found = useAsked<{ settings: SettingRow[] }>("/settings");
  const [changed, setChanged] = useState(false);
  const rows = (found?.settings ?? []).filter((row) => (!changed || row.source !== "default") && fits(words, row.key, row.source, shown(row.value)));
  return (
    <Part name="settings" title={t("setup.settings")} text={t("setup.settings_text")}
      tools={<Button small pressed={changed} onClick={() => setChanged(!changed)} name="changed">{t("setup.changed")}</Button>}>
      {!found ? <Loading /> : rows.length === 0 ? <Empty title={t("setup.nothing")} /> : (
        <table className="setup-table">
          <thead><tr><th scope="col">{t("setup.setting")}</th><th scope="col">{t("setup.value")}</th><th scope="col" className="wide-only">{t("setup.source")}</th></tr></thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.key} data-setting={row.key}>
                <th scope="row"><code>{row.key}</code></th>
                <td className="mono">{shown(row.value)}</td>
                <td className={row.source === "default" ? "muted wide-only" : "wide-only"}>{row.source}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Part>
  );
}

const shown = (value: unknown): string => (value === null ? "–" : typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

function Memory({ words, readOnly }: { words: string; readOnly: boolean }): ReactNode {
  const [turn, setTurn] = useState(0);
  const [asking, setAsking] = useState(false);
  const found = useAsked<{ memory: Lesson[] }>("/memory", turn);
  const rows = (found?.memory ?? []).filter((row) => fits(words, row.failure, row.rung));
  const forget = (): void => {
    setAsking(false);
    remove("/memory").then(() => {
      good(t("setup.forgotten"));
      setTurn(turn + 1);
    }, bad);
  };
  return (
    <Part name="memory" title={t("setup.memory")} text={t("setup.memory_text")}
      tools={!readOnly && found && found.memory.length > 0 && <Button small onClick={() => setAsking(true)} name="forget">{t("setup.forget")}</Button>}>
      {!found ? <Loading /> : rows.length === 0 ? <Empty title={found.memory.length === 0 ? t("setup.no_memory") : t("setup.nothing")} /> : (
        <table className="setup-table">
          <thead><tr><th scope="col">{t("setup.failure")}</th><th scope="col">{t("step.rung")}</th><th scope="col" className="num">{t("setup.worked")}</th></tr></thead>
          <tbody>
            {rows.map((row) => (
              <tr key={`${row.failure} ${row.rung}`}>
                <th scope="row"><code>{row.failure}</code></th>
                <td>{word("rung", row.rung)}</td>
                <td className="num">{row.worked}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {asking && (
        <Dialog title={t("setup.forget")} onClose={() => setAsking(false)}>
          <p>{t("setup.forget_text")}</p>
          <footer className="dialog-feet">
            <Button onClick={() => setAsking(false)}>{t("common.cancel")}</Button>
            <Button kind="danger" name="send" onClick={forget}>{t("setup.forget")}</Button>
          </footer>
        </Dialog>
      )}
    </Part>
  );
}
