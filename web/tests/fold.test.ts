import { describe, expect, it } from "vitest";
import { edgesOf, fold, FOLD_ABOVE, gravest, groupsOf } from "../src/lib/fold";
import { layersOf } from "../src/lib/layout";
import type { StepView } from "../src/lib/types";

function step(id: string, needs: string[] = [], more: Partial<StepView> = {}): StepView {
  return {
    id, title: "", tool: "t", stage: "", status: "pending", code: null, needs, attempts: 0, error: null,
    started_at: null, ended_at: null, elapsed: 0, ...more,
  };
}

const many = (count: number, make: (i: number) => StepView): StepView[] => Array.from({ length: count }, (_, i) => make(i));

function acyclic(nodes: string[], edges: { from: string; to: string }[]): boolean {
  const layers = layersOf(nodes, edges);
  return edges.every(({ from, to }) => layers.get(from)! < layers.get(to)!);
}

describe("groups", () => {
  it("are not made for a plan that can be drawn as it is", () => {
    expect(groupsOf(many(FOLD_ABOVE, (i) => step(`s${i}`)))).toEqual([]);
  });

  it("follow the stages of a big plan", () => {
    const steps = many(600, (i) => step(`s${i}`, i >= 300 ? [`s${i - 300}`] : [], { stage: i < 300 ? "read" : "write" }));
    const groups = groupsOf(steps);
    expect(groups.map((group) => [group.kind, group.label, group.members.length])).toEqual([["stage", "read", 300], ["stage", "write", 300]]);
    const folded = fold(steps, groups, new Set());
    expect(folded.nodes).toHaveLength(2);
    expect(folded.edges).toHaveLength(1);
  });

  it("do not follow stages that would close a cycle", () => {
    const steps = many(600, (i) => step(`s${i}`, i > 0 ? [`s${i - 1}`] : [], { stage: i % 2 ? "odd" : "even" }));
    const groups = groupsOf(steps);
    expect(groups[0]!.kind).not.toBe("stage");
    const folded = fold(steps, groups, new Set());
    expect(acyclic(folded.nodes, folded.edges)).toBe(true);
    expect(folded.nodes.length).toBeLessThan(60);
  });

  it("go by layer and tool where there are no stages", () => {
    const steps = many(900, (i) => step(`s${i}`, i >= 450 ? [`s${i - 450}`] : [], { tool: i % 3 ? "a" : "b" }));
    const groups = groupsOf(steps);
    expect(groups).toHaveLength(4);
    expect(groups.every((group) => group.kind === "tool")).toBe(true);
  });

  it("tell kinds of one tool apart by what their steps are called", () => {
    const steps = many(600, (i) => step(`s${i}`, [], { title: i % 2 ? `Fetch page ${i}` : `Save row ${i}` }));
    expect(groupsOf(steps).map((group) => [group.label, group.members.length])).toEqual([["Save row #", 300], ["Fetch page #", 300]]);
  });

  it("open one at a time and lose no step and no need", () => {
    const steps = many(900, (i) => step(`s${i}`, i >= 450 ? [`s${i - 450}`] : []));
    const groups = groupsOf(steps);
    const folded = fold(steps, groups, new Set([groups[0]!.id]));
    expect(folded.nodes).toHaveLength(451);
    expect(folded.edges).toHaveLength(450);
    expect(new Set(steps.map((one) => folded.home.get(one.id))).size).toBe(451);
    expect(acyclic(folded.nodes, folded.edges)).toBe(true);
  });

  it("show the worst that is true of one of their steps", () => {
    expect(gravest(["succeeded", "failed", "running"])).toBe("failed");
    expect(gravest(["succeeded", "degraded"])).toBe("degraded");
    expect(gravest(["failed", "in_doubt"])).toBe("in_doubt");
  });
});

describe("edges", () => {
  it("leave out needs of steps that are not there, and doubled ones", () => {
    expect(edgesOf([step("a"), step("b", ["a", "gone"], { soft: ["a"] })])).toEqual([{ from: "a", to: "b" }]);
  });
});
