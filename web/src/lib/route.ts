// Where one is, kept behind the # of the address: a reload comes back to the same place, and the server needs no rule.
import { useSyncExternalStore } from "react";

export const TABS = ["graph", "timeline", "steps", "events", "plan", "files", "whatif"] as const;
export type Tab = (typeof TABS)[number];
export type Route = { page: "list" } | { page: "setup" } | { page: "run"; run: string; tab: Tab; step: string | null };

export function parse(fragment: string): Route {
  const [path = "", query = ""] = fragment.replace(/^#/, "").split("?");
  const [, area, run, tab] = path.split("/");
  if (area === "setup") return { page: "setup" };
  if (area !== "runs" || !run) return { page: "list" };
  const step = new URLSearchParams(query).get("step");
  return { page: "run", run: plain(run), tab: TABS.find((name) => name === tab) ?? "graph", step };
}

function plain(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function address(route: Route): string {
  if (route.page === "list") return "#/";
  if (route.page === "setup") return "#/setup";
  const step = route.step === null ? "" : `?${new URLSearchParams({ step: route.step }).toString()}`;
  return `#/runs/${encodeURIComponent(route.run)}/${route.tab}${step}`;
}

export function go(route: Route, replace = false): void {
  if (replace) {
    history.replaceState(null, "", address(route));
    globalThis.dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = address(route);
}

export function useRoute(): Route {
  const fragment = useSyncExternalStore(
    (listener) => {
      addEventListener("hashchange", listener);
      return () => removeEventListener("hashchange", listener);
    },
    () => location.hash,
  );
  return parse(fragment);
}
