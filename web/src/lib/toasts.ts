// Short notices in the corner: what was done, and what was refused, with its code and what to do about it.
import { useSyncExternalStore } from "react";
import { Problem } from "./api";
import { t } from "./i18n";

export interface Toast {
  id: number;
  kind: "good" | "bad";
  text: string;
  code?: string;
  hint?: string;
}

let toasts: Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

function set(next: Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

export const dismiss = (id: number): void => set(toasts.filter((toast) => toast.id !== id));

function show(toast: Omit<Toast, "id">, seconds: number): void {
  const id = ++last;
  set([...toasts.slice(-3), { ...toast, id }]);
  setTimeout(() => dismiss(id), seconds * 1000);
}

export const good = (text: string, hint = ""): void => show({ kind: "good", text, hint }, 4);

export function bad(error: unknown): void {
  if (error instanceof Problem) {
    const text = error.code === "UNREACHABLE" ? t("problem.unreachable") : error.message || error.code;
    show({ kind: "bad", text, code: error.code, hint: error.hint }, 12);
  } else show({ kind: "bad", text: String(error) }, 12);
}

// A dialog lies over everything else, and nothing else can be used meanwhile: notices are shown in the topmost one.
let dialogs: string[] = [];

export function dialogOpened(id: string): () => void {
  dialogs = [...dialogs, id];
  set(toasts);
  return () => {
    dialogs = dialogs.filter((one) => one !== id);
    set(toasts);
  };
}

export function useTopDialog(): string {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, () => dialogs[dialogs.length - 1] ?? "");
}

export function useToasts(): Toast[] {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, () => toasts);
}
