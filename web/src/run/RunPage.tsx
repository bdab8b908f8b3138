// One run: what it is and came to, and the ways to look at it.
import { lazy, type ReactNode, Suspense, useCallback, useEffect, useMemo, useState } from "react";
import { ActionDialog } from "../dialogs/ActionDialog";
import type { Problem } from "../lib/api";
import { type Asked, RunContext } from "../lib/context";
import { useWide } from "../lib/hooks";
import { t, word } from "../lib/i18n";
import { useKeys } from "../lib/keys";
import { stepsOf } from "../lib/patch";
import { address, go, type Route, type Tab, TABS } from "../lib/route";
import type { Connection } from "../lib/sse";
import { RunStore, usePart, useRun } from "../lib/store";
import { Empty } from "../parts/basics";
import { EventsTab } from "./EventsTab";
import { FilesTab } from "./FilesTab";
import { Header } from "./Header";
import { PlanTab } from "./PlanTab";
import { StepDrawer } from "./StepDrawer";
import { StepsTab } from "./StepsTab";
import { TimelineTab } from "./TimelineTab";
import { WhatIfTab } from "./WhatIfTab";

const GraphTab = lazy(() => import("./GraphTab"));
const KEYS: Record<Tab, string> = { graph: "g g", timeline: "g t", steps: "g s", events: "g e", plan: "g p", files: "g a", whatif: "g w" };
const connectionOf = (store: RunStore): Connection => store.connection;
const problemOf = (store: RunStore): Problem | null => store.problem;

type RunRoute = Extract<Route, { page: "run" }>;

export function RunPage({ route, onState, readOnly }: {
  route: RunRoute; onState: (state: Connection) => void; readOnly: boolean;
}): ReactNode {
  const store = useMemo(() => new RunStore(route.run), [route.run]);
  const [asked, setAsked] = useState<Asked | null>(null);
  useEffect(() => store.open(), [store]);
  const run = useRun(store);
  const connection = usePart(store, connectionOf);
  const problem = usePart(store, problemOf);
  useEffect(() => onState(connection), [connection, onState]);
  useEffect(() => {
    document.title = run ? t("title.run", { status: word("status", run.status), objective: run.objective || run.run_id }) : t("title.list");
  }, [run?.status, run?.objective, run?.run_id]);
  const { tab, step } = route;
  const select = useCallback(
    (id: string | null) => go({ page: "run", run: route.run, tab, step: id }, true),
    [route.run, tab],
  );
  const scope = useMemo(() => ({ store, selected: step, select, ask: setAsked }), [store, step, select]);

  const move = (by: number): void => {
    const ids = stepsOf(store.run).map((step) => step.id);
    const at = step === null ? (by > 0 ? -1 : ids.length) : ids.indexOf(step);
    const next = ids[Math.max(0, Math.min(ids.length - 1, at + by))];
    if (next !== undefined) select(next);
  };
  const tabs = Object.fromEntries(TABS.map((name) => [KEYS[name], () => go({ ...route, tab: name })]));
  useKeys({ ...tabs, Escape: () => (step === null ? undefined : select(null)), j: () => move(1), k: () => move(-1) });

  if (problem && !run) {
    return (
      <main id="content" tabIndex={-1} className="list-page">
        <Empty title={problem.message || t("problem.unreachable")} text={problem.hint}><a href={address({ page: "list" })}>{t("nav.back")}</a></Empty>
      </main>
    );
  }
  if (!run) return <main id="content" tabIndex={-1} className="list-page"><p className="muted loading" role="status">{t("common.loading")}</p></main>;
  return (
    <RunContext.Provider value={scope}>
      <div className={step === null ? "run-page" : "run-page with-drawer"}>
        <main id="content" tabIndex={-1} className="run-main">
          {problem && <p className="notice bad run-problem" role="alert">{problem.message} {problem.hint}</p>}
          <Header run={run} readOnly={readOnly || problem !== null} />
          <Tabs route={route} />
          <section id="view" role="tabpanel" aria-labelledby={`tab-${tab}`} className={`view view-${tab}`}>
            <View tab={tab} />
          </section>
        </main>
        {step !== null && <StepDrawer key={step} id={step} readOnly={readOnly || problem !== null} />}
      </div>
      {asked && <ActionDialog asked={asked} onClose={() => setAsked(null)} />}
    </RunContext.Provider>
  );
}

function View({ tab }: { tab: Tab }): ReactNode {
  switch (tab) {
    case "graph": return <Suspense fallback={<p className="muted loading">{t("common.loading")}</p>}><GraphTab /></Suspense>;
    case "timeline": return <TimelineTab />;
    case "steps": return <StepsTab />;
    case "events": return <EventsTab />;
    case "plan": return <PlanTab />;
    case "files": return <FilesTab />;
    case "whatif": return <WhatIfTab />;
  }
}

function Tabs({ route }: { route: RunRoute }): ReactNode {
  const wide = useWide("(min-width: 720px)");
  useEffect(() => {
    document.getElementById(`tab-${route.tab}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [route.tab, wide]);
  const turn = (by: number): void => {
    const next = TABS[(TABS.indexOf(route.tab) + by + TABS.length) % TABS.length]!;
    go({ ...route, tab: next });
    requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus());
  };
  return (
    <div className="tabs" role="tablist" aria-label={t("tab.all")} onKeyDown={(event) => {
      if (event.key === "ArrowRight") turn(1);
      else if (event.key === "ArrowLeft") turn(-1);
    }}>
      {TABS.map((name) => (
        <button key={name} id={`tab-${name}`} type="button" role="tab" aria-selected={name === route.tab} aria-controls="view"
          tabIndex={name === route.tab ? 0 : -1} onClick={() => go({ ...route, tab: name })}>
          {wide ? t(`tab.${name}`) : t(`tab.${name}.short`)}
        </button>
      ))}
    </div>
  );
}
