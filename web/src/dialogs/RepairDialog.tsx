// A step that is wrong in the plan, put right by a person: its tool, its arguments, what it needs.
import { type ReactNode, useEffect, useState } from "react";
import { at, get } from "../lib/api";
import { useScope } from "../lib/context";
import { pretty } from "../lib/diff";
import { t } from "../lib/i18n";
import { bad } from "../lib/toasts";
import type { Json, StepDetail } from "../lib/types";
import { Button, Dialog, Field } from "../parts/basics";
import { Feet, useAct } from "./ActionDialog";

export function RepairDialog({ step, onClose }: { step: string; onClose: () => void }): ReactNode {
  const { store } = useScope();
  const [before, setBefore] = useState<{ tool: string; args: string } | null>(null);
  const [tool, setTool] = useState("");
  const [args, setArgs] = useState("");
  const { busy, act } = useAct("repair", onClose);
  useEffect(() => {
    get<StepDetail>(at("runs", store.id, "step"), { id: step }).then((detail) => {
      const plan = (detail.plan_step ?? {}) as { tool?: string; args?: Json };
      const was = { tool: plan.tool ?? detail.tool, args: pretty(plan.args ?? detail.args ?? {}) };
      setBefore(was);
      setTool(was.tool);
      setArgs(was.args);
    }, bad);
  }, [store.id, step]);
  let parsed: Json | undefined;
  try {
    parsed = JSON.parse(args || "{}") as Json;
  } catch {
    parsed = undefined;
  }
  const same = before !== null && before.tool === tool && before.args === args;
  const send = (): void => {
    if (parsed === undefined || !before) return;
    void act({ step, ...(tool !== before.tool ? { tool } : {}), ...(args !== before.args ? { args: parsed } : {}) });
  };
  return (
    <Dialog wide title={t("repair.title", { step })} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); send(); }}>
        <p className="muted">{t("repair.text")}</p>
        <Field label={t("steps.tool")}><input className="mono" disabled={before === null} value={tool} spellCheck={false} onChange={(event) => setTool(event.target.value)} /></Field>
        <Field label={t("step.args")}><textarea className="mono" rows={10} disabled={before === null} value={args} spellCheck={false} aria-invalid={parsed === undefined} onChange={(event) => setArgs(event.target.value)} /></Field>
        {parsed === undefined && <p className="notice bad" role="alert">{t("common.not_json")}</p>}
        <Feet onClose={onClose}><Button submit kind="primary" icon="wrench" disabled={busy || same || parsed === undefined} name="send">{t("action.repair")}</Button></Feet>
      </form>
    </Dialog>
  );
}
