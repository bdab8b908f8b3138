import { describe, expect, it } from "vitest";
import { patched, renewed, same, shapeKey, stepsOf } from "../src/lib/patch";
import { fits } from "../src/lib/store";
import type { RunRow, RunView, StepView } from "../src/lib/types";

const step = (id: string, more: Partial<StepView> = {}): StepView => ({
  id, title: "", tool: "t", stage: "", status: "pending", code: null, needs: [], attempts: 0, error: null,
  started_at: null, ended_at: null, elapsed: 0, ...more,
});

function run(...steps: StepView[]): RunView {
  const base = {
    run_id: "r", objective: "", status: "running", success: false, complete: false, degraded: false, round: 0, retries: 0,
    revision: 1, seq: 5, created_at: 0, ended_at: null, elapsed: 0, counts: {}, summary: "", failed_steps: [],
    consequences: [], disputed: [], waiting_on: [], never_started: [], budgets: [], actions: [], critical: [],
  };
  return renewed(null, { ...base, steps: Object.fromEntries(steps.map((one) => [one.id, one])) } as unknown as RunView);
}

describe("a patch", () => {
  it("changes what it names and keeps every other step as the object it was", () => {
    const before = run(step("a"), step("b"));
    const after = patched(before, { seq: 6, run: { status: "failed" }, steps: { b: step("b", { status: "failed" }) } });
    expect(after.status).toBe("failed");
    expect(after.seq).toBe(6);
    expect(after.steps["b"]!.status).toBe("failed");
    expect(after.steps["a"]).toBe(before.steps["a"]);
  });

  it("that is older than what is known changes nothing", () => {
    const before = run(step("a"));
    expect(patched(before, { seq: 4, steps: { a: step("a", { status: "failed" }) } })).toBe(before);
  });

  it("with an order adds, drops and sorts steps", () => {
    const after = patched(run(step("a"), step("b")), { seq: 6, steps: { c: step("c") }, order: ["c", "a"] });
    expect(Object.keys(after.steps)).toEqual(["c", "a"]);
  });

  it("takes a step of any name as a step", () => {
    const strange = JSON.parse('{"__proto__": {"id": "__proto__", "status": "failed"}}') as Record<string, StepView>;
    const after = patched(run(step("a")), { seq: 6, steps: strange });
    expect(Object.keys(after.steps)).toEqual(["a", "__proto__"]);
    expect(after.steps["constructor"]).toBeUndefined();
    expect(after.steps["status"]).toBeUndefined();
  });
});

describe("a new snapshot", () => {
  it("keeps the steps that are the same", () => {
    const before = run(step("a"), step("b"));
    const after = renewed(before, { ...before, seq: 9, steps: { a: step("a"), b: step("b", { attempts: 2 }) } });
    expect(after.seq).toBe(9);
    expect(after.steps["a"]).toBe(before.steps["a"]);
    expect(after.steps["b"]!.attempts).toBe(2);
  });
});

describe("the shape of a run", () => {
  it("changes with needs, and not with a status", () => {
    const plain = run(step("a"), step("b"));
    expect(shapeKey(run(step("a", { status: "failed" }), step("b")))).toBe(shapeKey(plain));
    expect(shapeKey(run(step("a"), step("b", { needs: ["a"] })))).not.toBe(shapeKey(plain));
  });
});

describe("equality of values", () => {
  it("goes to the bottom", () => {
    expect(same({ a: [1, { b: null }] }, { a: [1, { b: null }] })).toBe(true);
    expect(same({ a: 1 }, { a: 1, b: undefined })).toBe(false);
    expect(same([1], { 0: 1 })).toBe(false);
    expect(same(null, {})).toBe(false);
  });
});

describe("a row of the list", () => {
  const row = { run_id: "abc123", status: "failed", objective: "Bake Bread", interrupted: false } as RunRow;
  it("is shown when it fits the filter", () => {
    expect(fits(row, { status: "failed", q: "bread" })).toBe(true);
    expect(fits(row, { status: "", q: "C12" })).toBe(true);
    expect(fits(row, { status: "running", q: "" })).toBe(false);
    const left = { ...row, status: "running" as const, interrupted: true };
    expect(fits(left, { status: "running", q: "" })).toBe(false);
    expect(fits(left, { status: "interrupted", q: "" })).toBe(true);
    expect(fits(row, { status: "", q: "cake" })).toBe(false);
  });
});

describe("the steps", () => {
  it("come in the plan's order, also where ids are whole numbers", () => {
    const fresh = { ...run(step("b"), step("10"), step("2")), order: ["b", "10", "2"] };
    expect(stepsOf(fresh).map((one) => one.id)).toEqual(["b", "10", "2"]);
    const after = patched(fresh, { seq: 6, steps: { 1: step("1") }, order: ["b", "10", "1"] });
    expect(stepsOf(after).map((one) => one.id)).toEqual(["b", "10", "1"]);
    expect(stepsOf(null)).toEqual([]);
  });
});
