// The one place that talks to the server. The token comes from the address's fragment (#token=…), which browsers never
// send, and stays in sessionStorage: no cookie, so no other page can act in its name.
import { language } from "./i18n";
import { type Connection, follow, type SseMessage } from "./sse";
import type { Fault, Json } from "./types";

const BASE = "/api/v1";
const KEPT = "rerail.token";

/** What the server answers when it does not do what was asked (problem+json). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
    readonly faults: Fault[] = [],
  ) {
    super(message);
  }
}

export function takeToken(fragment: string): string | null {
  const found = /(?:^#|[#&])token=([^&]+)/.exec(fragment);
  if (!found?.[1]) return null;
  try {
    return decodeURIComponent(found[1]);
  } catch {
    return found[1];
  }
}

export const keepToken = (token: string): void => sessionStorage.setItem(KEPT, token);
export const hasToken = (): boolean => Boolean(token());
const token = (): string | null => sessionStorage.getItem(KEPT);

function headers(extra: Record<string, string> = {}): Record<string, string> {
  const kept = token();
  return { "Accept-Language": language(), ...(kept ? { Authorization: `Bearer ${asBytes(kept)}` } : {}), ...extra };
}

/** A header holds bytes: letters beyond ASCII go as their UTF-8. */
export const asBytes = (text: string): string => Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");

export const at = (...parts: string[]): string => `/${parts.map(encodeURIComponent).join("/")}`;

let onUnauthorized: () => void = () => undefined;
export const whenUnauthorized = (listener: () => void): void => void (onUnauthorized = listener);

async function problemOf(response: Response): Promise<Problem> {
  if (response.status === 401) onUnauthorized();
  let body: Record<string, unknown> = {};
  try {
    body = (await response.json()) as Record<string, unknown>;
  } catch {
    // not JSON: the status says what there is to say
  }
  const text = (name: string): string => (typeof body[name] === "string" ? (body[name] as string) : "");
  const faults = Array.isArray(body["faults"]) ? (body["faults"] as Fault[]) : [];
  const code = text("code") || `HTTP_${response.status}`;
  return new Problem(response.status, code, text("detail") || text("title") || response.statusText, text("hint"), faults);
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(BASE + path, { cache: "no-store", ...init, headers: headers(init.headers as Record<string, string>) });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(0, "UNREACHABLE", "", "");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function get<T>(path: string, query: Record<string, string | number | undefined> = {}, signal?: AbortSignal): Promise<T> {
  const wanted = Object.entries(query).filter((pair): pair is [string, string | number] => pair[1] !== undefined && pair[1] !== "");
  const search = new URLSearchParams(wanted.map(([name, value]) => [name, String(value)])).toString();
  const response = await ask(search ? `${path}?${search}` : path, signal ? { signal } : {});
  return (await response.json()) as T;
}

export async function post<T>(path: string, body: { [key: string]: Json | undefined } = {}, signal?: AbortSignal): Promise<T> {
  const sent = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const response = await ask(path, signal ? { ...sent, signal } : sent);
  const text = await response.text();
  return (text ? JSON.parse(text) : {}) as T;
}

export async function remove(path: string): Promise<void> {
  await ask(path, { method: "DELETE" });
}

/** A file, fetched with the token and handed to the browser to save: it is never opened as a page. */
export async function download(path: string, name: string): Promise<void> {
  const blob = await (await ask(path)).blob();
  save(new Blob([blob], { type: "application/octet-stream" }), name);
}

export async function peek(path: string, most: number): Promise<{ text: string; whole: boolean }> {
  const blob = await (await ask(path)).blob();
  return { text: await blob.slice(0, most).text(), whole: blob.size <= most };
}

export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[/\\]/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Follows a stream of the server; the path is asked for anew on every connection, so it can say what was seen. */
export function listen(
  path: () => string,
  onMessage: (message: SseMessage) => void,
  onState: (state: Connection) => void,
  onRefused?: (problem: Problem) => void,
): () => void {
  return follow({
    open: (signal) => fetch(BASE + path(), { signal, cache: "no-store", headers: headers({ Accept: "text/event-stream" }) }),
    onMessage,
    onState,
    onRefused: (response) => void problemOf(response).then((problem) => onRefused?.(problem)),
  });
}
