import { describe, expect, it } from "vitest";
import { asBytes, takeToken } from "../src/lib/api";
import { fill } from "../src/lib/i18n";
import { address, parse } from "../src/lib/route";
import { type Connection, follow, SseParser } from "../src/lib/sse";

describe("the parser of server-sent events", () => {
  it("takes pieces of any size", () => {
    const text = ": hello\n\nid: 7\nevent: patch\ndata: {\"a\":\ndata: 1}\n\ndata: plain\r\n\r\n";
    for (const size of [1, 3, 1000]) {
      const parser = new SseParser();
      const found = [];
      for (let i = 0; i < text.length; i += size) found.push(...parser.push(text.slice(i, i + size)));
      expect(found).toEqual([{ event: "patch", id: "7", data: '{"a":\n1}' }, { event: "message", id: "7", data: "plain" }]);
    }
  });
});

const answer = (text: string, status = 200): Response => new Response(text, { status });

describe("a followed stream", () => {
  it("comes back after a break and after a refused connection, and tells its state", async () => {
    const answers = [() => answer("event: a\ndata: 1\n\n"), () => { throw new TypeError("refused"); }, () => answer("", 503), () => answer("event: a\ndata: 2\n\n")];
    const states: Connection[] = [];
    const seen: string[] = [];
    await new Promise<void>((resolve) => {
      const stop = follow({
        open: async () => answers.shift()!(),
        onMessage: (message) => {
          seen.push(message.data);
          if (seen.length === 2) {
            stop();
            resolve();
          }
        },
        onState: (state) => states.push(state),
      });
    });
    expect(seen).toEqual(["1", "2"]);
    expect(states).toEqual(["connecting", "live", "lost", "lost", "lost", "live"]);
  });

  it("gives up when it is refused for good", async () => {
    const states: Connection[] = [];
    const status = await new Promise<number>((resolve) => {
      follow({ open: async () => answer("", 404), onMessage: () => undefined, onState: (state) => states.push(state), onRefused: (response) => resolve(response.status) });
    });
    expect(status).toBe(404);
    expect(states).toEqual(["connecting", "refused"]);
  });
});

describe("addresses", () => {
  it("lead back to where they came from, whatever a step is called", () => {
    const route = { page: "run", run: "a/b #1", tab: "steps", step: "<img src=x> & ?#/%" } as const;
    expect(parse(address(route))).toEqual(route);
    expect(parse("#/runs/r")).toEqual({ page: "run", run: "r", tab: "graph", step: null });
    expect(parse("#/runs/%E0%A4%A")).toMatchObject({ page: "run" });
    expect(parse("")).toEqual({ page: "list" });
  });

  it("give up their token", () => {
    expect(takeToken("#token=s3cret%2Fx")).toBe("s3cret/x");
    expect(takeToken("#/runs/r/steps?step=token")).toBeNull();
    expect(takeToken("")).toBeNull();
  });

  it("and tokens of any letters fit into a header", () => {
    expect(asBytes("aä")).toBe("a\u00c3\u00a4");
    expect(() => new Headers({ Authorization: asBytes("令牌") })).not.toThrow();
  });
});

describe("texts with gaps", () => {
  it("are filled, and choose by number", () => {
    expect(fill("{n} {n|step|steps} of {who}", { n: 1, who: "a" })).toBe("1 step of a");
    expect(fill("{n} {n|step|steps} of {who}", { n: 2, who: "{n}" })).toBe("2 steps of {n}");
    expect(fill("{missing}", {})).toBe("{missing}");
  });
});
