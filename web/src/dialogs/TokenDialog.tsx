// A server that wants a token.
import { type ReactNode, useState } from "react";
import { keepToken } from "../lib/api";
import { t } from "../lib/i18n";
import { Button, Dialog, Field } from "../parts/basics";

export function TokenDialog({ onClose, onToken }: { onClose: () => void; onToken: () => void }): ReactNode {
  const [typed, setTyped] = useState("");
  return (
    <Dialog title={t("token.title")} onClose={onClose}>
      <form onSubmit={(event) => {
        event.preventDefault();
        keepToken(typed.trim());
        onToken();
      }}>
        <p>{t("token.text")}</p>
        <Field label={t("token.label")}><input type="password" autoFocus autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} /></Field>
        <footer className="dialog-feet"><Button submit kind="primary" disabled={typed.trim() === ""} name="send">{t("token.do")}</Button></footer>
      </form>
    </Dialog>
  );
}
