// The files that a gate's call is made from, which whoever agrees may change first: as text here, or by another file.
import { type ReactNode, useState } from "react";
import { at, download, peek } from "../lib/api";
import { t } from "../lib/i18n";
import { bad } from "../lib/toasts";
import type { Json } from "../lib/types";
import { Button, Field, Tag } from "../parts/basics";

const MOST_TEXT = 200_000; // of a file that is edited here

export type Edits = Record<string, { text: string } | { base64: string; name: string }>;

/** What the server is sent: texts as they are, everything else as its bytes. */
export function editBody(edits: Edits): Json {
  return Object.fromEntries(Object.entries(edits).map(([path, edit]) => [path, "text" in edit ? edit.text : { base64: edit.base64 }]));
}

function without<T>(from: Record<string, T>, name: string): Record<string, T> {
  return Object.fromEntries(Object.entries(from).filter(([one]) => one !== name));
}

async function bytesOf(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

export function GateFiles({ run, files, edits, onEdits }: {
  run: string; files: string[]; edits: Edits; onEdits: (change: (old: Edits) => Edits) => void;
}): ReactNode {
  const [open, setOpen] = useState<Record<string, string | null>>({}); // path → as it was; null for what is no text
  const set = (path: string, edit: Edits[string] | null): void => onEdits((old) => {
    const rest = without(old, path);
    return edit ? { ...rest, [path]: edit } : rest;
  });
  const look = (path: string): void => {
    peek(at("runs", run, "artifacts", path), MOST_TEXT).then(({ text, whole }) => {
      const plain = whole && !text.includes("\u0000") && !text.includes("\ufffd");
      setOpen((old) => ({ ...old, [path]: plain ? text : null }));
    }, bad);
  };
  const replace = (path: string, file: File | undefined): void => {
    if (file) bytesOf(file).then((base64) => set(path, { base64, name: file.name }), bad);
  };
  const close = (path: string): void => {
    set(path, null);
    setOpen((old) => without(old, path));
  };
  return (
    <div className="gate-files">
      <p className="muted">{t("confirm.files")}</p>
      <ul className="artifact-list">
        {files.map((path) => {
          const edit = edits[path];
          const was = open[path];
          return (
            <li key={path} data-file={path}>
              <span className="artifact-name">{path}</span>
              {edit && <Tag tone="accent">{"text" in edit ? t("confirm.edited") : t("confirm.replaced", { name: edit.name })}</Tag>}
              <span className="artifact-tools">
                {(edit || was !== undefined) && <Button small kind="quiet" name="undo" onClick={() => close(path)}>{t("confirm.undo")}</Button>}
                {!edit && was === undefined && <Button small kind="quiet" icon="wrench" name="edit" onClick={() => look(path)}>{t("confirm.edit")}</Button>}
                <label className="button quiet small">
                  <input type="file" className="visually-hidden" aria-label={`${t("confirm.upload")} ${path}`} onChange={(event) => { replace(path, event.target.files?.[0]); event.target.value = ""; }} />
                  <span>{t("confirm.upload")}</span>
                </label>
                <Button small kind="quiet" icon="down" label={t("value.save")} onClick={() => void download(at("runs", run, "artifacts", path), path).catch(bad)} />
              </span>
              {was === null && !edit && <p className="muted small">{t("confirm.no_text")}</p>}
              {typeof was === "string" && (!edit || "text" in edit) && (
                <Field label={t("confirm.text_of", { name: path })}>
                  <textarea className="mono" autoFocus rows={10} spellCheck={false} value={edit && "text" in edit ? edit.text : was}
                    onChange={(event) => set(path, event.target.value === was ? null : { text: event.target.value })} />
                </Field>
              )}
            </li>
          );
        })}
      </ul>
    </div>
  );
}
