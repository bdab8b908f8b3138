// A layered layout of a graph: longest-path layers, a few barycentre sweeps, and positions by isotonic regression, which
// keeps the order and the distances and puts every node as near to its neighbours as they allow. O(V + E) but for the
// sorting inside layers. Long edges are led through the layers between by way points, as long as there are not too many.
// A layer of hundreds of nodes becomes a block of several columns: a tower of them could not be looked at.

export interface Edge {
  from: string;
  to: string;
}

export interface Point {
  x: number;
  y: number;
}

export interface Layout {
  places: Map<string, Point>; // the middle of each node
  routes: Map<string, Point[]>; // way points of long edges, by edgeKey
  layers: Map<string, number>;
  width: number;
  height: number;
}

export interface Sizes {
  along: number; // distance between the middles of two layers
  across: number; // distance between two neighbours in a layer
}

const SWEEPS = 4;
const MOST_WAYPOINTS = 6000;
const TALLEST = 40; // nodes of a layer in one column

export const edgeKey = (from: string, to: string): string => JSON.stringify([from, to]);

/** The layer of every node: one more than the deepest node it needs. Edges that close a cycle are passed over. */
export function layersOf(ids: readonly string[], edges: readonly Edge[]): Map<string, number> {
  const after = new Map<string, string[]>();
  const open = new Map<string, number>(ids.map((id) => [id, 0]));
  for (const { from, to } of edges) {
    if (!open.has(from) || !open.has(to) || from === to) continue;
    push(after, from, to);
    open.set(to, (open.get(to) ?? 0) + 1);
  }
  const layer = new Map<string, number>();
  const queue = ids.filter((id) => open.get(id) === 0);
  const rest = new Set(ids);
  let next = 0;
  for (;;) {
    while (next < queue.length) {
      const id = queue[next++]!;
      rest.delete(id);
      const depth = layer.get(id) ?? 0;
      layer.set(id, depth);
      for (const to of after.get(id) ?? []) {
        if (!rest.has(to)) continue;
        layer.set(to, Math.max(layer.get(to) ?? 0, depth + 1));
        const left = (open.get(to) ?? 1) - 1;
        open.set(to, left);
        if (left === 0) queue.push(to);
      }
    }
    const stuck = rest.values().next();
    if (stuck.done) return layer;
    open.set(stuck.value, 0); // on a cycle: begin here, as if nothing were needed
    queue.push(stuck.value);
  }
}

/** Positions that keep the order and the distances between `marks`, as near as possible to what each wants (pool adjacent violators). */
export function spread(wanted: readonly number[], marks: readonly number[]): number[] {
  const blocks: { sum: number; count: number }[] = [];
  wanted.forEach((want, index) => {
    let block = { sum: want - marks[index]!, count: 1 };
    while (blocks.length > 0) {
      const last = blocks[blocks.length - 1]!;
      if (last.sum / last.count <= block.sum / block.count) break;
      blocks.pop();
      block = { sum: block.sum + last.sum, count: block.count + last.count };
    }
    blocks.push(block);
  });
  const out: number[] = [];
  for (const block of blocks) {
    for (let i = 0; i < block.count; i++) out.push(block.sum / block.count + marks[out.length]!);
  }
  return out;
}

/** Where the nodes of a layer would stand side by side; a line that passes through needs less room than a node. */
function marksOf(row: readonly string[], across: number): number[] {
  const room = (node: string): number => (node.startsWith("w") ? across * 0.3 : across);
  const marks: number[] = [];
  row.forEach((node, index) => marks.push(index === 0 ? 0 : marks[index - 1]! + (room(row[index - 1]!) + room(node)) / 2));
  return marks;
}

/** Places for all nodes, layers from left to right; the caller turns it for another direction. */
export function layered(ids: readonly string[], edges: readonly Edge[], sizes: Sizes): Layout {
  const layers = layersOf(ids, edges);
  const known = edges.filter(({ from, to }) => (layers.get(from) ?? 0) < (layers.get(to) ?? 0));
  const graph = withWaypoints(ids, known, layers);
  order(graph);
  const blocks = graph.rows.map((row) => blockOf(row, sizes));
  const y = settle(graph, sizes.across, blocks);
  const starts: number[] = [];
  let width = 0;
  for (const block of blocks) {
    starts.push(width);
    width += (block ? block.columns : 1) * sizes.along;
  }
  let low = Infinity;
  let high = -Infinity;
  for (const value of y.values()) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const at = (node: string): Point => {
    const layer = graph.layer.get(node) ?? 0;
    const column = blocks[layer]?.column.get(node) ?? 0;
    return { x: starts[layer]! + column * sizes.along, y: (y.get(node) ?? 0) - low };
  };
  const places = new Map(ids.map((id) => [id, at(`n${id}`)]));
  const routes = new Map([...graph.routes].map(([key, nodes]) => [key, nodes.map(at)]));
  return { places, routes, layers, width: Math.max(0, width - sizes.along), height: ids.length === 0 ? 0 : high - low };
}

interface Block {
  columns: number;
  column: Map<string, number>;
  y: Map<string, number>;
}

/** A layer as a block of columns, about as wide as it is tall, if it is too tall for one. */
function blockOf(row: readonly string[], sizes: Sizes): Block | null {
  if (row.length <= TALLEST || row.some((node) => node.startsWith("w"))) return null;
  const tall = Math.max(12, Math.ceil(Math.sqrt((row.length * sizes.along) / sizes.across / 1.6)));
  const block: Block = { columns: Math.ceil(row.length / tall), column: new Map(), y: new Map() };
  row.forEach((node, index) => {
    block.column.set(node, Math.floor(index / tall));
    block.y.set(node, ((index % tall) - (tall - 1) / 2) * sizes.across);
  });
  return block;
}

interface Graph {
  rows: string[][];
  layer: Map<string, number>;
  before: Map<string, string[]>;
  after: Map<string, string[]>;
  routes: Map<string, string[]>;
}

function withWaypoints(ids: readonly string[], edges: readonly Edge[], layers: Map<string, number>): Graph {
  const graph: Graph = { rows: [], layer: new Map(), before: new Map(), after: new Map(), routes: new Map() };
  const put = (node: string, layer: number): void => {
    graph.layer.set(node, layer);
    (graph.rows[layer] ??= []).push(node);
  };
  const link = (from: string, to: string): void => {
    push(graph.after, from, to);
    push(graph.before, to, from);
  };
  for (const id of ids) put(`n${id}`, layers.get(id) ?? 0);
  const span = ({ from, to }: Edge): number => (layers.get(to) ?? 0) - (layers.get(from) ?? 0);
  const total = edges.reduce((sum, edge) => sum + span(edge) - 1, 0);
  const straight = total > MOST_WAYPOINTS || graph.rows.some((row) => row.length > TALLEST); // no way leads through a block
  for (const edge of edges) {
    if (straight) {
      link(`n${edge.from}`, `n${edge.to}`);
      continue;
    }
    const key = edgeKey(edge.from, edge.to);
    const points: string[] = [];
    let last = `n${edge.from}`;
    for (let i = 1; i < span(edge); i++) {
      const point = `w${key}${i}`;
      put(point, (layers.get(edge.from) ?? 0) + i);
      link(last, point);
      points.push(point);
      last = point;
    }
    link(last, `n${edge.to}`);
    if (points.length > 0) graph.routes.set(key, points);
  }
  for (let i = 0; i < graph.rows.length; i++) graph.rows[i] ??= [];
  return graph;
}

function push(map: Map<string, string[]>, key: string, value: string): void {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

/** Few crossings: every layer sorted by the mean place of its neighbours, forwards and backwards in turn. */
function order(graph: Graph): void {
  const rank = new Map<string, number>();
  const number = (row: string[]): void => row.forEach((node, index) => rank.set(node, index));
  graph.rows.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const forwards = sweep % 2 === 0;
    const neighbours = forwards ? graph.before : graph.after;
    const rows = forwards ? graph.rows.slice(1) : graph.rows.slice(0, -1).reverse();
    for (const row of rows) {
      const weight = new Map(row.map((node) => [node, mean(neighbours.get(node), rank) ?? rank.get(node) ?? 0]));
      row.sort((a, b) => weight.get(a)! - weight.get(b)! || rank.get(a)! - rank.get(b)!);
      number(row);
    }
  }
}

function settle(graph: Graph, across: number, blocks: readonly (Block | null)[]): Map<string, number> {
  const y = new Map<string, number>();
  const marks = new Map(graph.rows.map((row) => [row, marksOf(row, across)]));
  graph.rows.forEach((row, layer) => {
    const own = marks.get(row)!;
    row.forEach((node, index) => y.set(node, blocks[layer]?.y.get(node) ?? own[index]! - own[own.length - 1]! / 2));
  });
  const ways = [graph.before, graph.after];
  for (let sweep = 0; sweep < SWEEPS * 2; sweep++) {
    const neighbours = ways[sweep % 2]!;
    const loose = graph.rows.filter((_, layer) => !blocks[layer]);
    for (const row of sweep % 2 === 0 ? loose : loose.reverse()) {
      const wanted = row.map((node) => mean(neighbours.get(node), y) ?? y.get(node)!);
      spread(wanted, marks.get(row)!).forEach((value, index) => y.set(row[index]!, value));
    }
  }
  return y;
}

function mean(nodes: readonly string[] | undefined, value: Map<string, number>): number | null {
  if (!nodes || nodes.length === 0) return null;
  return nodes.reduce((sum, node) => sum + (value.get(node) ?? 0), 0) / nodes.length;
}
