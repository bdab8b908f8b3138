// What a person does to a run. Nothing happens before what would happen has been shown.
import { type ReactNode, useState } from "react";
import { at, post } from "../lib/api";
import { type Asked, useScope } from "../lib/context";
import { t } from "../lib/i18n";
import { bad, good } from "../lib/toasts";
import { stepsOf } from "../lib/patch";
import { Button, Dialog, Field } from "../parts/basics";
import { AddDialog } from "./AddDialog";
import { ConfirmDialog } from "./ConfirmDialog";
import { type Body, Foreseen, isKnown, useForeseen } from "./Foreseen";
import { RepairDialog } from "./RepairDialog";
import { ResolveDialog } from "./ResolveDialog";
import { RetryDialog } from "./RetryDialog";

export function ActionDialog({ asked, onClose }: { asked: Asked; onClose: () => void }): ReactNode {
  switch (asked.kind) {
    case "retry": return <RetryDialog steps={asked.steps ?? null} onClose={onClose} />;
    case "confirm": return <ConfirmDialog step={asked.step} onClose={onClose} />;
    case "resolve": return <ResolveDialog step={asked.step} onClose={onClose} />;
    case "repair": return <RepairDialog step={asked.step} onClose={onClose} />;
    case "add": return <AddDialog onClose={onClose} />;
    case "skip": return <SkipDialog step={asked.step} onClose={onClose} />;
    case "cancel": return <CancelDialog onClose={onClose} />;
    case "pause": return <PauseDialog onClose={onClose} />;
    case "resume": return <ResumeDialog onClose={onClose} />;
  }
}

/** Sends an action; a refusal is told with its code and what to do, and the dialog stays. */
export function useAct(action: string, onClose: () => void): { busy: boolean; act: (body: Body) => Promise<void> } {
  const { store } = useScope();
  const [busy, setBusy] = useState(false);
  const act = async (body: Body): Promise<void> => {
    setBusy(true);
    try {
      await post(at("runs", store.id, action), body);
      good(t("action.sent"));
      onClose();
    } catch (error) {
      bad(error);
      setBusy(false);
    }
  };
  return { busy, act };
}

export function Feet({ children, onClose }: { children: ReactNode; onClose: () => void }): ReactNode {
  return <footer className="dialog-feet"><Button onClick={onClose}>{t("common.cancel")}</Button>{children}</footer>;
}

function SkipDialog({ step, onClose }: { step: string; onClose: () => void }): ReactNode {
  const { store } = useScope();
  const [reason, setReason] = useState("");
  const { busy, act } = useAct("skip", onClose);
  const found = useForeseen("skip", { step });
  const behind = stepsOf(store.run).filter((one) => one.needs.includes(step));
  return (
    <Dialog title={t("skip.title", { step })} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void act({ step, reason: reason || undefined }); }}>
        <p>{behind.length > 0 ? t("skip.text_behind", { n: behind.length, steps: behind.slice(0, 6).map((one) => one.id).join(", ") }) : t("skip.text")}</p>
        <Field label={t("common.reason")}><input autoFocus value={reason} onChange={(event) => setReason(event.target.value)} /></Field>
        <Foreseen found={found} />
        <Feet onClose={onClose}><Button submit kind="primary" disabled={busy || !isKnown(found)} name="send">{t("action.skip")}</Button></Feet>
      </form>
    </Dialog>
  );
}

function CancelDialog({ onClose }: { onClose: () => void }): ReactNode {
  const [reason, setReason] = useState("");
  const { busy, act } = useAct("cancel", onClose);
  return (
    <Dialog title={t("cancel.title")} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void act({ reason: reason || undefined }); }}>
        <p>{t("cancel.text")}</p>
        <Field label={t("common.reason")}><input autoFocus value={reason} onChange={(event) => setReason(event.target.value)} /></Field>
        <Feet onClose={onClose}><Button submit kind="danger" disabled={busy} name="send">{t("action.cancel")}</Button></Feet>
      </form>
    </Dialog>
  );
}

function PauseDialog({ onClose }: { onClose: () => void }): ReactNode {
  const { busy, act } = useAct("pause", onClose);
  return (
    <Dialog title={t("pause.title")} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void act({}); }}>
        <p>{t("pause.text")}</p>
        <Feet onClose={onClose}><Button submit kind="primary" disabled={busy} name="send">{t("action.pause")}</Button></Feet>
      </form>
    </Dialog>
  );
}

function ResumeDialog({ onClose }: { onClose: () => void }): ReactNode {
  const { store } = useScope();
  const [over, setOver] = useState(false);
  const { busy, act } = useAct("resume", onClose);
  const running = stepsOf(store.run).filter((step) => step.status === "running" || step.status === "in_doubt");
  return (
    <Dialog title={t("resume.title")} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void act(over ? { take_over: true } : {}); }}>
        <p>{t("resume.text")}</p>
        {running.length > 0 && store.run?.interrupted && <p className="notice warn">{t("resume.cut", { steps: running.slice(0, 6).map((step) => step.id).join(", ") })}</p>}
        {store.run?.owner && (
          <label className="check"><input type="checkbox" checked={over} onChange={(event) => setOver(event.target.checked)} /> {t("resume.take_over", { owner: store.run.owner })}</label>
        )}
        <Feet onClose={onClose}><Button submit kind="primary" disabled={busy} name="send">{t("action.resume")}</Button></Feet>
      </form>
    </Dialog>
  );
}
