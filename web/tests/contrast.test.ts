import { describe, expect, it } from "vitest";
import theme from "../src/styles/theme.css?raw";

type Pair = [string, string];
const colours = new Map<string, Pair>();
for (const [, name, light, dark] of theme.matchAll(/--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g)) colours.set(name!, [light!, dark!]);

function luminance(colour: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

const grounds = ["bg", "surface", "raised", "sunken", "hover"];
const statuses = ["succeeded", "degraded", "running", "waiting", "failed", "in-doubt"];
const pairs: Pair[] = [
  ...grounds.flatMap((ground): Pair[] => [["text", ground], ["muted", ground], ["accent-text", ground]]),
  ...statuses.flatMap((status): Pair[] => [[status, `${status}-soft`], [status, "surface"], [status, "sunken"], ["text", `${status}-soft`], ["on-status", status]]),
  ["skipped", "skipped-soft"], ["pending", "skipped-soft"], ["ready", "skipped-soft"], ["muted", "skipped-soft"],
  ["accent-text", "accent-soft"], ["muted", "accent-soft"], ["text", "accent-soft"], ["muted", "failed-soft"], ["muted", "degraded-soft"],
];

describe("colours", () => {
  it.each(pairs)("%s on %s can be read, light and dark", (front, ground) => {
    const [a, b] = [colours.get(front), colours.get(ground)];
    expect(a, front).toBeDefined();
    expect(b, ground).toBeDefined();
    for (const theme of [0, 1] as const) expect(contrast(a![theme], b![theme])).toBeGreaterThanOrEqual(4.5);
  });

  it("white can be read on what is filled with the accent", () => {
    for (const colour of colours.get("accent-fill")!) expect(contrast("#ffffff", colour)).toBeGreaterThanOrEqual(4.5);
  });
});
