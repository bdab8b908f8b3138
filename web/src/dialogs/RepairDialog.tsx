// A step that is wrong in the plan, put right by a person: its tool, its arguments, what it needs.
import { type ReactNode, useEffect, useState } from "react";
import { at, get } from "../lib/api";
import { useScope } from "../lib/context";
import { type Args, argsOf, type Call, changesOf, pretty } from "../lib/diff";
import { t } from "../lib/i18n";
import { bad } from "../lib/toasts";
import type { StepDetail } from "../lib/types";
import { Button, Dialog, Field } from "../parts/basics";
import { Feet, useAct } from "./ActionDialog";
import { Foreseen, isKnown, useForeseen } from "./Foreseen";

export function RepairDialog({ step, onClose }: { step: string; onClose: () => void }): ReactNode {
  const { store } = useScope();
  const [before, setBefore] = useState<Call | null>(null);
  const [tool, setTool] = useState("");
  const [args, setArgs] = useState("");
  const { busy, act } = useAct("repair", onClose);
  useEffect(() => {
    get<StepDetail>(at("runs", store.id, "step"), { id: step }).then((detail) => {
      const plan = (detail.plan_step ?? {}) as { tool?: string; args?: Args };
      const was = { tool: plan.tool ?? detail.tool, args: plan.args ?? {} };
      setBefore(was);
      setTool(was.tool);
      setArgs(pretty(was.args));
    }, bad);
  }, [store.id, step]);
  const parsed = argsOf(args);
  const changes = before && parsed ? changesOf(before, { tool, args: parsed }) : {};
  const same = Object.keys(changes).length === 0;
  const found = useForeseen("repair", same ? null : { step, ...changes });
  const send = (): void => {
    if (!same) void act({ step, ...changes });
  };
  return (
    <Dialog wide title={t("repair.title", { step })} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); send(); }}>
        <p className="muted">{t("repair.text")}</p>
        <Field label={t("steps.tool")}><input className="mono" disabled={before === null} value={tool} spellCheck={false} onChange={(event) => setTool(event.target.value)} /></Field>
        <Field label={t("step.args")}><textarea className="mono" rows={10} disabled={before === null} value={args} spellCheck={false} aria-invalid={parsed === undefined} onChange={(event) => setArgs(event.target.value)} /></Field>
        {parsed === undefined && <p className="notice bad" role="alert">{t("common.not_object")}</p>}
        <Foreseen found={found} />
        <Feet onClose={onClose}><Button submit kind="primary" icon="wrench" disabled={busy || !isKnown(found)} name="send">{t("action.repair")}</Button></Feet>
      </form>
    </Dialog>
  );
}
