import { describe, expect, it } from "vitest";
import { edgeKey, layered, layersOf, spread } from "../src/lib/layout";

const sizes = { along: 300, across: 70 };
const edge = (from: string, to: string) => ({ from, to });

describe("layers", () => {
  it("puts every step behind the deepest step it needs", () => {
    const layers = layersOf(["a", "b", "c", "d"], [edge("a", "b"), edge("b", "d"), edge("a", "c"), edge("c", "d"), edge("a", "d")]);
    expect([...layers]).toEqual(expect.arrayContaining([["a", 0], ["b", 1], ["c", 1], ["d", 2]]));
  });

  it("survives a cycle and an edge to nowhere", () => {
    const layers = layersOf(["a", "b", "c"], [edge("a", "b"), edge("b", "a"), edge("x", "c")]);
    expect(layers.size).toBe(3);
  });
});

describe("spread", () => {
  it("leaves places alone that are far enough apart", () => {
    expect(spread([0, 100, 250], [0, 50, 100])).toEqual([0, 100, 250]);
  });

  it("keeps the order and the distance, and the middle where it was wanted", () => {
    const placed = spread([10, 10, 10], [0, 20, 40]);
    expect(placed).toEqual([-10, 10, 30]);
  });
});

describe("a layout", () => {
  it("draws needs from left to right and lets nothing overlap", () => {
    const ids = ["a", "b", "c", "d", "e"];
    const edges = [edge("a", "b"), edge("a", "c"), edge("a", "d"), edge("b", "e"), edge("c", "e"), edge("d", "e")];
    const { places } = layered(ids, edges, sizes);
    for (const { from, to } of edges) expect(places.get(from)!.x).toBeLessThan(places.get(to)!.x);
    const column = ["b", "c", "d"].map((id) => places.get(id)!.y).sort((a, b) => a - b);
    expect(column[1]! - column[0]!).toBeGreaterThanOrEqual(sizes.across - 1e-6);
    expect(column[2]! - column[1]!).toBeGreaterThanOrEqual(sizes.across - 1e-6);
    expect(places.get("a")!.y).toBeCloseTo(places.get("c")!.y);
  });

  it("leads a long edge past the steps between", () => {
    const { places, routes } = layered(["a", "b", "c"], [edge("a", "b"), edge("b", "c"), edge("a", "c")], sizes);
    const way = routes.get(edgeKey("a", "c"))!;
    expect(way).toHaveLength(1);
    expect(way[0]!.x).toBe(places.get("b")!.x);
    expect(Math.abs(way[0]!.y - places.get("b")!.y)).toBeGreaterThanOrEqual(sizes.across * 0.6);
  });

  it("has fewer crossings than the order of the plan", () => {
    const ids = ["a", "b", "x", "y"];
    const { places } = layered(ids, [edge("a", "y"), edge("b", "x")], sizes);
    const crossed = (places.get("a")!.y - places.get("b")!.y) * (places.get("y")!.y - places.get("x")!.y) < 0;
    expect(crossed).toBe(false);
  });

  it("takes 2,000 steps and 6,000 needs in well under a second", () => {
    const ids = Array.from({ length: 2000 }, (_, i) => `s${i}`);
    const edges = ids.flatMap((id, i) => [1, 7, 40].filter((back) => i - back >= 0).map((back) => edge(ids[i - back]!, id)));
    const begun = performance.now();
    const { places } = layered(ids, edges, sizes);
    expect(places.size).toBe(2000);
    expect(performance.now() - begun).toBeLessThan(1500);
  });

  it("makes a block of a layer that is too tall, in which nothing overlaps", () => {
    const ids = ["root", ...Array.from({ length: 500 }, (_, i) => `s${i}`), "end"];
    const edges = ids.slice(1, -1).flatMap((id) => [edge("root", id), edge(id, "end")]);
    const { places, width, height } = layered(ids, edges, sizes);
    expect(new Set([...places.values()].map(({ x, y }) => `${Math.round(x)} ${Math.round(y)}`)).size).toBe(502);
    expect(height).toBeLessThan(sizes.across * 60);
    expect(width / height).toBeGreaterThan(0.5);
    for (const { from, to } of edges) expect(places.get(from)!.x).toBeLessThan(places.get(to)!.x);
  });

  it("is nothing for nothing", () => {
    expect(layered([], [], sizes)).toMatchObject({ width: 0, height: 0 });
  });
});
