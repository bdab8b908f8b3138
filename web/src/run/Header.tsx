// What a run is, what it came to, what it may still spend, and what can be done about it.
import { type ReactNode, useState } from "react";
import { type Asked, useScope } from "../lib/context";
import { ago, amount, duration, moment, shortId } from "../lib/format";
import { useTick } from "../lib/hooks";
import { t, word } from "../lib/i18n";
import { address } from "../lib/route";
import { stepsOf } from "../lib/patch";
import type { Budget, RunView, WaitingOn } from "../lib/types";
import { Button, StatusChip, Tag } from "../parts/basics";
import { type IconName, StatusIcon } from "../parts/icons";
import { Progress } from "../parts/Progress";

const OVER = new Set(["completed", "failed", "cancelled"]);

export function Header({ run, readOnly }: { run: RunView; readOnly: boolean }): ReactNode {
  const { store } = useScope();
  const over = OVER.has(run.status);
  useTick(!over, 1000);
  const status = run.interrupted && !over ? "interrupted" : run.status;
  const took = over && run.ended_at ? run.ended_at - run.created_at : store.now() - run.created_at;
  const named = run.shown_status && run.shown_status !== run.status && status === run.status ? word("status", run.shown_status) : undefined;
  return (
    <header className="run-head">
      <div className="run-line">
        <StatusChip status={status} text={named} />
        <span className="visually-hidden" role="status" aria-live="polite">{t("a11y.run_status", { status: word("status", status) })}</span>
        <code className="run-id" title={run.run_id}>{shortId(run.run_id)}</code>
        {over && <span className="muted" title={moment(run.created_at)}>{ago(run.created_at, store.now())}</span>}
        <span className="muted" title={moment(run.created_at)}>{t(over ? "run.took" : "run.since", { span: duration(took) })}</span>
        {run.round > 0 && <Tag>{t("run.round", { n: run.round + 1 })}</Tag>}
        {run.revision > 1 && <Tag>{t("run.revision", { n: run.revision })}</Tag>}
        {run.degraded && <Tag tone="warn">{t("run.degraded")}</Tag>}
        {over && run.success && !run.complete && <Tag tone="warn">{t("run.incomplete")}</Tag>}
        {run.parent && <a className="tag" href={address({ page: "run", run: run.parent, tab: "graph", step: null })}>{t("run.follows", { run: shortId(run.parent) })}</a>}
        {run.follow_up && <a className="tag" href={address({ page: "run", run: run.follow_up, tab: "graph", step: null })}>{t("run.followed_by", { run: shortId(run.follow_up) })}</a>}
        {!readOnly && <Actions run={run} />}
      </div>
      <h1 className="run-title">{run.objective || t("run.no_objective")}</h1>
      <Verdict run={run} over={over} />
      {!readOnly && run.waiting_on.map((item) => <Waiting key={`${item.for} ${item.step}`} item={item} />)}
      <div className="run-measures">
        <Progress counts={run.counts} legend />
        <Budgets budgets={budgetsNow(run, store.now())} />
      </div>
    </header>
  );
}

const ACTIONS: { name: "retry" | "resume" | "pause" | "add" | "cancel"; icon: IconName; kind?: "primary" | "danger" }[] = [
  { name: "resume", icon: "play", kind: "primary" },
  { name: "retry", icon: "retry", kind: "primary" },
  { name: "add", icon: "plus" },
  { name: "pause", icon: "pause" },
  { name: "cancel", icon: "stop", kind: "danger" },
];

function Actions({ run }: { run: RunView }): ReactNode {
  const { ask } = useScope();
  const possible = ACTIONS.filter((action) => run.actions.includes(action.name));
  return (
    <div className="actions" role="group" aria-label={t("a11y.actions")}>
      {possible.map(({ name, icon, kind }) => {
        const calm = name === "retry" && (run.actions.includes("resume") || (run.status === "completed" && !run.degraded));
        return (
          <Button key={name} small icon={icon} name={name} kind={calm ? "plain" : (kind ?? "plain")} onClick={() => ask({ kind: name })}>
            {t(`action.${name}`)}
          </Button>
        );
      })}
    </div>
  );
}

/** The verdict in one sentence, and below it, on demand, everything that is not as it should be. */
function Verdict({ run, over }: { run: RunView; over: boolean }): ReactNode {
  const { select } = useScope();
  const [open, setOpen] = useState(false);
  const poor = stepsOf(run).filter((step) => step.degraded && step.status !== "failed");
  const stale = stepsOf(run).filter((step) => step.stale);
  const rows: { key: string; label: string; tone: string; ids: { id: string; why: string }[] }[] = [
    { key: "failed", label: t("verdict.failed"), tone: "bad", ids: run.failed_steps.map((row) => ({ id: row.id ?? row.step ?? "", why: row.reason ?? row.message ?? row.code ?? "" })) },
    { key: "disputed", label: t("verdict.disputed"), tone: "warn", ids: run.disputed.map((id) => ({ id, why: run.judgement?.reason ?? "" })) },
    { key: "degraded", label: t("verdict.degraded"), tone: "warn", ids: poor.map((step) => ({ id: step.id, why: step.degraded ?? "" })) },
    { key: "stale", label: t("verdict.stale"), tone: "warn", ids: stale.map((step) => ({ id: step.id, why: step.stale ?? "" })) },
    { key: "consequences", label: t("verdict.consequences"), tone: "", ids: run.consequences.map((id) => ({ id, why: "" })) },
    { key: "never", label: t("verdict.never"), tone: "", ids: run.never_started.map((id) => ({ id, why: "" })) },
  ].filter((row) => row.ids.length > 0);
  const tone = !over ? "" : run.status === "completed" ? (run.degraded || !run.complete ? "warn" : "good") : run.status === "failed" ? "bad" : "";
  return (
    <div className={`verdict ${tone}`} data-verdict={tone}>
      <p>
        <span className="verdict-text">{run.summary}</span>
        {rows.length > 0 && (
          <button type="button" className="link" aria-expanded={open} onClick={() => setOpen(!open)} data-action="verdict">
            {open ? t("verdict.less") : t("verdict.more", { n: rows.reduce((sum, row) => sum + row.ids.length, 0) })}
          </button>
        )}
      </p>
      {run.judgement?.reason && (open || !run.judgement.complete) && <p className="muted">{t("verdict.judge", { judge: run.judgement.judge ?? "", reason: run.judgement.reason })}</p>}
      {open && (
        <dl className="verdict-rows">
          {rows.map((row) => (
            <div key={row.key} className={row.tone}>
              <dt>{row.label}</dt>
              <dd>
                {row.ids.slice(0, 30).map(({ id, why }) => (
                  <span key={id} className="verdict-item">
                    <button type="button" className="link mono" onClick={() => select(id)}>{id}</button>
                    {why && <span className="muted">{why}</span>}
                  </span>
                ))}
                {row.ids.length > 30 && <span className="muted">{t("common.and_more", { n: row.ids.length - 30 })}</span>}
              </dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}

const MOST_CALL = 120; // letters of a call in the header; the dialog shows all of it

/** The call that a gate shows, in one line. */
function callOf(item: WaitingOn): string {
  const args = Object.entries((item.args ?? {}) as Record<string, unknown>).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  const said = item.args === null || item.args === undefined ? "…" : args.join(", ");
  return `${item.tool ?? ""}(${said.length > MOST_CALL ? `${said.slice(0, MOST_CALL)}…` : said})`;
}

function Waiting({ item }: { item: WaitingOn }): ReactNode {
  const { ask, select } = useScope();
  const action: Asked | null =
    item.for === "paused" ? { kind: "resume" }
      : item.for === "confirm" ? { kind: "confirm", step: item.step }
        : item.for === "in_doubt" ? { kind: "resolve", step: item.step } : null;
  const text = item.for === "paused" ? t("waiting.paused")
    : item.for === "confirm" ? (item.question || t("waiting.confirm")) : item.for === "in_doubt" ? t("waiting.in_doubt") : item.for;
  return (
    <div className="waiting-card" role="group" aria-label={text}>
      <StatusIcon status={item.for === "in_doubt" ? "in_doubt" : "waiting"} />
      <p>
        {item.step && <button type="button" className="link mono" onClick={() => select(item.step)}>{item.step}</button>} {text}
        {item.for === "confirm" && item.digest && <> <code className="gate-call">{callOf(item)}</code></>}
      </p>
      {action && <Button small kind="primary" name={`waiting-${item.for}`} onClick={() => ask(action)}>{t(`waiting.${item.for as "paused" | "confirm" | "in_doubt"}.do`)}</Button>}
    </div>
  );
}

/** Time goes on between two patches, while something runs. */
function budgetsNow(run: RunView, now: number): Budget[] {
  const more = run.status === "running" && !run.interrupted && run.at ? Math.max(0, now - run.at) : 0;
  return run.budgets.map((budget) => (budget.name === "time" ? { ...budget, used: budget.used + more } : budget));
}

function Budgets({ budgets }: { budgets: Budget[] }): ReactNode {
  const shown = budgets.filter((budget) => budget.of !== null || budget.used > 0);
  return (
    <ul className="budgets" aria-label={t("budget.title")}>
      {shown.map((budget) => {
        const share = budget.of ? Math.min(1, budget.used / budget.of) : 0;
        const said = budget.of === null ? amount(budget.used, budget.unit)
          : t("budget.of", { used: amount(budget.used, budget.unit), of: amount(budget.of, budget.unit) });
        return (
          <li key={budget.name} className="budget">
            <span className="budget-name">{word("budget", budget.name)}</span>
            <span className="budget-said">{said}</span>
            {budget.of !== null && (
              <span className={share >= 1 ? "budget-bar full" : share > 0.75 ? "budget-bar high" : "budget-bar"} role="meter"
                aria-label={word("budget", budget.name)} aria-valuemin={0} aria-valuemax={budget.of} aria-valuenow={budget.used} aria-valuetext={said}>
                <span style={{ width: `${share * 100}%` }} />
              </span>
            )}
          </li>
        );
      })}
    </ul>
  );
}
