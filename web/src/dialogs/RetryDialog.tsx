// A retry, shown before it happens: what would run again and why, what is kept, and which effects would happen twice.
import { type ReactNode, useState } from "react";
import { t } from "../lib/i18n";
import { Button, Dialog } from "../parts/basics";
import { Feet, useAct } from "./ActionDialog";
import { Again, Foreseen, isKnown, useForeseen } from "./Foreseen";

export function RetryDialog({ steps, onClose }: { steps: string[] | null; onClose: () => void }): ReactNode {
  const [clean, setClean] = useState(false);
  const [force, setForce] = useState(false);
  const { busy, act } = useAct("retry", onClose);
  const body = { ...(steps ? { steps } : {}), ...(clean ? { clean } : {}), ...(force ? { force } : {}) };
  const found = useForeseen("retry", body);
  const ready = isKnown(found) ? found.preview : null;
  return (
    <Dialog wide title={steps ? t("retry.title_step", { step: steps.join(", ") }) : t("retry.title")} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void act(clean ? { ...body, confirmed: true } : body); }}>
        <p className="muted">{t("retry.text")}</p>
        <div className="retry-options">
          {!steps && <label className="check"><input type="checkbox" checked={clean} onChange={(event) => setClean(event.target.checked)} /> {t("retry.clean")}</label>}
          <label className="check"><input type="checkbox" checked={force} onChange={(event) => setForce(event.target.checked)} /> {t("retry.force")}</label>
        </div>
        <Foreseen found={found}>{found.preview && <Again preview={found.preview} />}</Foreseen>
        <Feet onClose={onClose}>
          <Button submit kind="primary" icon="retry" name="send" disabled={busy || !ready}>
            {ready ? t("retry.do", { n: ready.rerun.length }) : t("action.retry")}
          </Button>
        </Feet>
      </form>
    </Dialog>
  );
}
