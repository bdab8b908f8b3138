// A new run: a plan to paste, or an objective for a model to plan.
import { type ReactNode, useState } from "react";
import { post, Problem } from "../lib/api";
import { t } from "../lib/i18n";
import { go } from "../lib/route";
import { bad, good } from "../lib/toasts";
import { Button, Dialog, Field } from "../parts/basics";
import { CheckResult, FaultList, faultsOf, planOf, useCheck } from "./planText";

export function StartDialog({ onClose }: { onClose: () => void }): ReactNode {
  const [how, setHow] = useState<"plan" | "objective">("plan");
  const [text, setText] = useState("");
  const [objective, setObjective] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const checked = useCheck(text);
  const possible = how === "objective" ? objective.trim() !== "" : checked.state === "good" || checked.state === "unknown";
  const start = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      const { run_id } = await post<{ run_id: string }>("/runs", how === "plan" ? { plan: planOf(text) } : { objective });
      good(t("start.started"));
      onClose();
      go({ page: "run", run: run_id, tab: "graph", step: null });
    } catch (error) {
      setBusy(false);
      if (error instanceof Problem) setProblem(error);
      else bad(error);
    }
  };
  return (
    <Dialog wide title={t("start.title")} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void start(); }}>
        <div className="filters" role="group" aria-label={t("start.how")}>
          <button type="button" className="filter" aria-pressed={how === "plan"} onClick={() => setHow("plan")}>{t("start.plan")}</button>
          <button type="button" className="filter" aria-pressed={how === "objective"} onClick={() => setHow("objective")}>{t("start.objective")}</button>
        </div>
        {how === "plan" ? (
          <>
            <Field label={t("start.paste")}>
              <textarea autoFocus className="mono plan-text" rows={14} spellCheck={false} value={text} placeholder={"objective: …\nsteps:\n  - id: read\n    tool: …"} onChange={(event) => setText(event.target.value)} />
            </Field>
            <CheckResult checked={checked} />
          </>
        ) : (
          <Field label={t("start.objective_label")} hint={t("start.objective_hint")}>
            <textarea autoFocus rows={5} value={objective} onChange={(event) => setObjective(event.target.value)} />
          </Field>
        )}
        {problem && <div role="alert"><FaultList faults={faultsOf(problem)} /></div>}
        <footer className="dialog-feet">
          <Button onClick={onClose}>{t("common.cancel")}</Button>
          <Button submit kind="primary" icon="play" disabled={busy || !possible} name="send">{t("start.do")}</Button>
        </footer>
      </form>
    </Dialog>
  );
}
