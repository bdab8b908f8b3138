// A retry, shown before it happens: what would run again and why, what is kept, and which effects would happen twice.
import { type ReactNode, useEffect, useState } from "react";
import { at, post, type Problem } from "../lib/api";
import { useScope } from "../lib/context";
import { amount, duration } from "../lib/format";
import { t } from "../lib/i18n";
import type { Preview } from "../lib/types";
import { Button, Dialog, Tag } from "../parts/basics";
import { StatusIcon } from "../parts/icons";
import { Feet, useAct } from "./ActionDialog";

const MOST = 200;

export function RetryDialog({ steps, onClose }: { steps: string[] | null; onClose: () => void }): ReactNode {
  const { store } = useScope();
  const [clean, setClean] = useState(false);
  const [force, setForce] = useState(false);
  const [preview, setPreview] = useState<Preview | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const { busy, act } = useAct("retry", onClose);
  const body = { ...(steps ? { steps } : {}), ...(clean ? { clean } : {}), ...(force ? { force } : {}) };
  const wanted = JSON.stringify(body);
  useEffect(() => {
    const abort = new AbortController();
    setPreview(null);
    setProblem(null);
    post<Preview>(at("runs", store.id, "retry"), { ...(JSON.parse(wanted) as typeof body), dry_run: true }, abort.signal)
      .then(setPreview, (error: Problem) => { if (!abort.signal.aborted) setProblem(error); });
    return () => abort.abort();
  }, [store.id, wanted]);
  return (
    <Dialog wide title={steps ? t("retry.title_step", { step: steps.join(", ") }) : t("retry.title")} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void act(clean ? { ...body, confirmed: true } : body); }}>
        <p className="muted">{t("retry.text")}</p>
        <div className="retry-options">
          {!steps && <label className="check"><input type="checkbox" checked={clean} onChange={(event) => setClean(event.target.checked)} /> {t("retry.clean")}</label>}
          <label className="check"><input type="checkbox" checked={force} onChange={(event) => setForce(event.target.checked)} /> {t("retry.force")}</label>
        </div>
        <div aria-live="polite" aria-busy={!preview && !problem} className="retry-preview" data-preview={preview ? "ready" : problem ? "refused" : "loading"}>
          {!preview && !problem && <p className="muted">{t("common.loading")}</p>}
          {problem && (
            <div className="card bad"><p className="card-head"><code>{problem.code}</code></p><p className="message">{problem.message}</p>{problem.hint && <p className="muted">{problem.hint}</p>}</div>
          )}
          {preview && <Shown preview={preview} />}
        </div>
        <Feet onClose={onClose}>
          <Button submit kind="primary" icon="retry" name="send" disabled={busy || !preview}>
            {preview ? t("retry.do", { n: preview.rerun.length }) : t("action.retry")}
          </Button>
        </Feet>
      </form>
    </Dialog>
  );
}

function Shown({ preview }: { preview: Preview }): ReactNode {
  const { store } = useScope();
  const once = new Set(preview.once);
  const { seconds, cost } = { seconds: preview.estimate["seconds"] ?? preview.estimate["time"], cost: preview.estimate["cost"] };
  const damaged = Object.entries(preview.damaged ?? {});
  return (
    <>
      {once.size > 0 && (
        <p className="notice warn" role="alert"><b>{t("retry.once", { n: once.size })}</b> <span className="mono">{preview.once.join(", ")}</span></p>
      )}
      {damaged.map(([path, why]) => <p key={path} className="notice warn"><span className="mono">{path}</span> {why}</p>)}
      {preview.backup && <p className="notice">{t("retry.backup", { path: preview.backup })}</p>}
      <h3>{t("retry.again")} <span className="count">{preview.rerun.length}</span>
        {seconds !== undefined && <span className="muted small"> {t("retry.estimate", { span: duration(seconds) })}</span>}
        {cost !== undefined && cost > 0 && <span className="muted small"> {amount(cost, "cost")}</span>}
      </h3>
      <ul className="rerun">
        {preview.rerun.slice(0, MOST).map(({ step, why }) => (
          <li key={step}>
            <StatusIcon status={store.run?.steps[step]?.status ?? "pending"} size={14} />
            <code>{step}</code>
            <span className="muted">{why}</span>
            {preview.roots.includes(step) && <Tag tone="accent">{t("retry.root")}</Tag>}
            {once.has(step) && <Tag tone="warn">{t("effect.name.once")}</Tag>}
          </li>
        ))}
        {preview.rerun.length > MOST && <li className="muted">{t("common.and_more", { n: preview.rerun.length - MOST })}</li>}
      </ul>
      <details className="kept">
        <summary>{t("retry.kept", { n: preview.kept.length })}</summary>
        <p className="mono small">{preview.kept.slice(0, MOST).join(", ")}{preview.kept.length > MOST ? " …" : ""}</p>
      </details>
    </>
  );
}
