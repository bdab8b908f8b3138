// Which keys there are.
import type { ReactNode } from "react";
import { type Key, t } from "../lib/i18n";
import { Dialog } from "../parts/basics";

const KEYS: [string[], Key][] = [
  [["j", "k"], "help.move"], [["Enter"], "help.open_row"], [["Esc"], "help.close"], [["/"], "help.search"], [["n"], "help.new"],
  [["g", "l"], "help.list"], [["g", "c"], "help.setup"], [["g", "g"], "help.graph"], [["g", "t"], "help.timeline"], [["g", "s"], "help.steps"],
  [["g", "e"], "help.events"], [["g", "p"], "help.plan"], [["g", "a"], "help.files"],
  [["+", "−"], "help.zoom"], [["f"], "help.fit"], [["c"], "help.critical"], [["?"], "help.this"],
];

export function HelpDialog({ version, onClose }: { version: string; onClose: () => void }): ReactNode {
  return (
    <Dialog title={t("help.title")} onClose={onClose}>
      <dl className="keys">
        {KEYS.map(([keys, text]) => <div key={text}><dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{t(text)}</dd></div>)}
      </dl>
      <p className="muted small">Rerail {version}</p>
    </Dialog>
  );
}
