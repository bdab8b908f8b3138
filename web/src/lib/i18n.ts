// Words in two languages. Every text that a person reads stands in texts/en.ts and texts/zh.ts, under the same key.
import { useSyncExternalStore } from "react";
import { en } from "../texts/en";
import { zh } from "../texts/zh";

export type Key = keyof typeof en;
export type Lang = "en" | "zh";
export type Values = Record<string, string | number>;

const KEPT = "rerail.lang";
const TEXTS: Record<Lang, Record<Key, string>> = { en, zh };
const listeners = new Set<() => void>();
let current: Lang = chosen();

function chosen(): Lang {
  const kept = globalThis.localStorage?.getItem(KEPT);
  if (kept === "en" || kept === "zh") return kept;
  return globalThis.navigator?.language?.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export const language = (): Lang => current;

export function setLanguage(lang: Lang): void {
  current = lang;
  localStorage.setItem(KEPT, lang);
  document.documentElement.lang = lang === "zh" ? "zh-CN" : "en";
  for (const listener of listeners) listener();
}

export function useLanguage(): Lang {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, language);
}

/** The text of a key, its gaps filled in: `{name}`. `{n|step|steps}` chooses by number. */
export function t(key: Key, values: Values = {}): string {
  return fill(TEXTS[current][key], values);
}

export function fill(text: string, values: Values): string {
  return text.replace(/\{(\w+)(?:\|([^|}]*)\|([^|}]*))?\}/g, (whole, name: string, one?: string, many?: string) => {
    const value = values[name];
    if (value === undefined) return whole;
    return one === undefined || many === undefined ? String(value) : value === 1 ? one : many;
  });
}

const isKey = (key: string): key is Key => key in en;

/** The text for a word of the protocol (a status, a rung, an action), or the word itself when there is none. */
export function word(area: string, name: string | null | undefined): string {
  if (!name) return "";
  const key = `${area}.${name}`;
  return isKey(key) ? t(key) : name.replaceAll("_", " ");
}
