// The run as the page knows it: a snapshot, and patches over it. Pure, so that it can be tested without a server.
// A step that a patch does not name keeps its identity, which is what lets 2,000 memoised nodes stay as they are.
import type { RunPatch, RunView, StepView } from "./types";

/** A record without inherited members: a step may be called "constructor" or "__proto__". */
function bare(...parts: Record<string, StepView>[]): Record<string, StepView> {
  const out = Object.create(null) as Record<string, StepView>;
  for (const part of parts) for (const [id, step] of Object.entries(part)) out[id] = step;
  return out;
}

/** The run after a patch; the same object when the patch is older than what is known. */
export function patched(run: RunView, patch: RunPatch): RunView {
  if (patch.seq < run.seq) return run;
  const changed = bare(patch.steps ?? {});
  let steps = run.steps;
  if (patch.order) {
    steps = bare();
    for (const id of patch.order) {
      const step = changed[id] ?? run.steps[id];
      if (step) steps[id] = step;
    }
  } else if (Object.keys(changed).length > 0) {
    steps = bare(run.steps, changed);
  }
  return { ...run, ...patch.run, seq: patch.seq, steps, ...(patch.order ? { order: patch.order } : {}) };
}

/** What a new snapshot says, with every step that did not change kept as the object it was. */
export function renewed(old: RunView | null, fresh: RunView): RunView {
  const known = old && old.run_id === fresh.run_id ? old.steps : bare();
  const steps = bare();
  for (const [id, step] of Object.entries(fresh.steps)) {
    const before = known[id];
    steps[id] = before && same(before, step) ? before : step;
  }
  return { ...fresh, steps };
}

/** Whether two JSON values are equal. */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const left = Object.keys(a);
  if (left.length !== Object.keys(b).length) return false;
  return left.every((key) => key in b && same((a as Record<string, unknown>)[key], (b as Record<string, unknown>)[key]));
}

/** The steps in the plan's order. An object would put ids that are whole numbers first, whatever the plan says. */
export function stepsOf(run: RunView | null): StepView[] {
  if (!run) return [];
  return run.order ? run.order.flatMap((id) => run.steps[id] ?? []) : Object.values(run.steps);
}

/** What the drawing of a graph depends on: ids, needs, stages and tools, and nothing that changes while a run goes on. */
export function shapeKey(run: RunView): string {
  return JSON.stringify(stepsOf(run).map((step) => [step.id, step.needs, step.soft ?? [], step.stage, step.tool]));
}
