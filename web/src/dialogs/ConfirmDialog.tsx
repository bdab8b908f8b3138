// A gate: the call that waits, as it would be made, and a person's word.
import { type ReactNode, useEffect, useState } from "react";
import { at, get } from "../lib/api";
import { useScope } from "../lib/context";
import { t } from "../lib/i18n";
import { bad } from "../lib/toasts";
import type { StepDetail, WaitingOn } from "../lib/types";
import { Button, Dialog, Value } from "../parts/basics";
import { Feet, useAct } from "./ActionDialog";
import { Foreseen, isKnown, useForeseen } from "./Foreseen";
import { editBody, type Edits, GateFiles } from "./GateFiles";

export function ConfirmDialog({ step, onClose }: { step: string; onClose: () => void }): ReactNode {
  const { store } = useScope();
  const seen = store.run?.waiting_on.find((item) => item.step === step && item.for === "confirm");
  const [detail, setDetail] = useState<StepDetail | null>(null);
  const [edits, setEdits] = useState<Edits>({});
  const edited = Object.keys(edits).length > 0;
  const { busy, act } = useAct("confirm", onClose);
  const agreed = useForeseen("confirm", { step });
  const refused = useForeseen("confirm", { step, refuse: true });
  useEffect(() => void get<StepDetail>(at("runs", store.id, "step"), { id: step }).then(setDetail, bad), [store.id, step]);
  const call: WaitingOn | undefined = detail?.waiting_on ?? seen;
  const args = call?.args ?? detail?.args;
  const poor = Object.entries(call?.made_from_degraded ?? {});
  return (
    <Dialog wide={edited || (call?.files?.length ?? 0) > 0} title={t("confirm.title", { step })} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void act(edited ? { step, edit: editBody(edits) } : { step }); }}>
        <p>{seen?.question || call?.question || t("confirm.text")}</p>
        <p className="card-head"><span className="muted">{t("confirm.call")}</span> <code>{call?.tool ?? detail?.tool ?? store.run?.steps[step]?.tool}</code></p>
        {args !== undefined && args !== null && <Value value={args} name={`${step}-call`} />}
        {poor.length > 0 && <p className="notice warn">{t("confirm.degraded", { steps: poor.map(([id]) => id).join(", ") })}</p>}
        {call?.files && call.files.length > 0 && <GateFiles run={store.id} files={call.files} edits={edits} onEdits={setEdits} />}
        <Foreseen found={agreed} title={t("confirm.if_agreed")} />
        <Foreseen found={refused} title={t("confirm.if_refused")} />
        <Feet onClose={onClose}>
          <Button kind="danger" disabled={busy || !isKnown(refused)} name="refuse" onClick={() => void act({ step, refuse: true })}>{t("confirm.refuse")}</Button>
          <Button submit kind="primary" icon="check" disabled={busy || !isKnown(agreed)} name="send">{t(edited ? "confirm.agree_edited" : "confirm.agree")}</Button>
        </Feet>
      </form>
    </Dialog>
  );
}
