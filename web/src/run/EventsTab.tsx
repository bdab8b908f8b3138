// The history itself: every event of the run, as it is written.
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { at, get, listen } from "../lib/api";
import { useScope } from "../lib/context";
import { clock } from "../lib/format";
import { reveal, useRows } from "../lib/hooks";
import { t, word } from "../lib/i18n";
import { useKeys } from "../lib/keys";
import { bad } from "../lib/toasts";
import type { EventRecord } from "../lib/types";
import { Button, Empty, Value } from "../parts/basics";
import { Icon } from "../parts/icons";

const ROW = 30;

/** All events so far, and those to come: by pages first, then from the stream, each once. */
function useEvents(run: string): { events: EventRecord[]; loading: boolean } {
  const kept = useRef<EventRecord[]>([]);
  const [state, setState] = useState({ count: 0, loading: true });
  useEffect(() => {
    let gone = false;
    let stop = (): void => undefined;
    let frame = 0;
    const show = (loading: boolean): void => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => setState({ count: kept.current.length, loading }));
    };
    const lastSeq = (): number => kept.current[kept.current.length - 1]?.seq ?? 0;
    const take = (record: EventRecord): void => {
      if (record.seq > lastSeq()) kept.current.push(record);
    };
    const load = async (): Promise<void> => {
      for (let after: number | null = 0; after !== null && !gone; ) {
        const page: { events: EventRecord[]; next: number | null } = await get(at("runs", run, "events"), { after, limit: 1000, words: "true" });
        page.events.forEach(take);
        after = page.next;
        if (!gone) show(true);
      }
      if (gone) return;
      show(false);
      stop = listen(
        () => `${at("runs", run, "stream")}?words=true&after=${lastSeq()}`,
        (message) => {
          if (!message.data || message.event === "dropped" || message.event === "gone" || message.event === "heartbeat") return;
          const record = JSON.parse(message.data) as EventRecord;
          if (typeof record.seq === "number") take(record);
          show(false);
        },
        () => undefined,
      );
    };
    load().catch((error: unknown) => { bad(error); show(false); });
    return () => {
      gone = true;
      cancelAnimationFrame(frame);
      stop();
    };
  }, [run]);
  return { events: kept.current, loading: state.loading };
}

export function EventsTab(): ReactNode {
  const { store, selected, select } = useScope();
  const { events, loading } = useEvents(store.id);
  const [typed, setTyped] = useState("");
  const [type, setType] = useState("");
  const [mine, setMine] = useState(false);
  const [chosen, setChosen] = useState<number | null>(null);
  const [tail, setTail] = useState(true);
  const box = useRef<HTMLDivElement>(null);
  const types = useMemo(() => [...new Set(events.map((event) => event.type))].sort(), [events.length]);
  const rows = useMemo(() => {
    const words = typed.trim().toLowerCase();
    return events.filter((event) =>
      (!type || event.type === type) && (!mine || selected === null || event.step === selected) &&
      (!words || JSON.stringify(event).toLowerCase().includes(words)));
  }, [events.length, typed, type, mine, selected]);
  const { first, last } = useRows(box, rows.length, ROW);
  useEffect(() => {
    if (tail && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [rows.length, tail]);
  const move = (by: number): void => {
    const from = rows.findIndex((event) => event.seq === chosen);
    const next = Math.max(0, Math.min(rows.length - 1, from + by));
    const row = rows[next];
    if (!row) return;
    setTail(false);
    setChosen(row.seq);
    reveal(box.current, next, ROW);
  };
  useKeys({ j: () => move(1), k: () => move(-1), ...(chosen === null ? {} : { Escape: () => setChosen(null) }) });
  const record = chosen === null ? undefined : events.find((event) => event.seq === chosen);
  return (
    <div className="events">
      <div className="view-tools">
        <label className="search small">
          <Icon name="search" size={14} />
          <input data-search type="search" value={typed} placeholder={t("events.search")} aria-label={t("events.search")} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <select aria-label={t("events.filter")} value={type} onChange={(event) => setType(event.target.value)}>
          <option value="">{t("events.all", { n: events.length })}</option>
          {types.map((name) => <option key={name} value={name}>{word("event", name)}</option>)}
        </select>
        {selected !== null && <Button small pressed={mine} onClick={() => setMine(!mine)}>{t("events.only_step")}</Button>}
        <Button small pressed={tail} onClick={() => setTail(!tail)}>{t("events.tail")}</Button>
        {loading && <span className="muted" role="status">{t("common.loading")}</span>}
      </div>
      <div className={record ? "events-split" : "events-split single"}>
        <div className="events-box" ref={box} tabIndex={0} role="region" aria-label={t("tab.events")}
          onWheel={(event) => { if (event.deltaY < 0) setTail(false); }}>
          {rows.length === 0 && !loading && <Empty title={t("events.nothing")} />}
          <ol className="event-rows" style={{ height: rows.length * ROW, paddingTop: first * ROW }}>
            {rows.slice(first, last).map((event) => (
              <li key={event.seq}>
                <button type="button" className={`event-row ${toneOf(event)} ${chosen === event.seq ? "chosen" : ""}`} style={{ height: ROW }}
                  onClick={() => setChosen(chosen === event.seq ? null : event.seq)} data-seq={event.seq} data-type={event.type}>
                  <span className="num muted">{event.seq}</span>
                  <span className="event-at">{clock(event.at)}</span>
                  <span className="event-type">{word("event", event.type)}</span>
                  <code className="event-step">{event.step ?? ""}</code>
                  <span className="event-brief">{briefOf(event)}</span>
                </button>
              </li>
            ))}
          </ol>
        </div>
        {record && (
          <aside className="event-detail" aria-label={t("events.detail", { seq: record.seq })}>
            <header>
              <h2>{word("event", record.type)} <span className="muted">#{record.seq}</span></h2>
              {record.step !== undefined && record.step !== "" && <Button small onClick={() => select(record.step ?? null)}>{t("events.open_step")}</Button>}
              <Button kind="quiet" small icon="close" label={t("common.close")} onClick={() => setChosen(null)} />
            </header>
            {record.words && <p className="event-words">{record.words}</p>}
            <Value value={plain(record)} name={`event-${record.seq}`} />
          </aside>
        )}
      </div>
    </div>
  );
}

const BAD = new Set(["step_failed", "plan_rejected", "artifact_lost", "stopped"]);
const WELL = new Set(["step_succeeded", "done", "step_verified"]);

function toneOf(event: EventRecord): string {
  return BAD.has(event.type) ? "bad" : WELL.has(event.type) ? "good" : "";
}

/** The event as it is written: what it says in words is not part of it. */
function plain(event: EventRecord): Record<string, unknown> {
  return Object.fromEntries(Object.entries(event).filter(([name]) => name !== "words"));
}

/** What is worth knowing of an event at a glance. */
export function briefOf(event: EventRecord): string {
  if (event.words) return event.words;
  const error = event["error"] as { code?: string; message?: string } | undefined;
  if (error?.message) return `${error.code ?? ""} ${error.message}`.trim();
  const parts: string[] = [];
  if (typeof event["rung"] === "string") parts.push(word("rung", event["rung"]));
  for (const name of ["status", "tool", "action", "outcome", "message", "reason", "summary", "name", "objective"]) {
    const value = event[name];
    if (typeof value === "string" && value) parts.push(value);
  }
  if (typeof event["attempt"] === "number" && event["attempt"] > 1) parts.push(t("step.attempt", { n: event["attempt"] }));
  return parts.join(" · ");
}
