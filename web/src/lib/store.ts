// What is known of runs, outside React: components subscribe to the piece they show, so a patch that changes one step
// draws one node again and leaves two thousand alone.
import { useCallback, useSyncExternalStore } from "react";
import { at, get, listen, type Problem } from "./api";
import { patched, renewed, shapeKey } from "./patch";
import type { Connection } from "./sse";
import type { RunPatch, RunRow, RunView, StepView } from "./types";

class Cell {
  private listeners = new Set<() => void>();
  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
  protected tell(): void {
    for (const listener of Array.from(this.listeners)) listener();
  }
}

/** One run: its view, the state of the line, and why there is none. */
export class RunStore extends Cell {
  run: RunView | null = null;
  connection: Connection = "connecting";
  problem: Problem | null = null;
  shape = ""; // changes when the graph has to be laid out again
  skew = 0; // seconds by which the server's clock is ahead of this one
  private stop: (() => void) | null = null;

  constructor(readonly id: string) {
    super();
  }

  open(): () => void {
    this.stop = listen(
      () => at("runs", this.id, "live"),
      (message) => {
        if (message.event === "snapshot") this.take(JSON.parse(message.data) as RunView);
        else if (message.event === "patch") this.patch(JSON.parse(message.data) as RunPatch);
      },
      (state) => {
        this.connection = state;
        this.tell();
      },
      (problem) => {
        this.problem = problem;
        this.tell();
      },
    );
    return () => this.stop?.();
  }

  take(fresh: RunView): void {
    this.run = renewed(this.run, fresh);
    this.problem = null;
    this.shape = shapeKey(this.run);
    if (fresh.at) this.skew = fresh.at - Date.now() / 1000;
    this.tell();
  }

  patch(patch: RunPatch): void {
    if (!this.run) return;
    this.run = patched(this.run, patch);
    if (patch.order || (patch.steps && Object.keys(patch.steps).length > 0)) this.shape = shapeKey(this.run);
    this.tell();
  }

  now(): number {
    return Date.now() / 1000 + this.skew;
  }
}

export function useRun(store: RunStore): RunView | null {
  return useSyncExternalStore(store.subscribe, () => store.run);
}

export function useStep(store: RunStore, id: string): StepView | undefined {
  return useSyncExternalStore(store.subscribe, () => store.run?.steps[id]);
}

export function usePart<T extends string | number | boolean | object | null>(store: RunStore, part: (store: RunStore) => T): T {
  return useSyncExternalStore(store.subscribe, useCallback(() => part(store), [store, part]));
}

export interface ListFilter {
  status: string;
  q: string;
}

/** The list of runs: pages of it, and the rows that change while it is looked at. */
export class ListStore extends Cell {
  rows: RunRow[] = [];
  next: string | null = null;
  loading = true;
  problem: Problem | null = null;
  connection: Connection = "connecting";
  version = 0;
  private filter: ListFilter = { status: "", q: "" };
  private known = new Map<string, RunRow>();
  private asked = 0;

  open(): () => void {
    return listen(
      () => "/stream",
      (message) => {
        if (message.event === "run") this.put(JSON.parse(message.data) as RunRow);
        else if (message.event === "gone") this.drop((JSON.parse(message.data) as { run_id: string }).run_id);
      },
      (state) => {
        // Back after a break: what changed meanwhile, further down than the stream tells, is asked for.
        if (state === "live" && this.connection === "lost") void this.load(this.filter);
        this.connection = state;
        this.changed();
      },
      (problem) => {
        this.problem = problem;
        this.changed();
      },
    );
  }

  async load(filter: ListFilter, more = false): Promise<void> {
    const asked = ++this.asked;
    this.filter = filter;
    this.loading = true;
    this.changed();
    try {
      const page = await get<{ runs: RunRow[]; next: string | null }>("/runs", {
        ...filter, limit: 50, cursor: more ? (this.next ?? undefined) : undefined,
      });
      if (asked !== this.asked) return;
      if (!more) this.known.clear();
      for (const row of page.runs) this.known.set(row.run_id, row);
      this.next = page.next;
      this.problem = null;
    } catch (error) {
      if (asked !== this.asked) return;
      this.problem = error as Problem;
    }
    this.loading = false;
    this.sort();
  }

  private put(row: RunRow): void {
    if (fits(row, this.filter)) this.known.set(row.run_id, { ...this.known.get(row.run_id), ...row });
    else this.known.delete(row.run_id);
    this.sort();
  }

  private drop(run: string): void {
    this.known.delete(run);
    this.sort();
  }

  private sort(): void {
    this.rows = [...this.known.values()].sort((a, b) => b.created_at - a.created_at || b.run_id.localeCompare(a.run_id));
    this.changed();
  }

  private changed(): void {
    this.version++;
    this.tell();
  }
}

/** Whether a row that came over the stream belongs into the list that is shown. */
export function fits(row: RunRow, filter: ListFilter): boolean {
  const status = row.interrupted && row.status === "running" ? "interrupted" : row.status; // as the server does it
  if (filter.status && status !== filter.status) return false;
  const words = filter.q.trim().toLowerCase();
  return !words || row.objective.toLowerCase().includes(words) || row.run_id.toLowerCase().includes(words);
}

export function useList(store: ListStore): ListStore {
  useSyncExternalStore(store.subscribe, () => store.version);
  return store;
}
