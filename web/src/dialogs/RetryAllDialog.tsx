// Every run that failed, retried at once: shown before it happens, run by run.
import { type ReactNode, useEffect, useState } from "react";
import { post, type Problem } from "../lib/api";
import { shortId } from "../lib/format";
import { t } from "../lib/i18n";
import { bad, good } from "../lib/toasts";
import type { ManyRetried, RetriedRow } from "../lib/types";
import { Button, Dialog, Tag } from "../parts/basics";
import { StatusIcon } from "../parts/icons";
import { Feet } from "./ActionDialog";

export function RetryAllDialog({ onClose }: { onClose: () => void }): ReactNode {
  const [force, setForce] = useState(false);
  const [found, setFound] = useState<ManyRetried | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const abort = new AbortController();
    setFound(null);
    setProblem(null);
    post<ManyRetried>("/retry", { dry_run: true, force }, abort.signal)
      .then(setFound, (error: Problem) => { if (!abort.signal.aborted) setProblem(error); });
    return () => abort.abort();
  }, [force]);
  const able = (found?.runs ?? []).filter((row) => row.ok);
  const refused = (found?.runs ?? []).filter((row) => !row.ok);
  const once = able.reduce((sum, row) => sum + (row.preview?.once.length ?? 0), 0);
  const send = async (): Promise<void> => {
    setBusy(true);
    try {
      const done = await post<ManyRetried>("/retry", { force });
      const went = done.runs.filter((row) => row.ok).length;
      const not = Math.max(0, able.length - went);
      good(t("retry_all.done", { n: went }), not > 0 ? t("retry_all.some", { n: not }) : "");
      onClose();
    } catch (error) {
      bad(error);
      setBusy(false);
    }
  };
  return (
    <Dialog wide title={t("retry_all.title")} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void send(); }}>
        <p className="muted">{t("retry.text")}</p>
        <div className="retry-options">
          <label className="check"><input type="checkbox" checked={force} onChange={(event) => setForce(event.target.checked)} /> {t("retry.force")}</label>
        </div>
        <div aria-live="polite" aria-busy={!found && !problem} className="retry-preview" data-preview={found ? "ready" : problem ? "refused" : "loading"}>
          {!found && !problem && <p className="muted">{t("common.loading")}</p>}
          {problem && <div className="card bad"><p className="card-head"><code>{problem.code}</code></p><p className="message">{problem.message || t("problem.unreachable")}</p></div>}
          {found && found.runs.length === 0 && <p>{t("retry_all.none")}</p>}
          {once > 0 && <p className="notice warn" role="alert"><b>{t("retry.once", { n: once })}</b> <span className="mono">{able.flatMap((row) => row.preview?.once ?? []).slice(0, 20).join(", ")}</span></p>}
          {able.length > 0 && <ul className="rerun">{able.map((row) => <Row key={row.run_id} row={row} />)}</ul>}
          {refused.length > 0 && <><p className="muted">{t("retry_all.not")}</p><ul className="rerun">{refused.map((row) => <Row key={row.run_id} row={row} />)}</ul></>}
          {found && found.left > 0 && <p className="notice">{t("retry_all.left", { n: found.left })}</p>}
        </div>
        <Feet onClose={onClose}>
          <Button submit kind="primary" icon="retry" name="send" disabled={busy || able.length === 0}>{t("retry_all.do", { n: able.length })}</Button>
        </Feet>
      </form>
    </Dialog>
  );
}

function Row({ row }: { row: RetriedRow }): ReactNode {
  const count = row.preview?.rerun.length ?? 0;
  return (
    <li data-run={row.run_id} data-ok={row.ok}>
      <StatusIcon status={row.before} size={14} />
      <span className="run-objective">{row.objective || t("run.no_objective")}</span>
      <code>{shortId(row.run_id)}</code>
      {row.ok && <span className="muted">{count > 0 ? t("retry_all.row", { n: count }) : t("retry_all.goes_on")}</span>}
      {row.preview && row.preview.once.length > 0 && <Tag tone="warn">{t("effect.name.once")}</Tag>}
      {row.problem && <span className="muted"><code>{row.problem.code}</code> {row.problem.detail} {row.problem.hint}</span>}
    </li>
  );
}
