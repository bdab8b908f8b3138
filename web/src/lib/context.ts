// What the views of one run share: its store, and how to open a step.
import { createContext, useContext } from "react";
import { RunStore } from "./store";

export interface RunScope {
  store: RunStore;
  selected: string | null;
  select: (step: string | null) => void;
  ask: (dialog: Asked) => void;
}

export type Asked =
  | { kind: "retry"; steps?: string[] }
  | { kind: "skip" | "confirm" | "resolve" | "repair"; step: string }
  | { kind: "resume" | "pause" | "cancel" | "add" };

export const RunContext = createContext<RunScope | null>(null);

export function useScope(): RunScope {
  const scope = useContext(RunContext);
  if (!scope) throw new Error("outside a run");
  return scope;
}
