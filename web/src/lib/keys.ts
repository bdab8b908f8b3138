// The keyboard: whoever is shown last answers first. Nothing is caught while somebody types or a dialog is open.
import { useEffect, useRef } from "react";

export type Keys = Record<string, () => void>;

const stack: { current: Keys }[] = [];
let prefix = "";
let timer = 0;

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}

function onKey(event: KeyboardEvent): void {
  if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (typing(event.target)) {
    if (event.key === "Escape") (event.target as HTMLElement).blur();
    return;
  }
  // Enter and the space bar belong to what has the focus.
  const focused = event.target instanceof HTMLElement && event.target.closest("button, a, summary, [role=tab]");
  if (focused && (event.key === "Enter" || event.key === " ")) return;
  const name = prefix ? `${prefix} ${event.key}` : event.key;
  prefix = "";
  clearTimeout(timer);
  for (let i = stack.length - 1; i >= 0; i--) {
    const action = stack[i]!.current[name];
    if (action) {
      event.preventDefault();
      action();
      return;
    }
  }
  if (event.key === "g" && name === "g") {
    prefix = "g";
    timer = window.setTimeout(() => (prefix = ""), 1200);
  }
}

export function useKeys(keys: Keys): void {
  const kept = useRef(keys);
  kept.current = keys;
  useEffect(() => {
    if (stack.length === 0) addEventListener("keydown", onKey);
    stack.push(kept);
    return () => {
      stack.splice(stack.indexOf(kept), 1);
      if (stack.length === 0) removeEventListener("keydown", onKey);
    };
  }, []);
}
