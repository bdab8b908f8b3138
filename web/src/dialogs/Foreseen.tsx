// What an action would lead to, asked of the server before it is done: the same for a retry and for every other action.
import { type ReactNode, useEffect, useRef, useState } from "react";
import { at, post, type Problem } from "../lib/api";
import { useScope } from "../lib/context";
import { amount, duration } from "../lib/format";
import { t, word } from "../lib/i18n";
import type { Json, Preview, StepStatus } from "../lib/types";
import { StatusChip, Tag } from "../parts/basics";
import { StatusIcon } from "../parts/icons";

const MOST = 200;
const TYPING = 300; // milliseconds without another letter, before the server is asked again

export type Body = { [key: string]: Json | undefined };
export interface Foresight { preview: Preview | null; problem: Problem | null; loading: boolean }

/** What an action would lead to; with nothing to ask about, nothing. What was found last stays until there is more. */
export function useForeseen(action: string, body: Body | null): Foresight {
  const { store } = useScope();
  const [found, setFound] = useState<{ wanted: string; preview: Preview | null; problem: Problem | null } | null>(null);
  const asked = useRef(false);
  const wanted = body === null ? null : JSON.stringify(body);
  useEffect(() => {
    if (wanted === null) return;
    const abort = new AbortController();
    const ask = (): void => {
      asked.current = true;
      post<Preview>(at("runs", store.id, action), { ...(JSON.parse(wanted) as Body), dry_run: true }, abort.signal).then(
        (preview) => setFound({ wanted, preview, problem: null }),
        (problem: Problem) => { if (!abort.signal.aborted) setFound({ wanted, preview: null, problem }); },
      );
    };
    const timer = setTimeout(ask, asked.current ? TYPING : 0);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [store.id, action, wanted]);
  if (wanted === null) return { preview: null, problem: null, loading: false };
  return { preview: found?.preview ?? null, problem: found?.problem ?? null, loading: found?.wanted !== wanted };
}

/** Whether an action may be sent: what it would lead to is known, and it would not be refused. */
export function isKnown({ preview, loading }: Foresight): boolean {
  return preview !== null && !loading;
}

export function Foreseen({ found, title, children }: { found: Foresight; title?: string; children?: ReactNode }): ReactNode {
  const { preview, problem, loading } = found;
  return (
    <section aria-live="polite" aria-busy={loading} aria-label={title ?? t("outlook.title")} className={loading ? "retry-preview stale" : "retry-preview"} data-preview={loading ? "loading" : preview ? "ready" : problem ? "refused" : "none"}>
      {loading && !preview && !problem && <p className="muted">{t("common.loading")}</p>}
      {problem && (
        <div className="card bad">
          <p className="card-head"><code>{problem.code}</code></p>
          <p className="message">{problem.message || t("problem.unreachable")}</p>
          {problem.hint && <p className="muted">{problem.hint}</p>}
        </div>
      )}
      {preview && (children ?? <Outlook preview={preview} title={title ?? t("outlook.title")} />)}
    </section>
  );
}

/** What an action on a step would lead to: what ends at once, what runs then, and what the run is. */
function Outlook({ preview, title }: { preview: Preview; title: string }): ReactNode {
  const becomes = Object.entries(preview.becomes ?? {}) as [string, StepStatus][];
  return (
    <>
      <h3>{title} {preview.leads_to && <StatusChip status={preview.leads_to} text={t("outlook.run", { status: word("status", preview.leads_to) })} />}</h3>
      <Twice preview={preview} />
      <ul className="rerun">
        {becomes.slice(0, MOST).map(([step, status]) => (
          <li key={step} data-becomes={status}><StatusIcon status={status} size={14} /><code>{step}</code><span className="muted">{t("outlook.becomes", { status: word("status", status) })}</span></li>
        ))}
        <More n={becomes.length - MOST} />
        <Rows preview={preview} verb={t("outlook.runs")} />
        {becomes.length + preview.rerun.length === 0 && <li className="muted">{t("outlook.nothing")}</li>}
      </ul>
      {(preview.asks ?? []).length > 0 && <p className="notice">{t("outlook.asks")} <span className="mono">{(preview.asks ?? []).slice(0, 20).join(", ")}</span></p>}
      <Kept preview={preview} />
    </>
  );
}

/** What a retry would run again, and why. */
export function Again({ preview }: { preview: Preview }): ReactNode {
  const { seconds, cost } = { seconds: preview.estimate["seconds"] ?? preview.estimate["time"], cost: preview.estimate["cost"] };
  return (
    <>
      <Twice preview={preview} />
      {Object.entries(preview.damaged ?? {}).map(([path, why]) => <p key={path} className="notice warn"><span className="mono">{path}</span> {why}</p>)}
      {preview.backup && <p className="notice">{t("retry.backup", { path: preview.backup })}</p>}
      <h3>{t("retry.again")} <span className="count">{preview.rerun.length}</span>
        {seconds !== undefined && <span className="muted small"> {t("retry.estimate", { span: duration(seconds) })}</span>}
        {cost !== undefined && cost > 0 && <span className="muted small"> {amount(cost, "cost")}</span>}
      </h3>
      <ul className="rerun"><Rows preview={preview} /></ul>
      <Kept preview={preview} />
    </>
  );
}

/** What nobody would want to find out afterwards: effects that happen twice, and files of one's own that are made again. */
function Twice({ preview }: { preview: Preview }): ReactNode {
  const edited = preview.edited ?? [];
  return (
    <>
      {preview.once.length > 0 && <p className="notice warn" role="alert"><b>{t("retry.once", { n: preview.once.length })}</b> <span className="mono">{preview.once.join(", ")}</span></p>}
      {edited.length > 0 && <p className="notice warn">{t("retry.edited")} <span className="mono">{edited.join(", ")}</span></p>}
    </>
  );
}

function Rows({ preview, verb }: { preview: Preview; verb?: string }): ReactNode {
  const { store } = useScope();
  return (
    <>
      {preview.rerun.slice(0, MOST).map(({ step, why }) => (
        <li key={step}>
          <StatusIcon status={store.run?.steps[step]?.status ?? "pending"} size={14} />
          <code>{step}</code>
          <span className="muted">{verb ? `${verb} · ${why}` : why}</span>
          {!verb && preview.roots.includes(step) && <Tag tone="accent">{t("retry.root")}</Tag>}
          {preview.once.includes(step) && <Tag tone="warn">{t("effect.name.once")}</Tag>}
        </li>
      ))}
      <More n={preview.rerun.length - MOST} />
    </>
  );
}

function More({ n }: { n: number }): ReactNode {
  return n > 0 ? <li className="muted">{t("common.and_more", { n })}</li> : null;
}

function Kept({ preview }: { preview: Preview }): ReactNode {
  if (preview.kept.length === 0) return null;
  return (
    <details className="kept">
      <summary>{t("retry.kept", { n: preview.kept.length })}</summary>
      <p className="mono small">{preview.kept.slice(0, MOST).join(", ")}{preview.kept.length > MOST ? " …" : ""}</p>
    </details>
  );
}
