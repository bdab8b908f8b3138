// What changed between two values, in lines: pretty JSON against pretty JSON, by the longest common subsequence.
import type { Json } from "./types";

export interface DiffLine {
  kind: "same" | "gone" | "new";
  text: string;
}

/** Arguments as they were typed: an object, or nothing if they are none. */
export function argsOf(typed: string): Args | undefined {
  try {
    const found = JSON.parse(typed || "{}") as Json;
    return found !== null && typeof found === "object" && !Array.isArray(found) ? found : undefined;
  } catch {
    return undefined;
  }
}

const MOST_CELLS = 4_000_000; // beyond this, the common start and end are kept and the middle is replaced as a whole

export function diffLines(left: readonly string[], right: readonly string[]): DiffLine[] {
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left[left.length - 1 - end] === right[right.length - 1 - end]) end++;
  const same = (text: string): DiffLine => ({ kind: "same", text });
  const middle = changed(left.slice(start, left.length - end), right.slice(start, right.length - end));
  return [...left.slice(0, start).map(same), ...middle, ...left.slice(left.length - end).map(same)];
}

function changed(left: readonly string[], right: readonly string[]): DiffLine[] {
  const gone = (text: string): DiffLine => ({ kind: "gone", text });
  const fresh = (text: string): DiffLine => ({ kind: "new", text });
  if (left.length * right.length > MOST_CELLS) return [...left.map(gone), ...right.map(fresh)];
  const width = right.length + 1;
  const common = new Uint32Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      common[i * width + j] =
        left[i] === right[j]
          ? common[(i + 1) * width + j + 1]! + 1
          : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
    }
  }
  const out: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < left.length && j < right.length) {
    if (left[i] === right[j]) {
      out.push({ kind: "same", text: left[i]! });
      i++;
      j++;
    } else if (common[(i + 1) * width + j]! >= common[i * width + j + 1]!) out.push(gone(left[i++]!));
    else out.push(fresh(right[j++]!));
  }
  return [...out, ...left.slice(i).map(gone), ...right.slice(j).map(fresh)];
}

/** The same, side by side: what went and what came in its place stand in one row. */
export function inPairs(lines: readonly DiffLine[]): [DiffLine | null, DiffLine | null][] {
  const rows: [DiffLine | null, DiffLine | null][] = [];
  let gone: DiffLine[] = [];
  let fresh: DiffLine[] = [];
  const flush = (): void => {
    for (let i = 0; i < Math.max(gone.length, fresh.length); i++) rows.push([gone[i] ?? null, fresh[i] ?? null]);
    gone = [];
    fresh = [];
  };
  for (const line of lines) {
    if (line.kind === "gone") gone.push(line);
    else if (line.kind === "new") fresh.push(line);
    else {
      flush();
      rows.push([line, line]);
    }
  }
  flush();
  return rows;
}

const FIRST = ["id", "title", "stage", "tool", "args", "needs"];

/** A step as people would write it: what it is first, then what it does, then the rest. */
export function inOrder<T extends object>(step: T): T {
  const rank = (name: string): number => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return Object.fromEntries(Object.entries(step).sort(([a], [b]) => rank(a) - rank(b))) as T;
}

export type StepChange = "added" | "dropped" | "changed" | "same";

export interface RevisionRow<T> {
  id: string;
  change: StepChange;
  before: T | null;
  after: T | null;
  fields: string[]; // names of what differs
}

/** Two revisions of a plan, step beside step: in the order of the later one, dropped steps where they used to stand. */
export function diffRevisions<T extends { id: string }>(before: readonly T[], after: readonly T[]): RevisionRow<T>[] {
  const old = new Map(before.map((step) => [step.id, step]));
  const fresh = new Set(after.map((step) => step.id));
  const rows: RevisionRow<T>[] = [];
  const dropped = (step: T): void => void rows.push({ id: step.id, change: "dropped", before: step, after: null, fields: [] });
  let next = 0;
  for (const step of after) {
    const was = old.get(step.id) ?? null;
    if (was) {
      while (next < before.length && !fresh.has(before[next]!.id)) dropped(before[next++]!);
      if (before[next]?.id === step.id) next++;
    }
    const fields = was ? fieldsThatDiffer(was, step) : [];
    rows.push({ id: step.id, change: was ? (fields.length > 0 ? "changed" : "same") : "added", before: was, after: step, fields });
  }
  const listed = new Set(rows.map((row) => row.id));
  before.filter((step) => !listed.has(step.id)).forEach(dropped);
  return rows;
}

function fieldsThatDiffer(before: object, after: object): string[] {
  const [a, b] = [before as Record<string, unknown>, after as Record<string, unknown>];
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].filter((name) => JSON.stringify(a[name]) !== JSON.stringify(b[name]));
}

export const pretty = (value: unknown): string => (value === undefined ? "" : JSON.stringify(value, null, 2));

export type Call = { tool: string; args: Args };
export type Args = { [name: string]: Json };

/** What makes one call of another: arguments that are gone are named, since those that nobody names stay as they were. */
export function changesOf(before: Call, after: Call): { tool?: string; args?: Args; remove?: string[] } {
  const { tool, args } = after;
  if (tool !== before.tool) return { tool, args }; // another tool gets these and no others
  const changed = Object.entries(args).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before.args[name]));
  const remove = Object.keys(before.args).filter((name) => !(name in args));
  return { ...(changed.length > 0 ? { args: Object.fromEntries(changed) } : {}), ...(remove.length > 0 ? { remove } : {}) };
}
