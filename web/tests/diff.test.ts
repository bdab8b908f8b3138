import { describe, expect, it } from "vitest";
import { changesOf, diffLines, diffRevisions, inOrder, inPairs } from "../src/lib/diff";

const drawn = (left: string, right: string): string =>
  diffLines(left.split(""), right.split("")).map((line) => ({ same: " ", gone: "-", new: "+" })[line.kind] + line.text).join("");

describe("lines that differ", () => {
  it("keep what both have", () => {
    expect(drawn("abc", "abc")).toBe(" a b c");
    expect(drawn("abc", "axc")).toBe(" a-b+x c");
    expect(drawn("", "ab")).toBe("+a+b");
    expect(drawn("abcd", "bd")).toBe("-a b-c d");
  });

  it("give back both sides whole", () => {
    const [left, right] = ["the quick brown fox", "a quick red fox jumps"];
    const lines = diffLines(left.split(" "), right.split(" "));
    expect(lines.filter((line) => line.kind !== "new").map((line) => line.text).join(" ")).toBe(left);
    expect(lines.filter((line) => line.kind !== "gone").map((line) => line.text).join(" ")).toBe(right);
  });

  it("survive texts that are too long to compare cell by cell", () => {
    const long = (mark: string): string[] => ["same", ...Array.from({ length: 3000 }, (_, i) => mark + i), "end"];
    const lines = diffLines(long("a"), long("b"));
    expect(lines).toHaveLength(6002);
    expect(lines[0]).toEqual({ kind: "same", text: "same" });
  });
});

describe("lines side by side", () => {
  it("stand beside what came in their place", () => {
    const rows = inPairs(diffLines("abcd".split(""), "aXYcd".split("")));
    expect(rows.map(([left, right]) => `${left?.text ?? "-"}${right?.text ?? "-"}`)).toEqual(["aa", "bX", "-Y", "cc", "dd"]);
  });

  it("begin with what a step is", () => {
    expect(Object.keys(inOrder({ args: {}, retries: 1, tool: "t", id: "a" }))).toEqual(["id", "tool", "args", "retries"]);
  });
});

describe("two revisions", () => {
  it("show what was added, dropped and changed, dropped steps where they stood", () => {
    const before = [{ id: "a", tool: "x" }, { id: "b", tool: "x" }, { id: "c", tool: "x" }];
    const after = [{ id: "a", tool: "x" }, { id: "c", tool: "y" }, { id: "d", tool: "x" }];
    const rows = diffRevisions(before, after);
    expect(rows.map((row) => `${row.id} ${row.change} ${row.fields.join()}`)).toEqual(["a same ", "b dropped ", "c changed tool", "d added "]);
  });

  it("in another order lose nothing", () => {
    const rows = diffRevisions([{ id: "a" }, { id: "b" }, { id: "gone" }], [{ id: "b" }, { id: "a" }]);
    expect(rows.map((row) => row.id).sort()).toEqual(["a", "b", "gone"]);
  });
});

describe("what makes one call of another", () => {
  const before = { tool: "pay", args: { amount: 7, to: { name: "ann" }, note: null } };
  it("names what changed, and what is gone", () => {
    expect(changesOf(before, before)).toEqual({});
    expect(changesOf(before, { tool: "pay", args: { amount: 7, to: { name: "bob" }, note: null } })).toEqual({ args: { to: { name: "bob" } } });
    expect(changesOf(before, { tool: "pay", args: { amount: 7, to: { name: "ann" } } })).toEqual({ remove: ["note"] });
    expect(changesOf(before, { tool: "pay", args: { amount: 8, more: 1 } })).toEqual({ args: { amount: 8, more: 1 }, remove: ["to", "note"] });
  });
  it("gives another tool all that it gets", () => {
    expect(changesOf(before, { tool: "send", args: { amount: 7 } })).toEqual({ tool: "send", args: { amount: 7 } });
  });
});
