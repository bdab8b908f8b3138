// One step, whole: what it is, what was tried, what came of it, and what can be done about it.
import { type ReactNode, useEffect, useRef, useState } from "react";
import { at, download, get } from "../lib/api";
import { useScope } from "../lib/context";
import { bytes, clock, duration } from "../lib/format";
import { useSettled, useTick } from "../lib/hooks";
import { t, word } from "../lib/i18n";
import { useStep } from "../lib/store";
import { bad } from "../lib/toasts";
import type { StepDetail, StepView } from "../lib/types";
import { Button, Section, StatusChip, Tag, Value } from "../parts/basics";
import { Icon, type IconName } from "../parts/icons";
import { Attempts } from "./Attempts";

export function StepDrawer({ id, readOnly }: { id: string; readOnly: boolean }): ReactNode {
  const { store, select } = useScope();
  const step = useStep(store, id);
  const settled = useSettled(step, 120);
  const [detail, setDetail] = useState<StepDetail | null>(null);
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    const abort = new AbortController();
    get<StepDetail>(at("runs", store.id, "step"), { id }, abort.signal)
      .then(setDetail, (error: unknown) => { if (!abort.signal.aborted) bad(error); });
    return () => abort.abort();
  }, [store.id, id, settled]);
  useTick(step?.status === "running" || step?.status === "waiting", 500);
  if (!step) {
    return (
      <aside className="drawer" aria-label={id}>
        <header className="drawer-head"><h2>{id}</h2><Button kind="quiet" icon="close" label={t("common.close")} onClick={() => select(null)} /></header>
        <p className="muted drawer-body">{t("step.gone")}</p>
      </aside>
    );
  }
  return (
    <aside className="drawer" aria-label={t("step.drawer", { title: step.title || id })} data-drawer={id}>
      <header className="drawer-head">
        <div className="drawer-title">
          <h2 ref={head}>{step.title || id}</h2>
          <p className="drawer-sub"><code>{id}</code><span className="muted">·</span><code>{step.tool}</code>{step.stage && <Tag>{step.stage}</Tag>}</p>
        </div>
        <Button kind="quiet" icon="close" label={t("common.close")} onClick={() => select(null)} />
      </header>
      <div className="drawer-body">
        <div className="drawer-line">
          <StatusChip status={step.status} />
          <Marks step={step} />
        </div>
        {!readOnly && <StepActions step={step} />}
        <Trouble step={step} detail={detail} now={store.now()} />
        <Facts step={step} detail={detail} now={store.now()} />
        {detail && <Rest detail={detail} run={store.id} />}
      </div>
    </aside>
  );
}

function Marks({ step }: { step: StepView }): ReactNode {
  return (
    <>
      {step.optional && <Tag title={t("step.optional_text")}>{t("step.optional")}</Tag>}
      {step.confirm ? <Tag title={t("step.confirm_text")}><Icon name="gate" size={12} /> {t("step.confirm")}</Tag> : null}
      {step.effect && <Tag title={t(`effect.${step.effect as "once" | "read" | "repeatable"}`)}>{step.effect === "once" && <Icon name="once" size={12} />} {word("effect.name", step.effect)}</Tag>}
      {step.stale && <Tag tone="warn" title={step.stale}>{t("step.stale")}</Tag>}
      {step.unverified && <Tag tone="warn">{t("step.unverified")}</Tag>}
      {step.disputed && <Tag tone="warn">{t("step.disputed")}</Tag>}
    </>
  );
}

const STEP_ACTIONS: { name: "confirm" | "resolve" | "retry" | "repair" | "skip"; icon: IconName }[] = [
  { name: "confirm", icon: "check" }, { name: "resolve", icon: "check" }, { name: "retry", icon: "retry" },
  { name: "repair", icon: "wrench" }, { name: "skip", icon: "skip" },
];

function StepActions({ step }: { step: StepView }): ReactNode {
  const { ask } = useScope();
  const possible = STEP_ACTIONS.filter(({ name }) => step.actions?.includes(name));
  if (possible.length === 0) return null;
  const first = step.status === "in_doubt" ? "resolve" : step.status === "waiting" ? "confirm" : "retry";
  return (
    <div className="actions" role="group" aria-label={t("a11y.step_actions")}>
      {possible.map(({ name, icon }) => (
        <Button key={name} small icon={icon} name={`step-${name}`} kind={name === first ? "primary" : "plain"}
          onClick={() => ask(name === "retry" ? { kind: "retry", steps: [step.id] } : { kind: name, step: step.id })}>
          {t(`action.${name}`)}
        </Button>
      ))}
    </div>
  );
}

function Trouble({ step, detail, now }: { step: StepView; detail: StepDetail | null; now: number }): ReactNode {
  const tries = detail?.tries ?? [];
  const thought = tries[tries.length - 1]?.reflection?.root_cause ?? "";
  const hint = step.error?.hint || (thought !== step.error?.message ? thought : "");
  return (
    <>
      {step.error && (
        <div className={step.status === "skipped" ? "card" : step.status === "failed" || step.status === "in_doubt" ? "card bad" : "card warn"} role="group" aria-label={t("step.error")}>
          <p className="card-head"><code>{step.error.code}</code>{step.error.category && <Tag>{word("category", step.error.category)}</Tag>}</p>
          <p className="message">{step.error.message}</p>
          {hint && <p className="muted">{hint}</p>}
        </div>
      )}
      {step.degraded && <div className="card warn"><p className="card-head"><b>{t("step.degraded")}</b></p><p className="message">{step.degraded}</p></div>}
      {step.waiting_for && (
        <p className="drawer-wait">{t("step.waits", { what: word("wait", step.waiting_for) })}
          {step.next_try_at ? ` ${t("step.next_try", { span: duration(Math.max(0, step.next_try_at - now)) })}` : ""}</p>
      )}
    </>
  );
}

function Facts({ step, detail, now }: { step: StepView; detail: StepDetail | null; now: number }): ReactNode {
  const { select } = useScope();
  const running = step.status === "running" && step.started_at ? now - step.started_at : null;
  const links = (ids: string[]): ReactNode => ids.slice(0, 40).map((id) => (
    <button key={id} type="button" className="link mono" onClick={() => select(id)}>{id}</button>
  ));
  return (
    <dl className="facts">
      <div><dt>{t("steps.attempts")}</dt><dd>{step.attempts}{typeof step.retries_left === "number" && <span className="muted"> {t("step.retries_left", { n: step.retries_left })}</span>}</dd></div>
      <div><dt>{t("steps.elapsed")}</dt><dd>{duration(running ?? step.elapsed)}</dd></div>
      {step.started_at && <div><dt>{t("step.started")}</dt><dd>{clock(step.started_at)}</dd></div>}
      {step.rung && <div><dt>{t("step.rung")}</dt><dd>{word("rung", step.rung)}</dd></div>}
      {step.needs.length > 0 && <div className="wide"><dt>{t("step.needs")}</dt><dd className="links">{links(step.needs)}</dd></div>}
      {detail?.downstream && detail.downstream.length > 0 && (
        <div className="wide"><dt>{t("step.downstream")}</dt><dd className="links">{links(detail.downstream)}{detail.downstream.length > 40 && <span className="muted">{t("common.and_more", { n: detail.downstream.length - 40 })}</span>}</dd></div>
      )}
    </dl>
  );
}

function Rest({ detail, run }: { detail: StepDetail; run: string }): ReactNode {
  const artifacts = detail.artifacts ?? [];
  const files = (detail.files ?? []).filter((path) => !artifacts.some((one) => one.name === path));
  return (
    <>
      {detail.tries && detail.tries.length > 0 && <Section title={t("step.attempts")} count={detail.tries.length}><Attempts tries={detail.tries} /></Section>}
      {detail.output !== undefined && detail.output !== null && <Section title={t("step.output")}><Value value={detail.output} name={`${detail.id}-output`} /></Section>}
      {detail.args !== undefined && detail.args !== null && <Section title={t("step.args")} open={(detail.tries ?? []).length <= 1}><Value value={detail.args} name={`${detail.id}-args`} /></Section>}
      {artifacts.length + files.length > 0 && (
        <Section title={t("step.artifacts")} count={artifacts.length + files.length}>
          <ul className="artifact-list">
            {artifacts.map((one) => (
              <li key={one.name}>
                <span className="artifact-name">{one.name}</span>
                <span className="muted">{one.size === undefined ? "" : bytes(one.size)}</span>
                <span className="artifact-tools"><Button small kind="quiet" icon="down" label={t("value.save")} onClick={() => void download(at("runs", run, "artifacts", one.name), one.name).catch(bad)} /></span>
              </li>
            ))}
            {files.map((path) => <li key={path}><span className="artifact-name">{path}</span></li>)}
          </ul>
        </Section>
      )}
      {detail.why && <Section title={t("step.why")} open={detail.status === "failed" || detail.attempts > 1}><pre className="story">{detail.why}</pre></Section>}
      {detail.plan_step !== undefined && <Section title={t("step.in_plan")} open={false}><Value value={detail.plan_step} name={`${detail.id}-plan`} /></Section>}
    </>
  );
}
