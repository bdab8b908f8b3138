// Drawings. A status is always told by its form as well as by its colour.
import type { ReactNode } from "react";
import type { RunStatus, StepStatus } from "../lib/types";

type Drawing = ReactNode;

const line = { fill: "none", stroke: "currentColor", strokeWidth: 1.8, strokeLinecap: "round", strokeLinejoin: "round" } as const;

const STATUS: Record<string, Drawing> = {
  pending: <circle cx="8" cy="8" r="5.6" {...line} strokeDasharray="2.2 2.4" />,
  ready: <circle cx="8" cy="8" r="5.6" {...line} />,
  running: <><circle cx="8" cy="8" r="5.8" {...line} opacity=".28" /><path className="spin" d="M8 2.2a5.8 5.8 0 0 1 5.8 5.8" {...line} strokeWidth={2.2} /></>,
  waiting: <><circle cx="8" cy="8" r="5.8" {...line} /><path d="M8 4.8V8l2.1 1.5" {...line} /></>,
  succeeded: <><circle cx="8" cy="8" r="7" fill="currentColor" /><path d="m5 8.3 2 2 4-4.4" {...line} stroke="var(--on-status)" /></>,
  degraded: <><path d="M8 1.2 15.2 14H.8Z" fill="currentColor" /><path d="M8 6v3.4M8 11.6v.1" {...line} stroke="var(--on-status)" /></>,
  failed: <><circle cx="8" cy="8" r="7" fill="currentColor" /><path d="m5.6 5.6 4.8 4.8m0-4.8-4.8 4.8" {...line} stroke="var(--on-status)" /></>,
  skipped: <><circle cx="8" cy="8" r="5.8" {...line} /><path d="m4.2 11.8 7.6-7.6" {...line} /></>,
  in_doubt: <><rect x="1.2" y="1.2" width="13.6" height="13.6" rx="4" fill="currentColor" /><path d="M6.1 6.1a2 2 0 1 1 2.9 2c-.7.4-1 .8-1 1.4M8 11.8v.1" {...line} stroke="var(--on-status)" strokeWidth={1.6} /></>,
  cancelled: <><rect x="2" y="2" width="12" height="12" rx="3" {...line} /><path d="M5.6 8h4.8" {...line} /></>,
};
STATUS["completed"] = STATUS["succeeded"];
STATUS["interrupted"] = <><circle cx="8" cy="8" r="5.8" {...line} /><path d="M8.8 3.8 6.6 8.2h2.8l-2.2 4" {...line} strokeWidth={1.5} /></>;

export function StatusIcon({ status, size = 16 }: { status: StepStatus | RunStatus | "interrupted"; size?: number }): ReactNode {
  return (
    <svg className={`status-icon s-${status}`} width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      {STATUS[status] ?? STATUS["pending"]}
    </svg>
  );
}

const ICONS = {
  retry: "M13 5.5A5.5 5.5 0 1 0 13.5 9M13.4 2.4v3.3h-3.3",
  play: "M5 3.2v9.6L12.6 8Z",
  pause: "M5.6 3.6v8.8M10.4 3.6v8.8",
  stop: "M4 4h8v8H4Z",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  close: "m4 4 8 8m0-8-8 8",
  check: "m3.2 8.4 3.2 3.2 6.4-7",
  skip: "m3.4 4 4.4 4-4.4 4m5.2-8L13 8l-4.4 4",
  wrench: "M10.6 2.6a3.4 3.4 0 0 0-3.2 4.7L2.8 11.9l1.5 1.5 4.6-4.6a3.4 3.4 0 0 0 4.4-4.4L11.1 6.6 9.5 5l2.1-2.2a3.4 3.4 0 0 0-1-.2Z",
  fit: "M2.6 6V2.6H6M10 2.6h3.4V6M13.4 10v3.4H10M6 13.4H2.6V10",
  search: "M7.2 12A4.8 4.8 0 1 0 7.2 2.4a4.8 4.8 0 0 0 0 9.6Zm3.5-1.3 3 3",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6ZM8 1.4v1.4m0 10.4v1.4M1.4 8h1.4m10.4 0h1.4M3.3 3.3l1 1m7.4 7.4 1 1m0-9.4-1 1m-7.4 7.4-1 1",
  moon: "M13.4 9.6A5.8 5.8 0 0 1 6.4 2.6a5.8 5.8 0 1 0 7 7Z",
  auto: "M8 2a6 6 0 1 0 0 12ZM8 2a6 6 0 0 1 0 12",
  help: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM6.4 6.4a1.7 1.7 0 1 1 2.4 1.6c-.6.3-.8.7-.8 1.2m0 1.9v.1",
  down: "M8 2.6v8m0 0 3.2-3.2M8 10.6 4.8 7.4M3 13.4h10",
  copy: "M5.6 5.6V3.4A.8.8 0 0 1 6.4 2.6h6.2a.8.8 0 0 1 .8.8v6.2a.8.8 0 0 1-.8.8h-2.2M3.4 5.6h6.2a.8.8 0 0 1 .8.8v6.2a.8.8 0 0 1-.8.8H3.4a.8.8 0 0 1-.8-.8V6.4a.8.8 0 0 1 .8-.8Z",
  gate: "M4.4 7V5a3.6 3.6 0 0 1 7.2 0v2M3.4 7h9.2v6.4H3.4Z",
  once: "M8.8 1.8 3.6 9h3.8l-.4 5.2L12.4 7H8.6Z",
  fold: "m4 6 4-3.4L12 6M4 10l4 3.4L12 10",
  unfold: "m4 3 4 3.4L12 3M4 13l4-3.4L12 13",
  arrow: "M3 8h10m0 0L9.4 4.4M13 8l-3.6 3.6",
  turn: "M4 2.6v6.8a2 2 0 0 0 2 2h7m0 0-2.4-2.4m2.4 2.4-2.4 2.4",
  path: "M2.6 12.6h3a2.4 2.4 0 0 0 2.4-2.4V5.8a2.4 2.4 0 0 1 2.4-2.4h3",
  gear: "M8 10.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM8 1.6v2m0 8.8v2M1.6 8h2m8.8 0h2M3.5 3.5l1.4 1.4m6.2 6.2 1.4 1.4m0-9-1.4 1.4m-6.2 6.2-1.4 1.4",
  back: "M10 3.4 5.4 8l4.6 4.6",
} as const;

export type IconName = keyof typeof ICONS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }): ReactNode {
  return (
    <svg className="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={ICONS[name]} {...line} strokeWidth={1.5} />
    </svg>
  );
}

export function Mark(): ReactNode {
  return (
    <svg width="20" height="20" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" fill="var(--accent)" />
      <path d="M9 24V8m14 16V8M7 12h18M7 20h18" stroke="#fff" strokeWidth="2.6" strokeLinecap="round" fill="none" />
    </svg>
  );
}
