// Which steps are drawn as one: above some hundreds of steps, groups by stage, else by layer and tool, else by bands of
// layers. A folding never makes a cycle out of a plan that has none: a way of grouping that would is not taken.
import { type Edge, layersOf } from "./layout";
import type { StepStatus, StepView } from "./types";

export const FOLD_ABOVE = 240;
const MOST_GROUPS = 140;
const SMALLEST = 3; // fewer steps than this are not worth a box of their own

export interface Group {
  id: string; // "group:" and a key: no step is drawn under such an id, as nodes of steps begin with "step:"
  label: string;
  kind: "stage" | "tool" | "band";
  layer: number;
  members: string[];
}

export interface Folded {
  nodes: string[]; // ids of what is drawn: "step:…" and "group:…"
  groups: Map<string, Group>;
  edges: Edge[];
  home: Map<string, string>; // step id → id of the node that shows it
}

export const stepNode = (id: string): string => `step:${id}`;

/** The groups that a plan falls into; none for a plan that can be drawn as it is. */
export function groupsOf(steps: readonly StepView[]): Group[] {
  if (steps.length <= FOLD_ABOVE) return [];
  const edges = edgesOf(steps);
  const layers = layersOf(steps.map((step) => step.id), edges);
  const depth = (step: StepView): number => layers.get(step.id) ?? 0;
  const deepest = steps.reduce((most, step) => Math.max(most, depth(step)), 0);
  const band = Math.ceil((deepest + 1) / 40);
  const ways: [Group["kind"], (step: StepView) => string | null, (step: StepView) => string][] = [
    ["stage", (step) => step.stage || null, (step) => step.stage],
    ["tool", (step) => `${depth(step)} ${step.tool} ${kindOf(step)}`, (step) => kindOf(step) || step.tool],
    ["tool", (step) => `${depth(step)} ${step.tool}`, (step) => step.tool],
    ["band", (step) => String(Math.floor(depth(step) / band)), (step) => String(Math.floor(depth(step) / band) + 1)],
  ];
  for (const [kind, key, label] of ways) {
    const found = gather(steps, kind, key, label, depth);
    const drawn = steps.length - found.reduce((sum, group) => sum + group.members.length - 1, 0);
    if (found.length < 2 || (kind !== "band" && drawn > MOST_GROUPS)) continue;
    const folded = fold(steps, found, new Set());
    if (kind === "band" || isAcyclic(folded.nodes, folded.edges)) return found;
  }
  return [];
}

/** What a step is called, without what counts it: "Fetch page 12" and "Fetch page 13" are of one kind. */
function kindOf(step: StepView): string {
  return step.title.replace(/\d+/g, "#").slice(0, 60);
}

function gather(
  steps: readonly StepView[],
  kind: Group["kind"],
  key: (step: StepView) => string | null,
  label: (step: StepView) => string,
  depth: (step: StepView) => number,
): Group[] {
  const found = new Map<string, Group>();
  for (const step of steps) {
    const name = key(step);
    if (name === null) continue;
    const group = found.get(name);
    if (group) {
      group.members.push(step.id);
      group.layer = Math.min(group.layer, depth(step));
    } else {
      found.set(name, { id: `group:${kind} ${name}`, label: label(step), kind, layer: depth(step), members: [step.id] });
    }
  }
  return [...found.values()].filter((group) => group.members.length >= SMALLEST);
}

/** What is drawn when the groups in `open` are open and the others are folded. */
export function fold(steps: readonly StepView[], groups: readonly Group[], open: ReadonlySet<string>): Folded {
  const closed = groups.filter((group) => !open.has(group.id));
  const home = new Map<string, string>();
  for (const group of closed) for (const id of group.members) home.set(id, group.id);
  const nodes: string[] = [];
  const seen = new Set<string>();
  for (const step of steps) {
    const node = home.get(step.id) ?? stepNode(step.id);
    home.set(step.id, node);
    if (!seen.has(node)) nodes.push(node);
    seen.add(node);
  }
  const edges: Edge[] = [];
  const drawn = new Set<string>();
  for (const { from, to } of edgesOf(steps)) {
    const edge = { from: home.get(from)!, to: home.get(to)! };
    const key = JSON.stringify([edge.from, edge.to]);
    if (edge.from === edge.to || drawn.has(key)) continue;
    drawn.add(key);
    edges.push(edge);
  }
  return { nodes, groups: new Map(closed.map((group) => [group.id, group])), edges, home };
}

/** The edges between steps that are there: a need of a step that was dropped is not drawn. */
export function edgesOf(steps: readonly StepView[]): Edge[] {
  const known = new Set(steps.map((step) => step.id));
  return steps.flatMap((step) => {
    const needs = new Set([...step.needs, ...(step.soft ?? [])]);
    return [...needs].filter((need) => known.has(need)).map((need) => ({ from: need, to: step.id }));
  });
}

function isAcyclic(nodes: readonly string[], edges: readonly Edge[]): boolean {
  const layers = layersOf(nodes, edges);
  return edges.every(({ from, to }) => (layers.get(from) ?? 0) < (layers.get(to) ?? 0));
}

// What a box that stands for many steps shows: the worst thing that is true of one of them.
const GRAVITY: readonly StepStatus[] = [
  "in_doubt", "failed", "running", "waiting", "ready", "pending", "skipped", "cancelled", "degraded", "succeeded",
];

export function gravest(statuses: Iterable<StepStatus>): StepStatus {
  const seen = new Set(statuses);
  return GRAVITY.find((status) => seen.has(status)) ?? "pending";
}
