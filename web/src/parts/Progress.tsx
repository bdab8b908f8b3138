// How many steps have come to what: one bar, with its words.
import type { ReactNode } from "react";
import { word } from "../lib/i18n";
import { StatusIcon } from "./icons";
import type { StepStatus } from "../lib/types";

const ORDER: readonly StepStatus[] = [
  "succeeded", "degraded", "running", "waiting", "in_doubt", "failed", "skipped", "cancelled", "ready", "pending",
];

export function Progress({ counts, legend = false }: { counts: Record<string, number>; legend?: boolean }): ReactNode {
  const parts = ORDER.map((status) => [status, counts[status] ?? 0] as const).filter(([, count]) => count > 0);
  const total = parts.reduce((sum, [, count]) => sum + count, 0);
  const said = parts.map(([status, count]) => `${count} ${word("status", status)}`).join(", ");
  return (
    <div className="progress">
      <div className="progress-bar" role="img" aria-label={said}>
        {parts.map(([status, count]) => <span key={status} className={`fill s-${status}`} style={{ flexGrow: count / total }} />)}
      </div>
      {legend && (
        <ul className="progress-legend">
          {parts.map(([status, count]) => (
            <li key={status} data-count={status}><StatusIcon status={status} size={13} /><b>{count}</b> {word("status", status)}</li>
          ))}
        </ul>
      )}
    </div>
  );
}
