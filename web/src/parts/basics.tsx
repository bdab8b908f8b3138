// Buttons, chips, dialogs, notices: what every view is made of.
import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { good } from "../lib/toasts";
import { t, word } from "../lib/i18n";
import { save } from "../lib/api";
import { dialogOpened, dismiss, useToasts, useTopDialog } from "../lib/toasts";
import type { RunStatus, StepStatus } from "../lib/types";
import { Icon, type IconName, StatusIcon } from "./icons";

export interface ButtonProps {
  children?: ReactNode;
  icon?: IconName;
  onClick?: () => void;
  kind?: "plain" | "primary" | "danger" | "quiet";
  label?: string; // for buttons that show an icon alone
  disabled?: boolean;
  pressed?: boolean;
  submit?: boolean;
  small?: boolean;
  name?: string;
}

export function Button(props: ButtonProps): ReactNode {
  const { children, icon, onClick, kind = "plain", label, disabled, pressed, submit, small, name } = props;
  const classes = ["button", kind, small ? "small" : "", children === undefined ? "square" : ""].join(" ");
  return (
    <button
      type={submit ? "submit" : "button"} className={classes} onClick={onClick} disabled={disabled}
      aria-label={label} title={label} aria-pressed={pressed} data-action={name}
    >
      {icon && <Icon name={icon} size={small ? 14 : 16} />}
      {children !== undefined && <span>{children}</span>}
    </button>
  );
}

type AnyStatus = StepStatus | RunStatus | "interrupted";

export function StatusChip({ status, text }: { status: AnyStatus; text?: string | undefined }): ReactNode {
  return (
    <span className={`chip s-${status}`}>
      <StatusIcon status={status} size={14} />
      {text ?? word("status", status)}
    </span>
  );
}

export function Tag({ children, tone = "", title }: { children: ReactNode; tone?: string; title?: string | undefined }): ReactNode {
  return <span className={`tag ${tone}`} title={title}>{children}</span>;
}

/** A modal dialog: the browser keeps the focus inside and gives it back. */
export function Dialog({ title, onClose, children, wide }: {
  title: string; onClose: () => void; children: ReactNode; wide?: boolean;
}): ReactNode {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    const dialog = box.current;
    if (dialog && !dialog.open) {
      dialog.showModal();
      // What there is to type comes first; else the title, from which Enter does nothing. Never the way out.
      const first = dialog.querySelector<HTMLElement>("textarea:not(:disabled), input:not(:disabled, [type=checkbox], [type=radio], [type=file])");
      (first ?? dialog.querySelector<HTMLElement>("h2"))?.focus();
    }
    const closed = dialogOpened(id);
    return () => {
      closed();
      if (before instanceof HTMLElement) before.focus();
    };
  }, [id]);
  return (
    <dialog
      ref={box} className={wide ? "dialog wide" : "dialog"} aria-labelledby={id}
      onCancel={(event) => { event.preventDefault(); onClose(); }}
      onMouseDown={(event) => { if (event.target === box.current) onClose(); }}
    >
      <div className="dialog-body">
        <header className="dialog-head">
          <h2 id={id} tabIndex={-1}>{title}</h2>
          <Button kind="quiet" icon="close" label={t("common.close")} onClick={onClose} />
        </header>
        {children}
      </div>
      <Toasts dialog={id} />
    </dialog>
  );
}

export function Toasts({ dialog = "" }: { dialog?: string }): ReactNode {
  const toasts = useToasts();
  if (useTopDialog() !== dialog) return null;
  return (
    <div className="toasts" role="region" aria-label={t("a11y.notices")} aria-live="assertive">
      {toasts.map((toast) => (
        <div key={toast.id} className={`toast ${toast.kind}`} role={toast.kind === "bad" ? "alert" : "status"}>
          <StatusIcon status={toast.kind === "bad" ? "failed" : "succeeded"} />
          <div>
            <p>{toast.text}</p>
            {toast.hint && <p className="muted">{toast.hint}</p>}
            {toast.code && <code>{toast.code}</code>}
          </div>
          <Button kind="quiet" small icon="close" label={t("common.close")} onClick={() => dismiss(toast.id)} />
        </div>
      ))}
    </div>
  );
}

export function Empty({ title, text, children }: { title: string; text?: string; children?: ReactNode }): ReactNode {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {text && <p className="muted">{text}</p>}
      {children}
    </div>
  );
}

export function Field({ label, hint, children }: { label: string; hint?: string; children: ReactNode }): ReactNode {
  return (
    <label className="field">
      <span className="field-label">{label}</span>
      {children}
      {hint && <span className="muted small">{hint}</span>}
    </label>
  );
}

const SHOWN = 6_000;
const MOST_SHOWN = 400_000;
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

function coloured(text: string): ReactNode[] {
  const out: ReactNode[] = [];
  let last = 0;
  for (const found of text.matchAll(TOKEN)) {
    if (found.index > last) out.push(text.slice(last, found.index));
    const kind = found[2] !== undefined ? "j-key" : found[1] !== undefined ? "j-text" : "j-value";
    out.push(<span key={found.index} className={kind}>{found[1] ?? found[0]}</span>);
    if (found[2] !== undefined) out.push(found[2]);
    last = found.index + found[0].length;
  }
  out.push(text.slice(last));
  return out;
}

/** A value as text, bounded in size, to copy and to save. Nothing of it is ever anything but text. */
export function Value({ value, name }: { value: unknown; name: string }): ReactNode {
  const [whole, setWhole] = useState(false);
  const isText = typeof value === "string";
  const text = isText ? value : (JSON.stringify(value, null, 2) ?? "");
  const shown = text.slice(0, whole ? MOST_SHOWN : SHOWN);
  const keep = (): void => save(new Blob([text], { type: "application/octet-stream" }), `${name}.${isText ? "txt" : "json"}`);
  return (
    <div className="value">
      <pre tabIndex={0} aria-label={name}>{isText || shown.length > 60_000 ? shown : coloured(shown)}</pre>
      {text.length > shown.length && !whole && (
        <div className="value-more">
          <Button small kind="quiet" onClick={() => setWhole(true)}>{t("value.more", { n: text.length - shown.length })}</Button>
        </div>
      )}
      <div className="value-tools">
        <Button small kind="quiet" icon="copy" label={t("value.copy")} onClick={() => {
          void navigator.clipboard?.writeText(text).then(() => good(t("value.copied")));
        }} />
        <Button small kind="quiet" icon="down" label={t("value.save")} onClick={keep} />
      </div>
    </div>
  );
}

export function Section({ title, count, children, open = true }: {
  title: string; count?: number | undefined; children: ReactNode; open?: boolean;
}): ReactNode {
  return (
    <details className="section" open={open}>
      <summary>
        <h3>{title}</h3>
        {count !== undefined && <span className="count">{count}</span>}
      </summary>
      <div className="section-body">{children}</div>
    </details>
  );
}
