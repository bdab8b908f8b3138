// All runs, newest first, as they are now.
import { type ReactNode, useEffect, useRef, useState } from "react";
import { ago, duration, shortId } from "../lib/format";
import { useSettled, useTick } from "../lib/hooks";
import { t, word } from "../lib/i18n";
import { useKeys } from "../lib/keys";
import { address, go } from "../lib/route";
import type { Connection } from "../lib/sse";
import { ListStore, useList } from "../lib/store";
import type { RunRow } from "../lib/types";
import { Button, Empty, StatusChip, Tag } from "../parts/basics";
import { Icon } from "../parts/icons";
import { Progress } from "../parts/Progress";

const FILTERS = ["", "pending", "running", "waiting", "interrupted", "failed", "completed", "cancelled"] as const;

export function ListPage({ onState, onStart, onRetry }: {
  onState: (state: Connection) => void; onStart: (() => void) | null; onRetry: (() => void) | null;
}): ReactNode {
  const [store] = useState(() => new ListStore());
  const list = useList(store);
  const [status, setStatus] = useState("");
  const [typed, setTyped] = useState("");
  const q = useSettled(typed, 250);
  const [chosen, setChosen] = useState(-1);
  const rows = useRef<HTMLUListElement>(null);
  useTick(true, 5000);
  useEffect(() => store.open(), [store]);
  useEffect(() => void store.load({ status, q }), [store, status, q]);
  useEffect(() => onState(list.connection), [list.connection, onState]);
  useEffect(() => { document.title = t("title.list"); }, []);

  const choose = (to: number): void => {
    const at = Math.max(0, Math.min(list.rows.length - 1, to));
    setChosen(at);
    rows.current?.querySelectorAll<HTMLAnchorElement>("a.run-row")[at]?.focus();
  };
  useKeys({
    j: () => choose(chosen + 1),
    k: () => choose(chosen - 1),
    Enter: () => {
      const row = list.rows[chosen];
      if (row) go({ page: "run", run: row.run_id, tab: "graph", step: null });
    },
  });
  const now = Date.now() / 1000;
  return (
    <main id="content" tabIndex={-1} className="list-page">
      <div className="list-head">
        <div className="list-title">
          <h1>{t("list.title")}</h1>
          {onRetry && (status === "failed" || list.rows.some((row) => row.status === "failed" || row.interrupted)) && (
            <Button small icon="retry" name="retry-all" onClick={onRetry}>{t("list.retry_all")}</Button>
          )}
        </div>
        <label className="search">
          <Icon name="search" />
          <input data-search type="search" value={typed} placeholder={t("list.search")} aria-label={t("list.search")}
            onChange={(event) => setTyped(event.target.value)} />
          <kbd aria-hidden="true">/</kbd>
        </label>
      </div>
      <div className="filters" role="group" aria-label={t("list.filter")}>
        {FILTERS.map((name) => (
          <button key={name} type="button" className="filter" aria-pressed={status === name} onClick={() => setStatus(name)}>
            {name === "" ? t("list.all") : word("status", name)}
          </button>
        ))}
      </div>
      {list.problem && <p className="notice bad" role="alert">{list.problem.message || t("problem.unreachable")} {list.problem.hint}</p>}
      {list.rows.length === 0 && !list.loading && !list.problem && (
        q || status
          ? <Empty title={t("list.nothing")} text={t("list.nothing_text")} />
          : <Empty title={t("list.empty")} text={t("list.empty_text")}>
            <pre className="snippet">rerail run plan.yaml --tools tools.py</pre>
            {onStart && <Button kind="primary" icon="plus" onClick={onStart}>{t("start.open")}</Button>}
          </Empty>
      )}
      <ul className="run-list" ref={rows} aria-label={t("list.title")} aria-busy={list.loading}>
        {list.rows.map((row, index) => <Row key={row.run_id} row={row} now={now} onFocus={() => setChosen(index)} />)}
      </ul>
      {list.next && <div className="more"><Button onClick={() => void store.load({ status, q }, true)} disabled={list.loading}>{t("list.more")}</Button></div>}
    </main>
  );
}

function Row({ row, now, onFocus }: { row: RunRow; now: number; onFocus: () => void }): ReactNode {
  const status = row.interrupted && row.status === "running" ? "interrupted" : row.status;
  const over = row.status === "completed" || row.status === "failed" || row.status === "cancelled";
  return (
    <li>
      <a className="run-row" href={address({ page: "run", run: row.run_id, tab: "graph", step: null })} onFocus={onFocus} data-run={row.run_id}>
        <StatusChip status={status} />
        <span className="run-what">
          <span className="run-objective">{row.objective || t("run.no_objective")}</span>
          <span className="run-facts">
            <code>{shortId(row.run_id)}</code>
            {row.degraded && <Tag tone="warn">{t("run.degraded")}</Tag>}
            {row.failed_stage && <Tag tone="bad">{t("run.failed_in", { stage: row.failed_stage })}</Tag>}
            {row.parent && <Tag>{t("run.follows", { run: shortId(row.parent) })}</Tag>}
          </span>
        </span>
        <span className="run-progress">{row.counts && <Progress counts={row.counts} />}</span>
        <span className="run-times">
          <span>{ago(row.created_at, now)}</span>
          <span className="muted">{over ? duration(row.updated_at - row.created_at) : t("list.events", { n: row.events })}</span>
        </span>
      </a>
    </li>
  );
}
