// The frame: the bar at the top, the page below it, and what lies over both.
import { type ReactNode, useEffect, useState } from "react";
import { HelpDialog } from "./dialogs/HelpDialog";
import { RetryAllDialog } from "./dialogs/RetryAllDialog";
import { StartDialog } from "./dialogs/StartDialog";
import { TokenDialog } from "./dialogs/TokenDialog";
import { get, whenUnauthorized } from "./lib/api";
import { nextLanguage, setLanguage, t, textOf, useLanguage } from "./lib/i18n";
import { useKeys } from "./lib/keys";
import { address, go, useRoute } from "./lib/route";
import type { Connection } from "./lib/sse";
import { nextTheme, setTheme, theme, type Theme } from "./lib/theme";
import type { Health } from "./lib/types";
import { ListPage } from "./list/ListPage";
import { Button, Toasts } from "./parts/basics";
import { Icon, Mark } from "./parts/icons";
import { RunPage } from "./run/RunPage";
import { SetupPage } from "./setup/SetupPage";

type Over = "help" | "start" | "retry" | "token" | null;

export function App(): ReactNode {
  const lang = useLanguage();
  const other = nextLanguage();
  const route = useRoute();
  const [over, setOver] = useState<Over>(null);
  const [connection, setConnection] = useState<Connection>("connecting");
  const [health, setHealth] = useState<Health | null>(null);
  const [turn, setTurn] = useState(0); // a new token begins everything anew
  useEffect(() => whenUnauthorized(() => setOver("token")), []);
  useEffect(() => {
    get<Health>("/health").then(setHealth, () => undefined);
  }, [turn, connection === "live"]);
  useKeys({
    "?": () => setOver("help"),
    "g l": () => go({ page: "list" }),
    "g c": () => go({ page: "setup" }),
    n: () => { if (!health?.read_only) setOver("start"); },
    "/": () => document.querySelector<HTMLInputElement>("[data-search]")?.focus(),
  });
  const readOnly = health?.read_only ?? false;
  return (
    <div className="app">
      <a className="jump" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>
        {t("a11y.skip")}
      </a>
      <header className="bar">
        <a className="brand" href={address({ page: "list" })} aria-label={t("nav.home")}><Mark /><span>Rerail</span></a>
        <nav aria-label={t("nav.main")}>
          <a href={address({ page: "list" })} aria-current={route.page === "list" ? "page" : undefined}>{t("nav.runs")}</a>
        </nav>
        <span className="bar-gap" />
        <Line connection={connection} />
        {readOnly && <span className="tag">{t("nav.read_only")}</span>}
        {!readOnly && <Button kind="primary" small icon="plus" onClick={() => setOver("start")} name="start">{t("start.open")}</Button>}
        <button type="button" className="button quiet square" lang={textOf(other, "language.tag")}
          aria-label={textOf(other, "nav.language")} title={textOf(other, "nav.language")} onClick={() => setLanguage(other)}>
          {textOf(other, "language.short")}
        </button>
        <a className="button quiet square" href={address({ page: "setup" })} aria-label={t("nav.setup")} title={t("nav.setup")} aria-current={route.page === "setup" ? "page" : undefined}><Icon name="gear" /></a>
        <ThemeButton />
        <Button kind="quiet" icon="help" label={t("help.open")} onClick={() => setOver("help")} />
      </header>
      {route.page === "list"
        ? <ListPage key={`${turn} ${lang}`} onState={setConnection} onStart={readOnly ? null : () => setOver("start")} onRetry={readOnly ? null : () => setOver("retry")} />
        : route.page === "setup" ? <SetupPage key={`${turn} ${lang}`} readOnly={readOnly} />
        : <RunPage key={`${turn} ${lang} ${route.run}`} route={route} onState={setConnection} readOnly={readOnly} />}
      {over === "help" && <HelpDialog version={health?.version ?? ""} onClose={() => setOver(null)} />}
      {over === "start" && <StartDialog onClose={() => setOver(null)} />}
      {over === "retry" && <RetryAllDialog onClose={() => setOver(null)} />}
      {over === "token" && <TokenDialog onClose={() => setOver(null)} onToken={() => { setOver(null); setTurn(turn + 1); }} />}
      <Toasts />
    </div>
  );
}

function Line({ connection }: { connection: Connection }): ReactNode {
  return (
    <span className={`line ${connection}`} role="status" data-connection={connection}>
      <span className="dot" aria-hidden="true" />
      <span className="line-text">{t(`connection.${connection}`)}</span>
    </span>
  );
}

function ThemeButton(): ReactNode {
  const [now, setNow] = useState<Theme>(theme);
  const icon = now === "auto" ? "auto" : now === "light" ? "sun" : "moon";
  return (
    <Button kind="quiet" icon={icon} label={t(`theme.${now}`)} onClick={() => {
      setTheme(nextTheme(now));
      setNow(nextTheme(now));
    }} />
  );
}
