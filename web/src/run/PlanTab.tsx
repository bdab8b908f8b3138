// The plan as it was and as it is: two revisions beside each other, with what differs marked.
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { at, get } from "../lib/api";
import { useScope } from "../lib/context";
import { diffLines, diffRevisions, inOrder, inPairs, pretty, type RevisionRow } from "../lib/diff";
import { clock } from "../lib/format";
import { t, word } from "../lib/i18n";
import { type RunStore, usePart } from "../lib/store";
import { bad } from "../lib/toasts";
import type { PlanStep, Revision } from "../lib/types";
import { Empty, Tag } from "../parts/basics";

// A repair may begin a round without being a revision of its own; a new tool or need changes the shape.
const revisionOf = (store: RunStore): string => `${store.run?.revision} ${store.run?.round} ${store.shape}`;

export function PlanTab(): ReactNode {
  const { store } = useScope();
  const newest = usePart(store, revisionOf);
  const [revisions, setRevisions] = useState<Revision[] | null>(null);
  const [pair, setPair] = useState<[number, number] | null>(null);
  const [onlyChanged, setOnlyChanged] = useState(true);
  useEffect(() => {
    const abort = new AbortController();
    get<{ revisions: Revision[] }>(at("runs", store.id, "revisions"), {}, abort.signal)
      .then((answer) => setRevisions(answer.revisions), (error: unknown) => { if (!abort.signal.aborted) bad(error); });
    return () => abort.abort();
  }, [store.id, newest]);
  const last = (revisions?.length ?? 1) - 1;
  const [left, right] = pair ?? [Math.max(0, last - 1), last];
  const rows = useMemo(() => {
    const [before, after] = [revisions?.[left], revisions?.[right]];
    return before && after ? diffRevisions(before.steps, after.steps) : [];
  }, [revisions, left, right]);
  if (!revisions) return <p className="muted loading" role="status">{t("common.loading")}</p>;
  if (revisions.length === 0) return <Empty title={t("plan.empty")} />;
  const alone = revisions.length === 1 || left === right;
  const changed = rows.filter((row) => row.change !== "same");
  const shown = alone || !onlyChanged ? rows : changed;
  const choose = (label: string, value: number, set: (index: number) => void): ReactNode => (
    <select aria-label={label} value={value} onChange={(event) => set(Number(event.target.value))}>
      {revisions.map((revision, index) => <option key={index} value={index}>{titleOf(revision)}</option>)}
    </select>
  );
  return (
    <div className="plan">
      <div className="view-tools">
        {revisions.length === 1
          ? <span className="muted">{t("plan.one")}</span>
          : <>
            {choose(t("plan.before"), left, (index) => setPair([index, right]))}
            <span aria-hidden="true" className="muted">→</span>
            {choose(t("plan.after"), right, (index) => setPair([left, index]))}
            <label className="check"><input type="checkbox" checked={onlyChanged} onChange={(event) => setOnlyChanged(event.target.checked)} /> {t("plan.only_changed")}</label>
            <span className="muted" role="status">{t("plan.changes", { n: changed.length })}</span>
          </>}
      </div>
      {!alone && <Why revision={revisions[right]!} />}
      <div className={alone ? "plan-rows alone" : "plan-rows"}>
        {shown.length === 0 && <Empty title={t("plan.same")} />}
        {shown.map((row) => <Row key={row.id} row={row} alone={alone} />)}
      </div>
    </div>
  );
}

function briefOf(args: unknown): string {
  const text = args && typeof args === "object" && Object.keys(args).length > 0 ? JSON.stringify(args) : "";
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

function titleOf(revision: Revision): string {
  return t("plan.revision", { n: revision.revision, kind: word("revision", revision.kind), at: revision.at ? clock(revision.at) : "" });
}

function Why({ revision }: { revision: Revision }): ReactNode {
  if (!revision.reason && !revision.by) return null;
  return <p className="plan-why">{revision.by && <Tag>{revision.by}</Tag>} {revision.reason}</p>;
}

const linesOf = (step: PlanStep | null): string[] => (step ? pretty(inOrder(step)).split("\n").slice(1, -1).map((line) => line.slice(2)) : []);

function Row({ row, alone }: { row: RevisionRow<PlanStep>; alone: boolean }): ReactNode {
  const pairs = useMemo(() => inPairs(diffLines(linesOf(row.before), linesOf(row.after))), [row]);
  if (alone) {
    return (
      <details className="plan-row">
        <summary>
          <code>{row.id}</code> <code className="muted">{String(row.after?.tool ?? "")}</code>
          <span className="muted plan-brief">{briefOf(row.after?.["args"])}</span>
        </summary>
        <pre>{linesOf(row.after).join("\n")}</pre>
      </details>
    );
  }
  const side = (which: 0 | 1): ReactNode => (
    <pre>{pairs.map((pair, index) => (
      <span key={index} className={`diff ${pair[which]?.kind ?? "none"}`}>{pair[which]?.text || " "}</span>
    ))}</pre>
  );
  return (
    <details className={`plan-row ${row.change}`} open={row.change !== "same"} data-change={row.change}>
      <summary>
        <code>{row.id}</code> <Tag tone={row.change === "added" ? "good" : row.change === "dropped" ? "bad" : row.change === "changed" ? "accent" : ""}>{t(`plan.${row.change}`)}</Tag>
        {row.fields.length > 0 && <span className="muted">{row.fields.join(", ")}</span>}
      </summary>
      <div className="plan-sides">
        <div aria-label={t("plan.before")} role="group">{row.before ? side(0) : <p className="muted none">{t("plan.not_there")}</p>}</div>
        <div aria-label={t("plan.after")} role="group">{row.after ? side(1) : <p className="muted none">{t("plan.not_there")}</p>}</div>
      </div>
    </details>
  );
}
