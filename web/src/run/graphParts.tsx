// The nodes and edges of the graph, each of which listens for its own step alone.
import { type EdgeProps, Handle, type NodeProps, Position } from "@xyflow/react";
import { createContext, memo, type ReactNode, useContext } from "react";
import { useScope } from "../lib/context";
import { duration } from "../lib/format";
import { gravest, type Group } from "../lib/fold";
import { t, word } from "../lib/i18n";
import type { Point } from "../lib/layout";
import { type RunStore, usePart, useStep } from "../lib/store";
import { Icon, StatusIcon } from "../parts/icons";
import { Progress } from "../parts/Progress";
import type { StepView } from "../lib/types";

export interface GraphScope {
  critical: ReadonlySet<string>;
  plain: boolean; // edges are drawn elsewhere, and need no ends
  far: boolean; // too many and too small to be read: forms and colours are enough
  toggle: (group: Group) => void;
}

export const GraphContext = createContext<GraphScope>({ critical: new Set(), plain: false, far: false, toggle: () => undefined });

function Ends({ source, target }: { source: Position | undefined; target: Position | undefined }): ReactNode {
  if (useContext(GraphContext).plain) return null;
  return (
    <>
      <Handle type="target" position={target ?? Position.Left} isConnectable={false} />
      <Handle type="source" position={source ?? Position.Right} isConnectable={false} />
    </>
  );
}

export const StepNode = memo(function StepNode({ data, sourcePosition, targetPosition }: NodeProps): ReactNode {
  const { store, selected, select } = useScope();
  const { critical, far } = useContext(GraphContext);
  const id = data["step"] as string;
  const step = useStep(store, id);
  if (!step) return null;
  const classes = ["step-node", `s-${step.status}`, critical.has(id) ? "critical" : "", selected === id ? "selected" : "", step.optional ? "optional" : "", far ? "far" : ""];
  return (
    <>
      <button type="button" className={classes.join(" ")} onClick={() => select(id)} data-step={id} data-status={step.status} aria-label={labelOf(step)} aria-pressed={selected === id}>
        {!far && <Near step={step} />}
      </button>
      <Ends source={sourcePosition} target={targetPosition} />
    </>
  );
});

function Near({ step }: { step: StepView }): ReactNode {
  return (
    <>
      <StatusIcon status={step.status} size={18} />
      <span className="node-text">
        <span className="node-line">
          <span className="node-title">{step.title || step.id}</span>
          {step.confirm ? <Icon name="gate" size={12} /> : null}
          {step.effect === "once" ? <Icon name="once" size={12} /> : null}
          {step.attempts > 1 && <span className="times">×{step.attempts}</span>}
        </span>
        <span className="node-line">
          <span className="node-sub">{step.tool}</span>
          {step.elapsed > 0 && <span className="node-time">{duration(step.elapsed)}</span>}
        </span>
      </span>
    </>
  );
}

export function labelOf(step: StepView): string {
  return t("step.label", { title: step.title || step.id, tool: step.tool, status: word("status", step.status) });
}

const countsOf = (store: RunStore, group: Group): string => {
  const counts: Record<string, number> = {};
  for (const id of group.members) {
    const status = store.run?.steps[id]?.status ?? "pending";
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return JSON.stringify(counts);
};

export const GroupNode = memo(function GroupNode({ data, sourcePosition, targetPosition }: NodeProps): ReactNode {
  const { store, selected } = useScope();
  const { toggle, critical } = useContext(GraphContext);
  const group = data["group"] as Group;
  const counts = JSON.parse(usePart(store, (of) => countsOf(of, group))) as Record<string, number>;
  const status = gravest(Object.keys(counts) as StepView["status"][]);
  const within = selected !== null && group.members.includes(selected);
  const name = group.kind === "band" ? t("graph.band", { n: group.label }) : group.label;
  const classes = ["group-node", `s-${status}`, within ? "selected" : "", group.members.some((id) => critical.has(id)) ? "critical" : ""];
  return (
    <>
      <button type="button" className={classes.join(" ")} onClick={() => toggle(group)} aria-expanded={false}
        aria-label={t("graph.group", { name, n: group.members.length, status: word("status", status) })}>
        <span className="group-head">
          <StatusIcon status={status} size={18} />
          <span className="node-title">{name}</span>
          <span className="count">{group.members.length}</span>
        </span>
        <Progress counts={counts} />
      </button>
      <Ends source={sourcePosition} target={targetPosition} />
    </>
  );
});

interface Way {
  points: Point[];
  across: boolean;
  size: { width: number; height: number };
  critical: boolean;
}

/** A curve from layer to layer; where a layer is passed, it runs straight, between the nodes of that layer. */
export function pathOf(from: Point, to: Point, way: Way): string {
  const half = (way.across ? way.size.width : way.size.height) / 2;
  const stops: Point[] = [from];
  for (const { x, y } of way.points) {
    if (way.across) stops.push({ x: x - half, y }, { x: x + half, y });
    else stops.push({ x, y: y - half }, { x, y: y + half });
  }
  stops.push(to);
  let path = `M${from.x},${from.y}`;
  for (let i = 1; i < stops.length; i++) {
    const [a, b] = [stops[i - 1]!, stops[i]!];
    if (way.across) {
      const middle = (a.x + b.x) / 2;
      path += a.y === b.y ? `L${b.x},${b.y}` : `C${middle},${a.y} ${middle},${b.y} ${b.x},${b.y}`;
    } else {
      const middle = (a.y + b.y) / 2;
      path += a.x === b.x ? `L${b.x},${b.y}` : `C${a.x},${middle} ${b.x},${middle} ${b.x},${b.y}`;
    }
  }
  return path;
}

const flowing = (store: RunStore, target: string): string => {
  const status = target.startsWith("step:") ? store.run?.steps[target.slice(5)]?.status : undefined;
  return status === "running" ? "flows" : status === "pending" || status === "skipped" || status === "cancelled" ? "faint" : "";
};

export const WayEdge = memo(function WayEdge({ sourceX, sourceY, targetX, targetY, target, data }: EdgeProps): ReactNode {
  const { store } = useScope();
  const way = data as unknown as Way;
  const state = usePart(store, (of) => flowing(of, target));
  const path = pathOf({ x: sourceX, y: sourceY }, { x: targetX, y: targetY }, way);
  return <path d={path} className={`way ${state} ${way.critical ? "critical" : ""}`} fill="none" />;
});
