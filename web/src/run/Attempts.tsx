// What was tried on a step: one call below the other, with what changed between them and why.
import type { ReactNode } from "react";
import { clock, duration } from "../lib/format";
import { t, word } from "../lib/i18n";
import type { Reflection, Try } from "../lib/types";
import { Tag, Value } from "../parts/basics";
import { StatusIcon } from "../parts/icons";

const MOST = 40;

export function Attempts({ tries }: { tries: Try[] }): ReactNode {
  const shown = tries.slice(-MOST);
  return (
    <ol className="attempts">
      {tries.length > shown.length && <li className="muted">{t("common.and_more", { n: tries.length - shown.length })}</li>}
      {shown.map((one, index) => (
        <Attempt key={`${one.attempt} ${one.at}`} one={one} before={shown[index - 1]} latest={index === shown.length - 1} alone={shown.length === 1} />
      ))}
    </ol>
  );
}

function Attempt({ one, before, latest, alone }: { one: Try; before: Try | undefined; latest: boolean; alone: boolean }): ReactNode {
  const changed = Object.entries(one.changed ?? {});
  const took = one.elapsed ?? (one.ended_at === null ? null : one.ended_at - one.at);
  return (
    <li className={`attempt o-${one.outcome}`} data-attempt={one.attempt} data-outcome={one.outcome}>
      <p className="attempt-head">
        <StatusIcon status={iconOf(one.outcome)} size={14} />
        <b>{t("step.attempt", { n: one.attempt })}</b>
        <span>{word("outcome", one.outcome)}</span>
        <code>{one.tool}</code>
        {one.rung && one.rung !== "fail" && <Tag tone="accent" title={t("step.rung")}>{word("rung", one.rung)}</Tag>}
        <span className="attempt-time muted">{clock(one.at)}{took === null ? "" : ` · ${duration(took)}`}</span>
      </p>
      {one.why && one.why !== before?.error?.message && <p className="muted">{one.why}</p>}
      {one.called === false && <p className="muted">{t("step.not_called")}</p>}
      {changed.length > 0 && (
        <table className="changes">
          <caption className="visually-hidden">{t("step.changed")}</caption>
          <thead className="visually-hidden"><tr><th>{t("step.argument")}</th><th>{t("plan.before")}</th><th>{t("plan.after")}</th></tr></thead>
          <tbody>
            {changed.map(([name, [before, after]]) => (
              <tr key={name}><th scope="row"><code>{name}</code></th><td><del>{short(before)}</del></td><td><ins>{short(after)}</ins></td></tr>
            ))}
          </tbody>
        </table>
      )}
      {one.error && <p className="attempt-error"><code>{one.error.code}</code> <span className="message">{one.error.message}</span></p>}
      {one.verified && <p className="muted">{t("step.verified", { effect: word("verified", one.verified.effect) })} {one.verified.reason}</p>}
      {one.reflection && <Thought thought={one.reflection} said={one.error?.message ?? ""} />}
      {one.logs && one.logs.length > 0 && (
        <details className="attempt-more"><summary>{t("step.logs", { n: one.logs.length })}</summary><pre>{one.logs.map((line) => `${clock(line.at)}  ${line.text}`).join("\n")}</pre></details>
      )}
      {one.args !== undefined && one.args !== null && !alone && (
        <details className="attempt-more" open={false}><summary>{latest ? t("step.args_latest") : t("step.args")}</summary><Value value={one.args} name={`attempt-${one.attempt}`} /></details>
      )}
    </li>
  );
}

function Thought({ thought, said }: { thought: Reflection; said: string }): ReactNode {
  return (
    <div className="thought">
      <p>
        <b>{t("step.reflection")}</b> {thought.category && <Tag>{word("category", thought.category)}</Tag>}
        {thought.rung && <Tag tone="accent">{word("rung", thought.rung)}</Tag>}
        {thought.by && <span className="muted"> {thought.by}</span>}
        {typeof thought.confidence === "number" && <span className="muted"> {t("step.confidence", { n: Math.round(thought.confidence <= 1 ? thought.confidence * 100 : thought.confidence) })}</span>}
      </p>
      {thought.root_cause && thought.root_cause !== said && <p>{thought.root_cause}</p>}
      {thought.suggestion !== null && thought.suggestion !== undefined && <p className="mono small">{short(thought.suggestion)}</p>}
      {(thought.refused ?? []).map((reason, index) => <p key={index} className="muted">{t("step.refused", { reason })}</p>)}
    </div>
  );
}

function short(value: unknown): string {
  const text = value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 400 ? `${text.slice(0, 400)}…` : text;
}

function iconOf(outcome: string): "running" | "succeeded" | "failed" | "cancelled" | "in_doubt" | "waiting" {
  if (outcome === "doubt") return "in_doubt";
  if (outcome === "not_now") return "waiting";
  return outcome === "succeeded" || outcome === "failed" || outcome === "cancelled" || outcome === "running" ? outcome : "waiting";
}
