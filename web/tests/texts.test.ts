import { describe, expect, it } from "vitest";
import { fill, nextLanguage, textOf } from "../src/lib/i18n";
import { en } from "../src/texts/en";
import { zh } from "../src/texts/zh";

const sources = import.meta.glob("../src/**/*.{ts,tsx}", { query: "?raw", import: "default", eager: true }) as Record<string, string>;
const gaps = (text: string): string[] => [...new Set([...text.matchAll(/\{(\w+)/g)].map((found) => found[1]!))].sort();
const used = Object.entries(sources).filter(([path]) => !path.includes("/texts/"));

describe("the texts", () => {
  it("have the same keys in both languages, in the same order", () => {
    expect(Object.keys(zh)).toEqual(Object.keys(en));
  });

  it("have the same gaps in both languages", () => {
    for (const [key, text] of Object.entries(en)) expect([key, gaps(zh[key as keyof typeof en])]).toEqual([key, gaps(text)]);
  });

  it("are in the language they should be in", () => {
    for (const [key, text] of Object.entries(zh)) {
      const plain = text.replace(/\{[^}]*\}/g, "");
      if (/[a-z]{5,}/i.test(plain.replace(/Rerail|RERAIL_TOKEN|server\.token/g, ""))) throw new Error(`${key} is not Chinese: ${text}`);
    }
  });

  it("are all used", () => {
    const code = used.map(([, text]) => text).join("\n");
    const areas = ["status", "unknown", "outcome", "rung", "category", "wait", "verified", "effect", "budget", "action", "connection", "theme", "tab", "plan", "revision", "resolve", "steps", "waiting", "event"];
    const idle = Object.keys(en).filter((key) => !code.includes(`"${key}"`) && !areas.includes(key.split(".")[0]!));
    expect(idle).toEqual([]);
  });

  it("are nowhere else: no words stand between tags, or in what people hear", () => {
    const found: string[] = [];
    for (const [path, text] of used.filter(([path]) => path.endsWith(".tsx"))) {
      for (const [, words] of text.matchAll(/>([^<>{}()=;]*[A-Za-z]{3,}[^<>{}()=;]*)<\//g)) found.push(`${path}: ${words}`);
      for (const [, words] of text.matchAll(/(?:aria-label|title|placeholder|alt|label)="([^"]*[A-Za-z][^"]*)"/g)) found.push(`${path}: ${words}`);
    }
    expect(found.filter((line) => !/Rerail|rerail run/.test(line))).toEqual([]);
  });
});

describe("a gap", () => {
  it("is filled with its value, or with the form of a word that goes with it", () => {
    expect(fill("{n} {n|step|steps}, {gone}", { n: 1 })).toBe("1 step, {gone}");
    expect(fill("{n} {n|step|steps}", { n: 2 })).toBe("2 steps");
  });
});

describe("the languages", () => {
  it("are the files, each offered after the other in its own words", () => {
    expect(nextLanguage()).toBe("zh");
    expect(textOf(nextLanguage(), "nav.language")).toBe("切换到中文");
    expect(textOf("xx", "nav.language")).toBe("Switch to English");
  });
});

describe("the page", () => {
  it("never makes markup or code out of text", () => {
    for (const [path, text] of used) expect([path, /dangerouslySetInnerHTML|innerHTML|insertAdjacentHTML|document\.write|eval\(|new Function/.test(text)]).toEqual([path, false]);
  });

  it("asks no other server for anything", () => {
    for (const [path, text] of used) expect([path, /https?:\/\//.test(text)]).toEqual([path, false]);
  });
});
