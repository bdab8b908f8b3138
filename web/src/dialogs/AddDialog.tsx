// Steps for a run that is under way.
import { type ReactNode, useState } from "react";
import { at, post, Problem } from "../lib/api";
import { useScope } from "../lib/context";
import { t } from "../lib/i18n";
import { bad, good } from "../lib/toasts";
import type { Json } from "../lib/types";
import { Button, Dialog, Field } from "../parts/basics";
import { Feet } from "./ActionDialog";
import { FaultList, faultsOf, planOf } from "./planText";

/** A list of steps, one step, or a plan's `steps`; YAML goes as text. */
function stepsOf(text: string): Json {
  const read = planOf(text);
  if (read === null || typeof read !== "object" || Array.isArray(read)) return read;
  return Array.isArray(read["steps"]) ? read["steps"] : [read];
}

export function AddDialog({ onClose }: { onClose: () => void }): ReactNode {
  const { store } = useScope();
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const add = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      await post(at("runs", store.id, "add"), { steps: stepsOf(text) });
      good(t("action.sent"));
      onClose();
    } catch (error) {
      setBusy(false);
      if (error instanceof Problem) setProblem(error);
      else bad(error);
    }
  };
  return (
    <Dialog wide title={t("add.title")} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void add(); }}>
        <p className="muted">{t("add.text")}</p>
        <Field label={t("add.paste")}>
          <textarea autoFocus className="mono plan-text" rows={10} spellCheck={false} value={text} placeholder={"- id: extra\n  tool: …\n  needs: […]"} onChange={(event) => setText(event.target.value)} />
        </Field>
        {problem && <div role="alert"><FaultList faults={faultsOf(problem)} /></div>}
        <Feet onClose={onClose}><Button submit kind="primary" icon="plus" disabled={busy || text.trim() === ""} name="send">{t("action.add")}</Button></Feet>
      </form>
    </Dialog>
  );
}
