// A doubt: a call was made and its answer never came. Only somebody who looked can say what happened.
import { type ReactNode, useState } from "react";
import { useScope } from "../lib/context";
import { t } from "../lib/i18n";
import type { Json } from "../lib/types";
import { Button, Dialog, Field } from "../parts/basics";
import { Feet, useAct } from "./ActionDialog";
import { Foreseen, isKnown, useForeseen } from "./Foreseen";

type Answer = "succeeded" | "failed" | "rerun";

/** What was typed, as JSON if it is JSON, else as the text it is. */
export function valueOf(typed: string): Json {
  const text = typed.trim();
  if (text === "") return null;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return typed;
  }
}

export function ResolveDialog({ step, onClose }: { step: string; onClose: () => void }): ReactNode {
  const { store } = useScope();
  const one = store.run?.steps[step];
  const doubt = one?.status === "in_doubt";
  const [answer, setAnswer] = useState<Answer | null>(doubt ? null : "succeeded"); // nobody's answer is guessed
  const [typed, setTyped] = useState("");
  const [seen] = useState(doubt ? one?.attempts : undefined); // while the dialog is open another attempt may end
  const { busy, act } = useAct("resolve", onClose);
  const answers: Answer[] = doubt ? ["succeeded", "failed", "rerun"] : ["succeeded"];
  const body = answer && { step, outcome: answer, ...(seen ? { attempt: seen } : {}), ...(answer === "succeeded" ? { value: valueOf(typed) } : {}) };
  const found = useForeseen("resolve", body);
  return (
    <Dialog title={t("resolve.title", { step })} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); if (body) void act(body); }}>
        <p>{doubt ? t("resolve.text", { tool: one?.tool ?? "" }) : t("resolve.text_by_hand")}</p>
        <fieldset className="choices">
          <legend className="visually-hidden">{t("resolve.choice")}</legend>
          {answers.map((name) => (
            <label key={name} className="choice">
              <input type="radio" name="answer" value={name} checked={answer === name} onChange={() => setAnswer(name)} />
              <span><b>{t(`resolve.${name}`)}</b><span className="muted">{t(`resolve.${name}.text`)}</span></span>
            </label>
          ))}
        </fieldset>
        {answer === "succeeded" && (
          <Field label={t("resolve.value")} hint={t("resolve.value_hint")}>
            <textarea rows={4} className="mono" value={typed} spellCheck={false} onChange={(event) => setTyped(event.target.value)} />
          </Field>
        )}
        {answer === "rerun" && <p className="notice warn">{t("resolve.rerun.warning")}</p>}
        <Foreseen found={found} />
        <Feet onClose={onClose}><Button submit kind="primary" disabled={busy || !isKnown(found)} name="send">{t("resolve.do")}</Button></Feet>
      </form>
    </Dialog>
  );
}
