// The run as a table: everything the graph shows, for those who would rather read, or have to.
import { memo, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useScope } from "../lib/context";
import { duration } from "../lib/format";
import { reveal, useRows } from "../lib/hooks";
import { t, word } from "../lib/i18n";
import { useKeys } from "../lib/keys";
import { stepsOf } from "../lib/patch";
import { useRun } from "../lib/store";
import type { StepView } from "../lib/types";
import { Empty, StatusChip, Tag } from "../parts/basics";
import { Icon } from "../parts/icons";

const ROW = 40;
type Sort = "plan" | "status" | "title" | "tool" | "attempts" | "elapsed";
const COLUMNS: { name: Sort; wide?: boolean }[] = [
  { name: "status" }, { name: "title" }, { name: "tool", wide: true }, { name: "attempts", wide: true }, { name: "elapsed" },
];
const GRAVITY = ["in_doubt", "failed", "waiting", "running", "degraded", "skipped", "cancelled", "ready", "pending", "succeeded"];

export function StepsTab(): ReactNode {
  const { store, selected, select } = useScope();
  const run = useRun(store);
  const [typed, setTyped] = useState("");
  const [status, setStatus] = useState("");
  const [sort, setSort] = useState<{ by: Sort; down: boolean }>({ by: "plan", down: false });
  const box = useRef<HTMLDivElement>(null);
  const all = useMemo(() => stepsOf(run), [run]);
  const rows = useMemo(() => sorted(all.filter((step) => fits(step, typed, status)), sort), [all, typed, status, sort]);
  const { first, last } = useRows(box, rows.length, ROW);
  const critical = useMemo(() => new Set(run?.critical ?? []), [run?.critical]);
  useEffect(() => reveal(box.current, rows.findIndex((step) => step.id === selected), ROW, 36), [selected]);
  const move = (by: number): void => {
    const at = rows.findIndex((step) => step.id === selected);
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    if (next) select(next.id);
  };
  useKeys({ j: () => move(1), k: () => move(-1) });
  const statuses = useMemo(() => GRAVITY.filter((name) => all.some((step) => step.status === name)), [all]);
  return (
    <div className="steps">
      <div className="view-tools">
        <label className="search small">
          <Icon name="search" size={14} />
          <input data-search type="search" value={typed} placeholder={t("steps.search")} aria-label={t("steps.search")} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <select aria-label={t("steps.filter")} value={status} onChange={(event) => setStatus(event.target.value)}>
          <option value="">{t("steps.all", { n: all.length })}</option>
          {statuses.map((name) => <option key={name} value={name}>{word("status", name)}</option>)}
        </select>
        <span className="muted" role="status">{t("steps.shown", { n: rows.length })}</span>
      </div>
      <div className="table-box" ref={box} tabIndex={0} role="region" aria-label={t("tab.steps")}>
        <table aria-rowcount={rows.length + 1}>
          <thead>
            <tr>
              {COLUMNS.map(({ name, wide }) => (
                <th key={name} className={`c-${name} ${wide ? "wide-only" : ""}`} aria-sort={sort.by === name ? (sort.down ? "descending" : "ascending") : "none"}>
                  <button type="button" onClick={() => setSort(nextSort(sort, name))}>
                    {t(`steps.${name as Exclude<Sort, "plan">}`)}{sort.by === name && <span aria-hidden="true">{sort.down ? " ↓" : " ↑"}</span>}
                  </button>
                </th>
              ))}
              <th className="c-note wide-only">{t("steps.note")}</th>
            </tr>
          </thead>
          <tbody>
            {first > 0 && <tr aria-hidden="true" style={{ height: first * ROW }}><td colSpan={6} /></tr>}
            {rows.slice(first, last).map((step, index) => (
              <Row key={step.id} step={step} index={first + index} chosen={selected === step.id} critical={critical.has(step.id)} onClick={select} />
            ))}
            {last < rows.length && <tr aria-hidden="true" style={{ height: (rows.length - last) * ROW }}><td colSpan={6} /></tr>}
          </tbody>
        </table>
        {rows.length === 0 && <Empty title={t("steps.nothing")} />}
      </div>
    </div>
  );
}

function nextSort(sort: { by: Sort; down: boolean }, name: Sort): { by: Sort; down: boolean } {
  if (sort.by !== name) return { by: name, down: name === "attempts" || name === "elapsed" };
  const first = name === "attempts" || name === "elapsed";
  return sort.down === first ? { by: name, down: !first } : { by: "plan", down: false };
}

function fits(step: StepView, typed: string, status: string): boolean {
  if (status && step.status !== status) return false;
  const words = typed.trim().toLowerCase();
  return !words || [step.id, step.title, step.tool, step.stage, step.error?.code ?? ""].some((text) => text.toLowerCase().includes(words));
}

function sorted(steps: StepView[], { by, down }: { by: Sort; down: boolean }): StepView[] {
  if (by === "plan") return steps;
  const key = (step: StepView): string | number =>
    by === "status" ? GRAVITY.indexOf(step.status) : by === "title" ? step.title || step.id : step[by];
  const compare = (a: StepView, b: StepView): number => {
    const [x, y] = [key(a), key(b)];
    return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
  };
  return [...steps].sort((a, b) => (down ? compare(b, a) : compare(a, b)));
}

const Row = memo(function Row({ step, index, chosen, critical, onClick }: {
  step: StepView; index: number; chosen: boolean; critical: boolean; onClick: (id: string) => void;
}): ReactNode {
  return (
    <tr className={chosen ? "chosen" : ""} aria-rowindex={index + 2} style={{ height: ROW }} onClick={() => onClick(step.id)} data-step={step.id} data-status={step.status}>
      <td className="c-status"><StatusChip status={step.status} /></td>
      <th scope="row" className="c-title">
        <button type="button" className="cell-button" onClick={(event) => { event.stopPropagation(); onClick(step.id); }}>
          <span className="cell-title">{step.title || step.id}</span>
          {step.title && step.title !== step.id && <code className="muted">{step.id}</code>}
        </button>
      </th>
      <td className="c-tool wide-only"><code>{step.tool}</code></td>
      <td className="c-attempts wide-only num">{step.attempts || ""}</td>
      <td className="c-elapsed num">{step.elapsed > 0 ? duration(step.elapsed) : ""}</td>
      <td className="c-note wide-only">
        <span className="notes">
          {critical && <Tag tone="accent">{t("graph.critical_short")}</Tag>}
          {step.stage && <Tag>{step.stage}</Tag>}
          {step.disputed && <Tag tone="warn">{t("step.disputed")}</Tag>}
          {step.stale && <Tag tone="warn" title={step.stale}>{t("step.stale")}</Tag>}
          <span className="note-text">{step.error?.message ?? step.degraded ?? ""}</span>
        </span>
      </td>
    </tr>
  );
});
