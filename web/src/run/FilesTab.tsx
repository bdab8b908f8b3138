// What tools said, and what they left.
import { type ReactNode, useEffect, useRef, useState } from "react";
import { at, download, get, peek } from "../lib/api";
import { useScope } from "../lib/context";
import { bytes, clock } from "../lib/format";
import { useSettled } from "../lib/hooks";
import { t } from "../lib/i18n";
import { type RunStore, usePart } from "../lib/store";
import { bad } from "../lib/toasts";
import type { ArtifactRow, LogLine } from "../lib/types";
import { Button, Dialog, Empty } from "../parts/basics";

const seqOf = (store: RunStore): number => store.run?.seq ?? 0;
const TAIL = 500;

export function FilesTab(): ReactNode {
  const { store, select } = useScope();
  const seq = useSettled(usePart(store, seqOf), 400);
  const [lines, setLines] = useState<LogLine[] | null>(null);
  const [artifacts, setArtifacts] = useState<ArtifactRow[] | null>(null);
  const [shown, setShown] = useState<ArtifactRow | null>(null);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const abort = new AbortController();
    const failed = (error: unknown): void => { if (!abort.signal.aborted) bad(error); };
    get<{ lines: LogLine[] }>(at("runs", store.id, "logs"), { tail: TAIL }, abort.signal).then((answer) => setLines(answer.lines), failed);
    get<ArtifactRow[] | { artifacts: ArtifactRow[] }>(at("runs", store.id, "artifacts"), {}, abort.signal)
      .then((answer) => setArtifacts(Array.isArray(answer) ? answer : answer.artifacts), failed);
    return () => abort.abort();
  }, [store.id, seq]);
  useEffect(() => { if (box.current) box.current.scrollTop = box.current.scrollHeight; }, [lines]);
  return (
    <div className="files">
      <section aria-label={t("files.logs")}>
        <h2>{t("files.logs")}</h2>
        {lines?.length === 0 && <Empty title={t("files.no_logs")} />}
        <div className="log-box" ref={box} tabIndex={0} role="log" aria-label={t("files.logs")}>
          {lines?.map((line, index) => (
            <p key={index} className={`log-line k-${line.kind}`}><span className="muted">{line.at === null ? "" : clock(line.at)}</span> {line.step && <b>{line.step}</b>} <span>{line.text}</span></p>
          ))}
        </div>
      </section>
      <section aria-label={t("files.artifacts")}>
        <h2>{t("files.artifacts")}</h2>
        {artifacts?.length === 0 && <Empty title={t("files.no_artifacts")} />}
        <ul className="artifact-list">
          {artifacts?.map((one) => (
            <li key={`${one.step} ${one.name}`}>
              <span className="artifact-name">{one.name}</span>
              <button type="button" className="link mono" onClick={() => select(one.step)}>{one.step}</button>
              <span className="muted">{one.size === undefined ? "" : bytes(one.size)}</span>
              <span className="artifact-tools">
                <Button small kind="quiet" onClick={() => setShown(one)}>{t("files.look")}</Button>
                <Button small kind="quiet" icon="down" label={t("value.save")} onClick={() => void download(at("runs", store.id, "artifacts", one.name), one.name).catch(bad)} />
              </span>
            </li>
          ))}
        </ul>
      </section>
      {shown && <Look run={store.id} artifact={shown} onClose={() => setShown(null)} />}
    </div>
  );
}

function Look({ run, artifact, onClose }: { run: string; artifact: ArtifactRow; onClose: () => void }): ReactNode {
  const [text, setText] = useState<{ text: string; whole: boolean } | null>(null);
  useEffect(() => {
    peek(at("runs", run, "artifacts", artifact.name), 100_000).then(setText, (error: unknown) => { bad(error); onClose(); });
  }, [run, artifact, onClose]);
  return (
    <Dialog wide title={artifact.name} onClose={onClose}>
      {text === null ? <p className="muted">{t("common.loading")}</p> : <pre className="look" tabIndex={0}>{text.text}</pre>}
      {text && !text.whole && <p className="muted">{t("files.cut")}</p>}
    </Dialog>
  );
}
