// A server that wants a token.
import { type ReactNode, useState } from "react";
import { get, hasToken, keepToken, type Problem } from "../lib/api";
import { t } from "../lib/i18n";
import { Button, Dialog, Field } from "../parts/basics";

export function TokenDialog({ onClose, onToken }: { onClose: () => void; onToken: () => void }): ReactNode {
  const [typed, setTyped] = useState("");
  const [wrong, setWrong] = useState(hasToken); // the one of the address, or of earlier, did not do
  const [busy, setBusy] = useState(false);
  const send = async (): Promise<void> => {
    setBusy(true);
    setWrong(false);
    keepToken(typed.trim());
    try {
      await get("/tools");
    } catch (error) {
      if ((error as Problem).status === 401) {
        setWrong(true);
        setBusy(false);
        return;
      }
    }
    onToken();
  };
  return (
    <Dialog title={t("token.title")} onClose={onClose}>
      <form onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}>
        <p>{t("token.text")}</p>
        <Field label={t("token.label")}><input type="password" autoFocus autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} /></Field>
        {wrong && <p className="notice bad" role="alert">{t("token.wrong")}</p>}
        <footer className="dialog-feet"><Button submit kind="primary" disabled={busy || typed.trim() === ""} name="send">{t("token.do")}</Button></footer>
      </form>
    </Dialog>
  );
}
