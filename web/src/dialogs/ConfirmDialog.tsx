// A gate: the call that waits, as it would be made, what was agreed to before, and a person's word.
import { type ReactNode, useEffect, useState } from "react";
import { at, get } from "../lib/api";
import { useScope } from "../lib/context";
import { type Args, argsOf, changesOf, pretty } from "../lib/diff";
import { t } from "../lib/i18n";
import { bad } from "../lib/toasts";
import type { StepDetail, WaitingOn } from "../lib/types";
import { Button, Dialog, Field, Value } from "../parts/basics";
import { Feet, useAct } from "./ActionDialog";
import { type Body, Foreseen, isKnown, useForeseen } from "./Foreseen";
import { editBody, type Edits, GateFiles } from "./GateFiles";

export function ConfirmDialog({ step, onClose }: { step: string; onClose: () => void }): ReactNode {
  const { store } = useScope();
  const seen = store.run?.waiting_on.find((item) => item.step === step && item.for === "confirm");
  const [detail, setDetail] = useState<StepDetail | null>(null);
  const [edits, setEdits] = useState<Edits>({});
  const [typed, setTyped] = useState<string | null>(null); // the arguments, while they are edited
  const { busy, act } = useAct("confirm", onClose);
  const now = seen?.digest; // another one: the call changed while the dialog was open, and is fetched anew
  useEffect(() => {
    setTyped(null);
    get<StepDetail>(at("runs", store.id, "step"), { id: step }).then(setDetail, bad);
  }, [store.id, step, now]);
  const call: WaitingOn | undefined = detail?.waiting_on ?? seen;
  const args = call?.args ?? detail?.args;
  const was = (args ?? {}) as Args;
  const parsed = typed === null ? was : argsOf(typed);
  const changes = parsed ? changesOf({ tool: "", args: was }, { tool: "", args: parsed }) : {};
  const removed = (changes["remove"] as string[] | undefined) ?? [];
  const edited = Object.keys(edits).length > 0 || changes["args"] !== undefined;
  const word: Body = { step, ...(call?.digest ? { digest: call.digest } : {}), ...(changes["args"] !== undefined ? { args: changes["args"] } : {}) };
  const agreed = useForeseen("confirm", parsed && removed.length === 0 ? word : null);
  const refused = useForeseen("confirm", { step, refuse: true });
  const poor = Object.entries(call?.made_from_degraded ?? {});
  const send = (): void => void act(Object.keys(edits).length > 0 ? { ...word, edit: editBody(edits) } : word);
  return (
    <Dialog wide={edited || typed !== null || (call?.files?.length ?? 0) > 0} title={t("confirm.title", { step })} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); send(); }}>
        <p>{seen?.question || call?.question || t("confirm.text")}</p>
        {call?.before && <Before call={call} step={step} />}
        <p className="card-head">
          <span className="muted">{t(call?.before ? "confirm.now" : "confirm.call")}</span> <code>{call?.tool ?? detail?.tool ?? store.run?.steps[step]?.tool}</code>
          {typed === null && call?.digest && <Button small kind="quiet" icon="wrench" name="edit-args" onClick={() => setTyped(pretty(was))}>{t("confirm.edit_args")}</Button>}
          {typed !== null && <Button small kind="quiet" name="undo-args" onClick={() => setTyped(null)}>{t("confirm.undo")}</Button>}
        </p>
        {typed === null && args !== undefined && args !== null && <Value value={args} name={`${step}-call`} />}
        {typed !== null && (
          <Field label={t("step.args")}>
            <textarea className="mono" autoFocus rows={Math.min(16, typed.split("\n").length + 1)} value={typed} spellCheck={false} aria-invalid={parsed === undefined || removed.length > 0}
              onChange={(event) => setTyped(event.target.value)} />
          </Field>
        )}
        {parsed === undefined && <p className="notice bad" role="alert">{t("common.not_object")}</p>}
        {removed.length > 0 && <p className="notice bad" role="alert">{t("confirm.not_removed", { names: removed.join(", ") })}</p>}
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

/** What was agreed to, where the call is another one by now. */
function Before({ call, step }: { call: WaitingOn; step: string }): ReactNode {
  const before = call.before;
  if (!before) return null;
  return (
    <div className="notice warn" role="alert" data-before="">
      <p>{t(before.digest ? "confirm.before" : "confirm.before_ahead")} <code>{before.tool}</code></p>
      {before.args !== undefined && before.args !== null && <Value value={before.args} name={`${step}-before`} />}
      {call.changed_files && call.changed_files.length > 0 && <p>{t("confirm.changed_files", { files: call.changed_files.join(", ") })}</p>}
    </div>
  );
}
