// A plan that somebody types or pastes: looked at while they type, every fault at once.
import { type ReactNode, useEffect, useState } from "react";
import { post, Problem } from "../lib/api";
import { useSettled } from "../lib/hooks";
import { t } from "../lib/i18n";
import type { Fault, Json, PlanCheck } from "../lib/types";

/** JSON is sent as what it says, everything else (YAML) as text, which the server reads. */
export function planOf(text: string): Json {
  try {
    const read = JSON.parse(text) as Json;
    if (read !== null && typeof read === "object") return read;
  } catch {
    // YAML, then
  }
  return text;
}

export type Checked = { state: "empty" | "checking" | "unknown" } | { state: "good"; steps: number } | { state: "bad"; faults: Fault[] };

export function useCheck(text: string): Checked {
  const settled = useSettled(text, 350);
  const [checked, setChecked] = useState<{ text: string; result: Checked }>({ text: "", result: { state: "empty" } });
  useEffect(() => {
    if (settled.trim() === "") return setChecked({ text: settled, result: { state: "empty" } });
    const abort = new AbortController();
    const done = (result: Checked): void => { if (!abort.signal.aborted) setChecked({ text: settled, result }); };
    post<PlanCheck>("/plans/check", { plan: planOf(settled) }, abort.signal).then(
      (answer) => done(answer.ok ? { state: "good", steps: Array.isArray(answer.steps) ? answer.steps.length : (answer.steps ?? 0) } : { state: "bad", faults: answer.faults }),
      (error: unknown) => done(error instanceof Problem && error.status >= 400 && error.status < 500 ? { state: "bad", faults: faultsOf(error) } : { state: "unknown" }),
    );
    return () => abort.abort();
  }, [settled]);
  return checked.text === text ? checked.result : text.trim() === "" ? { state: "empty" } : { state: "checking" };
}

export function faultsOf(problem: Problem): Fault[] {
  return problem.faults.length > 0 ? problem.faults : [{ code: problem.code, message: problem.message, hint: problem.hint }];
}

export function CheckResult({ checked }: { checked: Checked }): ReactNode {
  return (
    <div className="check-result" aria-live="polite" data-check={checked.state}>
      {checked.state === "empty" && <p className="muted">{t("check.empty")}</p>}
      {checked.state === "checking" && <p className="muted">{t("check.checking")}</p>}
      {checked.state === "unknown" && <p className="muted">{t("problem.unreachable")}</p>}
      {checked.state === "good" && <p className="good-text">✓ {t("check.good", { n: checked.steps })}</p>}
      {checked.state === "bad" && <FaultList faults={checked.faults} />}
    </div>
  );
}

export function FaultList({ faults }: { faults: Fault[] }): ReactNode {
  return (
    <ul className="faults" aria-label={t("check.faults", { n: faults.length })}>
      {faults.map((fault, index) => (
        <li key={index}><code>{fault.code}</code>{fault.step && <code className="fault-step">{fault.step}</code>} <span className="message">{fault.message}</span>{fault.hint && <span className="muted"> {fault.hint}</span>}</li>
      ))}
    </ul>
  );
}
