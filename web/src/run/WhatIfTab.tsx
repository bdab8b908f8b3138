// What would have been different under other settings. Nothing is called: the recorded run is decided again.
import { type ReactNode, useEffect, useState } from "react";
import { at, get, Problem } from "../lib/api";
import { useScope } from "../lib/context";
import { duration } from "../lib/format";
import { t, word } from "../lib/i18n";
import { type RunStore, usePart } from "../lib/store";
import { bad } from "../lib/toasts";
import type { Replay, ReplaySpent, SettingRow } from "../lib/types";
import { Button, Empty, Tag } from "../parts/basics";

const LIVE = new Set(["pending", "running", "waiting"]);
const TABLES = ["run.", "retry.", "reflection.", "evaluation."];
const statusOf = (store: RunStore): string => store.run?.status ?? "";

const statusWord = (spent: ReplaySpent): string => (spent.status === "unknown" ? t("whatif.not_known") : word("status", spent.status));

interface Wish { key: string; value: string }

export function WhatIfTab(): ReactNode {
  const { store, select } = useScope();
  const status = usePart(store, statusOf);
  const [known, setKnown] = useState<SettingRow[]>([]);
  const [wishes, setWishes] = useState<Wish[]>([{ key: "reflection.max_step_retries", value: "1" }]);
  const [busy, setBusy] = useState(false);
  const [found, setFound] = useState<Replay | null>(null);
  const [refused, setRefused] = useState<Problem | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    get<{ settings: SettingRow[] }>("/settings", {}, abort.signal).then(
      (answer) => setKnown(answer.settings.filter((row) => TABLES.some((table) => row.key.startsWith(table)))),
      (error: unknown) => { if (!abort.signal.aborted) bad(error); },
    );
    return () => abort.abort();
  }, []);
  if (LIVE.has(status)) return <Empty title={t("whatif.live")} text={t("whatif.live_text")} />;

  const change = (index: number, part: Partial<Wish>): void => setWishes(wishes.map((wish, place) => (place === index ? { ...wish, ...part } : wish)));
  const given = wishes.filter((wish) => wish.key.trim() && wish.value.trim());
  const ask = async (): Promise<void> => {
    setBusy(true);
    setRefused(null);
    try {
      const query = new URLSearchParams(given.map((wish) => ["set", `${wish.key.trim()}=${wish.value.trim()}`]));
      setFound(await get<Replay>(`${at("runs", store.id, "replay")}?${query.toString()}`));
    } catch (error) {
      setFound(null);
      if (error instanceof Problem) setRefused(error);
      else bad(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <div className="whatif">
      <form onSubmit={(event) => { event.preventDefault(); void ask(); }}>
        <p className="muted">{t("whatif.text")}</p>
        <datalist id="whatif-keys">{known.map((row) => <option key={row.key} value={row.key} />)}</datalist>
        {wishes.map((wish, index) => (
          <div className="whatif-wish" key={index}>
            <input className="mono" list="whatif-keys" name="key" aria-label={t("whatif.key")} placeholder={t("whatif.key")} value={wish.key}
              autoCapitalize="off" autoComplete="off" spellCheck={false} onChange={(event) => change(index, { key: event.target.value })} />
            <input className="mono" name="value" aria-label={t("whatif.value")} placeholder={t("whatif.value")} value={wish.value}
              autoComplete="off" spellCheck={false} onChange={(event) => change(index, { value: event.target.value })} />
            <Button small kind="quiet" icon="close" label={t("whatif.drop")} disabled={wishes.length === 1} onClick={() => setWishes(wishes.filter((_, place) => place !== index))} />
          </div>
        ))}
        <div className="whatif-feet">
          <Button kind="quiet" icon="plus" onClick={() => setWishes([...wishes, { key: "", value: "" }])}>{t("whatif.more")}</Button>
          <Button submit kind="primary" name="send" disabled={busy || given.length === 0}>{t("whatif.do")}</Button>
        </div>
      </form>
      {refused && <p className="notice bad" role="alert">{refused.message} {refused.hint}</p>}
      {found && <Found found={found} select={select} />}
    </div>
  );
}

function Found({ found, select }: { found: Replay; select: (step: string) => void }): ReactNode {
  const changed = found.steps.filter((step) => step.changed);
  return (
    <section className="whatif-found" aria-label={t("whatif.found")} role="status">
      <p className={found.same ? "notice" : "notice warn"}>
        {found.same ? t("whatif.same") : t("whatif.branch", { seq: found.branch ?? "?" })} {!found.known && t("whatif.unknown_end")}
      </p>
      <table>
        <thead><tr><th scope="col" /><th scope="col">{t("whatif.recorded")}</th><th scope="col">{t("whatif.replayed")}</th></tr></thead>
        <tbody>
          {Object.entries(found.settings).map(([key, one]) => (
            <tr key={key}><th scope="row" className="mono">{key}</th><td className="mono">{JSON.stringify(one.recorded)}</td><td className="mono">{JSON.stringify(one.replayed)}</td></tr>
          ))}
          <Line name={t("whatif.outcome")} found={found} show={statusWord} />
          <Line name={t("whatif.calls")} found={found} show={(spent) => String(spent.calls)} />
          <Line name={t("whatif.waited")} found={found} show={(spent) => duration(spent.waited)} />
          <Line name={t("whatif.seconds")} found={found} show={(spent) => duration(spent.seconds ?? 0)} />
          {(found.recorded.tokens || found.replayed.tokens) ? <Line name={t("whatif.tokens")} found={found} show={(spent) => String(spent.tokens ?? 0)} /> : null}
          {(found.recorded.cost || found.replayed.cost) ? <Line name={t("whatif.cost")} found={found} show={(spent) => String(spent.cost ?? 0)} /> : null}
        </tbody>
      </table>
      {changed.length > 0 && (
        <>
          <h2>{t("whatif.steps", { n: changed.length })}</h2>
          <table>
            <thead><tr><th scope="col">{t("whatif.step")}</th><th scope="col">{t("whatif.recorded")}</th><th scope="col">{t("whatif.replayed")}</th></tr></thead>
            <tbody>
              {changed.map((row) => (
                <tr key={row.step}>
                  <th scope="row"><button type="button" className="link mono" onClick={() => select(row.step)}>{row.step}</button>{" "}{row.other_output && <Tag tone="warn">{t("whatif.other_output")}</Tag>}</th>
                  <td>{statusWord(row.recorded)} · {t("whatif.n_calls", { n: row.recorded.calls })}</td>
                  <td>{statusWord(row.replayed)} · {t("whatif.n_calls", { n: row.replayed.calls })}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      )}
      {found.unknown.length > 0 && (
        <>
          <h2>{t("whatif.unknown", { n: found.unknown.length })}</h2>
          <ul>{found.unknown.map((one, index) => <li key={index}><span className="mono">{one.step ?? ""}</span> {word("unknown", one.what)} {one.tool ?? ""}</li>)}</ul>
        </>
      )}
    </section>
  );
}

function Line({ name, found, show }: { name: string; found: Replay; show: (spent: ReplaySpent) => string }): ReactNode {
  const [here, there] = [show(found.recorded), show(found.replayed)];
  return <tr className={here === there ? "" : "other"}><th scope="row">{name}</th><td>{here}</td><td>{there}</td></tr>;
}
