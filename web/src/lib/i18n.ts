// Words in the reader's language. Every text that a person reads stands in texts/, one file a language, under the same key.
import { useSyncExternalStore } from "react";
import { en } from "../texts/en";

export type Key = keyof typeof en;
export type Lang = string;
type Texts = Record<Key, string>;
export type Values = Record<string, string | number>;

const KEPT = "rerail.lang";
const FILES = import.meta.glob<Record<string, Partial<Texts>>>("../texts/*.ts", { eager: true });
const TEXTS = new Map(Object.entries(FILES).map(([path, file]) => named(path.replace(/.*\/|\.ts$/g, ""), file)));
const FORMS: Intl.LDMLPluralRule[] = ["zero", "one", "two", "few", "many", "other"];
const listeners = new Set<() => void>();
let current: Lang = chosen();

function chosen(): Lang {
  const kept = globalThis.localStorage?.getItem(KEPT);
  const wanted = globalThis.navigator?.language?.toLowerCase() ?? "";
  return [kept, wanted, wanted.split("-")[0]].find((lang) => lang && TEXTS.has(lang)) ?? "en";
}

/** A file's texts; what it lacks is said in English. */
function named(lang: Lang, file: Record<string, Partial<Texts>>): [Lang, Texts] {
  return [lang, { ...en, ...file[lang] }];
}

export const language = (): Lang => current;

/** The language that follows the reader's, in the order of the files. */
export function nextLanguage(): Lang {
  const all = [...TEXTS.keys()];
  return all[(all.indexOf(current) + 1) % all.length]!;
}

export function setLanguage(lang: Lang): void {
  current = lang;
  localStorage.setItem(KEPT, lang);
  document.documentElement.lang = t("language.tag");
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
  return fill(textOf(current, key), values);
}

/** The text of a key in a certain language. */
export const textOf = (lang: Lang, key: Key): string => (TEXTS.get(lang) ?? en)[key];

export function fill(text: string, values: Values): string {
  return text.replace(/\{(\w+)((?:\|[^|}]*)*)\}/g, (whole, name: string, forms: string) => {
    const value = values[name];
    if (value === undefined) return whole;
    return forms ? form(Number(value), forms.slice(1).split("|")) : String(value);
  });
}

/** The form of a word that goes with a number; a language may have more than two. */
function form(count: number, forms: string[]): string {
  const rules = new Intl.PluralRules(textOf(current, "language.tag"));
  const used = FORMS.filter((name) => rules.resolvedOptions().pluralCategories.includes(name));
  return forms[used.indexOf(rules.select(count))] ?? forms.at(-1)!;
}

const isKey = (key: string): key is Key => key in en;

/** The text for a word of the protocol (a status, a rung, an action), or the word itself when there is none. */
export function word(area: string, name: string | null | undefined): string {
  if (!name) return "";
  const key = `${area}.${name}`;
  return isKey(key) ? t(key) : name.replaceAll("_", " ");
}
