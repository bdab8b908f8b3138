// The run by the clock: every attempt of every step, what it waited for between, and where now is.
import { memo, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useScope } from "../lib/context";
import { clock, duration, ticks } from "../lib/format";
import { reveal, useRows, useSize, useTick, useWide } from "../lib/hooks";
import { t, word } from "../lib/i18n";
import { useKeys } from "../lib/keys";
import { stepsOf } from "../lib/patch";
import { useRun } from "../lib/store";
import type { StepView } from "../lib/types";
import { Button, Empty } from "../parts/basics";
import { StatusIcon } from "../parts/icons";

const ROW = 30;
const HEAD = 30;

interface Scale {
  from: number;
  width: number; // of the whole, in pixels
  perSecond: number;
  now: number | null;
}

export function TimelineTab(): ReactNode {
  const { store, selected, select } = useScope();
  const run = useRun(store);
  const box = useRef<HTMLDivElement>(null);
  const { width } = useSize(box);
  const wide = useWide("(min-width: 720px)");
  const [zoom, setZoom] = useState(1);
  const over = run === null || run.ended_at !== null;
  useTick(!over, 500);
  const steps = useMemo(() => ordered(stepsOf(run)), [run]);
  const { first, last } = useRows(box, steps.length, ROW);
  useEffect(() => reveal(box.current, steps.findIndex((step) => step.id === selected), ROW, HEAD), [selected]);
  const move = (by: number): void => {
    const at = steps.findIndex((step) => step.id === selected);
    const next = steps[Math.max(0, Math.min(steps.length - 1, at + by))];
    if (next) select(next.id);
  };
  const closer = (by: number): void => setZoom((old) => Math.max(1, Math.min(200, old * by)));
  useKeys({ j: () => move(1), k: () => move(-1), "+": () => closer(1.6), "=": () => closer(1.6), "-": () => closer(1 / 1.6), f: () => setZoom(1) });
  if (!run || steps.length === 0) return <Empty title={t("timeline.empty")} />;
  const label = wide ? 220 : 112;
  const scale = scaleOf(run.created_at, steps, over ? null : store.now(), (width - label - 16) * zoom);
  const step = ticks(scale.width / scale.perSecond, Math.max(2, scale.width / 110));
  const marks = Array.from({ length: Math.floor(scale.width / scale.perSecond / step) + 1 }, (_, index) => index * step);
  return (
    <div className="timeline">
      <div className="view-tools">
        <Button small icon="plus" label={t("graph.in")} onClick={() => closer(1.6)} />
        <Button small icon="minus" label={t("graph.out")} onClick={() => closer(1 / 1.6)} />
        <Button small icon="fit" label={t("graph.fit")} onClick={() => setZoom(1)} />
        <span className="muted">{t("timeline.begun", { at: clock(scale.from) })}</span>
        <ul className="timeline-key">
          <li><span className="bar-key o-succeeded" />{t("outcome.succeeded")}</li>
          <li><span className="bar-key o-failed" />{t("outcome.failed")}</li>
          <li><span className="bar-key o-running" />{t("outcome.running")}</li>
          {steps.some((one) => one.spans?.some((span) => span.outcome === "doubt")) && <li><span className="bar-key o-doubt" />{t("outcome.doubt")}</li>}
          <li><span className="bar-key o-wait" />{t("timeline.wait")}</li>
        </ul>
      </div>
      <div className="timeline-box" ref={box} tabIndex={0} role="region" aria-label={t("tab.timeline")}>
        <div className="timeline-inner" style={{ width: label + 16 + scale.width, height: steps.length * ROW + HEAD }}>
          <div className="timeline-head" style={{ height: HEAD }}>
            <span className="timeline-corner" style={{ width: label }} />
            {marks.map((at) => <span key={at} className="mark" style={{ left: label + at * scale.perSecond }}>{at === 0 ? "0" : `+${duration(at)}`}</span>)}
          </div>
          <div className="timeline-grid" aria-hidden="true" style={{ left: label, top: HEAD, height: steps.length * ROW }}>
            {marks.map((at) => <span key={at} style={{ left: at * scale.perSecond }} />)}
          </div>
          {scale.now !== null && (
            <div className="now" aria-hidden="true" style={{ left: label + (scale.now - scale.from) * scale.perSecond, height: steps.length * ROW + 8, top: HEAD - 8 }} />
          )}
          <ul className="timeline-rows" style={{ top: HEAD + first * ROW }}>
            {steps.slice(first, last).map((one) => (
              <Row key={one.id} step={one} scale={scale} label={label} chosen={one.id === selected} onClick={select} />
            ))}
          </ul>
        </div>
      </div>
    </div>
  );
}

/** By when they began; what has not begun stands at the end, in the plan's order. */
function ordered(steps: StepView[]): StepView[] {
  const begun = (step: StepView): number => Math.min(step.spans?.[0]?.from ?? Infinity, step.waits?.[0]?.from ?? Infinity);
  return [...steps].sort((a, b) => (begun(a) === begun(b) ? 0 : begun(a) - begun(b)));
}

function scaleOf(created: number, steps: StepView[], now: number | null, width: number): Scale {
  let from = Infinity;
  let to = now ?? 0;
  for (const step of steps) {
    for (const span of step.spans ?? []) {
      from = Math.min(from, span.from);
      to = Math.max(to, span.to ?? span.from);
    }
    for (const wait of step.waits ?? []) to = Math.max(to, Math.min(wait.until ?? wait.from, now ?? Infinity));
  }
  if (!Number.isFinite(from)) from = created;
  from = Math.min(from, created);
  const range = Math.max(0.05, to - from) * 1.02;
  return { from, width: Math.max(1, width), perSecond: Math.max(1, width) / range, now };
}

const Row = memo(function Row({ step, scale, label, chosen, onClick }: {
  step: StepView; scale: Scale; label: number; chosen: boolean; onClick: (id: string) => void;
}): ReactNode {
  const end = scale.now ?? scale.from + scale.width / scale.perSecond;
  const place = (from: number, to: number): { left: number; width: number } => ({
    left: label + (from - scale.from) * scale.perSecond,
    width: Math.max(3, (to - from) * scale.perSecond),
  });
  return (
    <li className={chosen ? "timeline-row chosen" : "timeline-row"} style={{ height: ROW }}>
      <button type="button" className="timeline-label" style={{ width: label }} onClick={() => onClick(step.id)} data-step={step.id}
        aria-label={t("step.label", { title: step.title || step.id, tool: step.tool, status: word("status", step.status) })}>
        <StatusIcon status={step.status} size={14} />
        <span>{step.title || step.id}</span>
      </button>
      {(step.waits ?? []).map((wait, index) => (
        <span key={index} className="span o-wait" style={place(wait.from, Math.min(wait.until ?? end, end))}
          title={t("timeline.waited", { why: word("wait", wait.why), span: duration(Math.min(wait.until ?? end, end) - wait.from) })} />
      ))}
      {(step.spans ?? []).map((span) => (
        <span key={`${span.attempt} ${span.from}`} className={`span o-${span.outcome}`} style={place(span.from, span.to ?? end)}
          title={t("timeline.attempt", { n: span.attempt, tool: span.tool, outcome: word("outcome", span.outcome), span: duration((span.to ?? end) - span.from), code: span.code ?? "" })} />
      ))}
    </li>
  );
});
