// The run as a graph. Where things stand depends on the plan alone; each node listens for its own step, so a change of
// status draws one node again. Only what can be seen is drawn.
import {
  Background, BackgroundVariant, type Edge, type EdgeTypes, MiniMap, type Node, type NodeTypes, Panel, Position, ReactFlow,
  ReactFlowProvider, useReactFlow, useStore,
} from "@xyflow/react";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useScope } from "../lib/context";
import { fold, type Folded, gravest, type Group, groupsOf, stepNode } from "../lib/fold";
import { useWide } from "../lib/hooks";
import { t } from "../lib/i18n";
import { useKeys } from "../lib/keys";
import { edgeKey, layered, type Point } from "../lib/layout";
import { stepsOf } from "../lib/patch";
import { type RunStore, usePart } from "../lib/store";
import { Button, Empty } from "../parts/basics";
import { StatusIcon } from "../parts/icons";
import { word } from "../lib/i18n";
import type { StepStatus } from "../lib/types";
import { GraphContext, GroupNode, StepNode, WayEdge } from "./graphParts";
import { type Line, ManyEdges } from "./ManyEdges";

const nodeTypes: NodeTypes = { step: StepNode, group: GroupNode };
const edgeTypes: EdgeTypes = { way: WayEdge };
const WIDE = { step: { width: 212, height: 54 }, group: { width: 212, height: 76 } };
const NARROW = { step: { width: 158, height: 54 }, group: { width: 158, height: 76 } };
const MANY = 500; // boxes that are not looked at all at once: the map shows the whole
const FIT = { padding: { x: 0.06, top: "60px", bottom: "76px" }, maxZoom: 1.1 } as const; // clear of the tools and the key

const FAR = 0.4; // closeness below which nobody can read what stands in a box

const MOST_EDGES = 500; // as elements of the page

interface Drawn {
  nodes: Node[];
  edges: Edge[];
  lines: Line[]; // edges for the canvas, if there are too many for elements
}

const shapeOf = (store: RunStore): string => store.shape;
const criticalOf = (store: RunStore): string => JSON.stringify(store.run?.critical ?? []);

export default function GraphTab(): ReactNode {
  return <ReactFlowProvider><Graph /></ReactFlowProvider>;
}

function draw(folded: Folded, across: boolean, critical: ReadonlySet<string>, boxes: typeof WIDE): Drawn {
  const size = folded.groups.size > 0 ? boxes.group : boxes.step;
  const sizes = across ? { along: size.width + 76, across: size.height + 18 } : { along: size.height + 52, across: size.width + 22 };
  const plan = layered(folded.nodes, folded.edges, sizes);
  const turned = ({ x, y }: Point): Point => (across ? { x, y } : { x: y, y: x });
  const nodes = folded.nodes.map((id): Node => {
    const group = folded.groups.get(id);
    const { width, height } = group ? boxes.group : boxes.step;
    const middle = turned(plan.places.get(id)!);
    return {
      id, type: group ? "group" : "step", position: { x: middle.x - width / 2, y: middle.y - height / 2 }, width, height,
      data: group ? { group } : { step: id.slice(5) },
      // A node whose ends are known is not drawn once, out of sight, to find out where they are.
      ...(folded.edges.length > MOST_EDGES ? { handles: [] } : {}),
      draggable: false, connectable: false, selectable: false, focusable: false,
      sourcePosition: across ? Position.Right : Position.Bottom, targetPosition: across ? Position.Left : Position.Top,
    };
  });
  const ways = [...critical];
  const chain = new Set(ways.slice(1).map((id, index) => edgeKey(folded.home.get(ways[index]!) ?? "", folded.home.get(id) ?? "")));
  if (folded.edges.length > MOST_EDGES) {
    const half = across ? { x: size.width / 2, y: 0 } : { x: 0, y: size.height / 2 };
    const lines = folded.edges.map(({ from, to }): Line => {
      const [a, b] = [turned(plan.places.get(from)!), turned(plan.places.get(to)!)];
      return { from: { x: a.x + half.x, y: a.y + half.y }, to: { x: b.x - half.x, y: b.y - half.y }, critical: chain.has(edgeKey(from, to)) };
    });
    return { nodes, edges: [], lines };
  }
  const edges = folded.edges.map(({ from, to }): Edge => {
    const key = edgeKey(from, to);
    const points = plan.routes.get(key)?.map(turned) ?? [];
    return {
      id: key, source: from, target: to, type: "way", focusable: false, selectable: false,
      data: { points, across, size, critical: chain.has(key) }, zIndex: chain.has(key) ? 1 : 0,
    };
  });
  return { nodes, edges, lines: [] };
}

function Graph(): ReactNode {
  const { store, selected, select } = useScope();
  const shape = usePart(store, shapeOf);
  const path = usePart(store, criticalOf);
  const wide = useWide("(min-width: 720px)");
  const [turned, setTurned] = useState(false);
  const [showCritical, setShowCritical] = useState(true);
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [unfolded, setUnfolded] = useState(false);
  const across = wide !== turned;
  const flow = useReactFlow();
  const fit = (): void => void flow.fitView(FIT);
  const opened = useRef<string[]>([]);

  const steps = useMemo(() => stepsOf(store.run), [store, shape]);
  const groups = useMemo(() => groupsOf(steps), [steps]);
  const folded = useMemo(() => fold(steps, unfolded ? [] : groups, open), [steps, groups, open, unfolded]);
  const critical = useMemo(() => new Set(showCritical ? (JSON.parse(path) as string[]) : []), [path, showCritical]);
  const { nodes, edges, lines } = useMemo(() => draw(folded, across, critical, wide ? WIDE : NARROW), [folded, across, critical, wide]);
  const many = lines.length > 0;
  const far = useStore((state) => state.transform[2] < FAR) && many;
  const box = useRef<HTMLDivElement>(null);
  // While the view moves, what is drawn is moved as it is; it is not made sharper or blurrier by that.
  const moving = (now: boolean) => (): void => void box.current?.classList.toggle("moving", now && many);
  const scope = useMemo(() => ({ critical, plain: many, far, toggle: (group: Group) => {
    opened.current = group.members;
    setOpen((old) => new Set([...old, group.id]));
  } }), [critical, many, far]);

  // A new drawing is looked at as a whole; after a group was opened, what was in it.
  const laid = useRef("");
  const drawing = `${across} ${unfolded} ${nodes.length}`;
  useEffect(() => {
    if (laid.current === drawing) return;
    laid.current = drawing;
    const members = opened.current.map((id) => ({ id: stepNode(id) }));
    opened.current = [];
    const look = (): void => {
      if (members.length > 0 && members.length <= MANY) void flow.fitView({ ...FIT, nodes: members });
      else if (nodes.length <= MANY) void flow.fitView(FIT);
      else {
        const first = flow.getNode(members[0]?.id ?? nodes[0]!.id) ?? nodes[0]!;
        void flow.setViewport({ x: 40 - first.position.x * 0.6, y: 80 - first.position.y * 0.6, zoom: 0.6 });
      }
    };
    const timer = setTimeout(look, 60);
    return () => clearTimeout(timer);
  }, [drawing, flow]);
  useEffect(() => {
    if (selected === null) return;
    const home = folded.home.get(selected);
    const node = home ? flow.getNode(home) : undefined;
    if (!node) return;
    const { x, y, zoom } = flow.getViewport();
    const box = document.querySelector(".view-graph")?.getBoundingClientRect();
    const left = node.position.x * zoom + x;
    const top = node.position.y * zoom + y;
    const seen = box && left > 0 && top > 0 && left + 160 * zoom < box.width && top + 54 * zoom < box.height;
    if (!seen) void flow.setCenter(node.position.x + 106, node.position.y + 27, { zoom: Math.max(zoom, 0.7), duration: calm() ? 0 : 200 });
  }, [selected, folded, flow]);
  useKeys({
    "+": () => void flow.zoomIn(), "=": () => void flow.zoomIn(), "-": () => void flow.zoomOut(),
    f: fit,
    c: () => setShowCritical((old) => !old),
  });
  if (steps.length === 0) return <Empty title={t("graph.empty")} text={t("graph.empty_text")} />;
  return (
    <GraphContext.Provider value={scope}>
      <ReactFlow
        nodes={nodes} edges={edges} nodeTypes={nodeTypes} edgeTypes={edgeTypes} onlyRenderVisibleElements
        nodesDraggable={false} nodesConnectable={false} nodesFocusable={false} edgesFocusable={false} elementsSelectable={false}
        minZoom={nodes.length > MANY ? 0.14 : 0.04} maxZoom={1.6} proOptions={{ hideAttribution: true }} fitView fitViewOptions={FIT}
        deleteKeyCode={null} onPaneClick={() => select(null)} aria-label={t("graph.label")} panOnScroll={false}
        disableKeyboardA11y ref={box} onMoveStart={moving(true)} onMoveEnd={moving(false)}
      >
        {many && <ManyEdges lines={lines} across={across} />}
        {!many && <Background variant={BackgroundVariant.Dots} gap={22} size={1.4} />}
        <Overview store={store} folded={folded} />
        <Panel position="top-left" className="graph-tools">
          <Button small kind="quiet" icon="plus" label={t("graph.in")} onClick={() => void flow.zoomIn()} />
          <Button small kind="quiet" icon="minus" label={t("graph.out")} onClick={() => void flow.zoomOut()} />
          <Button small kind="quiet" icon="fit" label={t("graph.fit")} onClick={fit} />
          <Button small kind="quiet" icon="turn" label={t("graph.turn")} onClick={() => setTurned(!turned)} />
          <Button small kind="quiet" icon="path" label={t("graph.critical")} pressed={showCritical} onClick={() => setShowCritical(!showCritical)} />
          {groups.length > 0 && (
            <Button small kind="quiet" icon={unfolded || open.size > 0 ? "fold" : "unfold"} name="fold"
              onClick={() => { setUnfolded(!(unfolded || open.size > 0)); setOpen(new Set()); }}>
              {unfolded || open.size > 0 ? t("graph.fold") : t("graph.unfold")}
            </Button>
          )}
        </Panel>
        <Panel position="bottom-left"><Legend store={store} /></Panel>
      </ReactFlow>
      <p className="visually-hidden">{t("graph.table_hint")}</p>
    </GraphContext.Provider>
  );
}

const calm = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

const seqOf = (store: RunStore): number => store.run?.seq ?? 0;

function Overview({ store, folded }: { store: RunStore; folded: Folded }): ReactNode {
  const wide = useWide("(min-width: 900px)");
  usePart(store, seqOf);
  if (!wide || folded.nodes.length < 30) return null;
  const status = (node: Node): StepStatus => {
    const steps = store.run?.steps ?? {};
    const group = folded.groups.get(node.id);
    if (!group) return steps[node.id.slice(stepNode("").length)]?.status ?? "pending";
    return gravest(group.members.map((id) => steps[id]?.status ?? "pending"));
  };
  return <MiniMap pannable zoomable ariaLabel={t("graph.map")} nodeClassName={(node: Node) => `fill s-${status(node)}`} nodeBorderRadius={6} nodeStrokeWidth={0} />;
}

const LEGEND: readonly StepStatus[] = ["succeeded", "degraded", "running", "waiting", "in_doubt", "failed", "skipped", "cancelled", "ready", "pending"];
const presentOf = (store: RunStore): string => {
  const seen = new Set(Object.values(store.run?.steps ?? {}).map((step) => step.status));
  return LEGEND.filter((status) => seen.has(status)).join(" ");
};

function Legend({ store }: { store: RunStore }): ReactNode {
  const present = usePart(store, presentOf).split(" ").filter(Boolean) as StepStatus[];
  return (
    <ul className="legend" aria-label={t("graph.legend")}>
      {present.map((status) => <li key={status}><StatusIcon status={status} size={13} />{word("status", status)}</li>)}
      <li><span className="legend-critical" aria-hidden="true" />{t("graph.critical_short")}</li>
    </ul>
  );
}
