// Thousands of edges on one canvas: as elements of their own they would make every move of the view slow. The canvas is
// larger than the view, so that a move of the view is a move of the canvas; it is painted again when its edge comes near.
import { useStoreApi } from "@xyflow/react";
import { type ReactNode, useEffect, useRef } from "react";
import { useSize } from "../lib/hooks";
import type { Point } from "../lib/layout";

const BEYOND = 0.4; // of the view's width and height, on each side

export interface Line {
  from: Point;
  to: Point;
  critical: boolean;
}

export function ManyEdges({ lines, across }: { lines: readonly Line[]; across: boolean }): ReactNode {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const flow = useStoreApi();
  const { width, height } = useSize(box);
  useEffect(() => {
    const sheet = canvas.current;
    if (!sheet || !width || !height) return;
    const margin = { x: Math.ceil(width * BEYOND), y: Math.ceil(height * BEYOND) };
    let drawn: readonly number[] = [];
    const follow = (): void => {
      const now = flow.getState().transform;
      const [dx, dy] = [now[0] - (drawn[0] ?? 0), now[1] - (drawn[1] ?? 0)];
      if (drawn[2] !== now[2] || Math.abs(dx) > margin.x || Math.abs(dy) > margin.y) {
        paint(sheet, lines, across, now, { width, height }, margin);
        drawn = now;
        sheet.style.transform = "";
      } else sheet.style.transform = `translate(${dx}px, ${dy}px)`;
    };
    follow();
    const theme = matchMedia("(prefers-color-scheme: dark)");
    const again = (): void => {
      drawn = [];
      follow();
    };
    const watch = new MutationObserver(again); // the theme that was chosen
    watch.observe(document.documentElement, { attributes: true });
    theme.addEventListener("change", again);
    const stop = flow.subscribe(follow);
    return () => {
      stop();
      watch.disconnect();
      theme.removeEventListener("change", again);
    };
  }, [flow, lines, across, width, height]);
  return <div ref={box} className="many-edges" aria-hidden="true"><canvas ref={canvas} /></div>;
}

function paint(
  sheet: HTMLCanvasElement, lines: readonly Line[], across: boolean, [x, y, zoom]: readonly [number, number, number],
  { width, height }: { width: number; height: number }, margin: Point,
): void {
  const pen = sheet.getContext("2d");
  if (!pen) return;
  const dense = window.devicePixelRatio || 1;
  const size = { x: width + 2 * margin.x, y: height + 2 * margin.y };
  sheet.width = size.x * dense;
  sheet.height = size.y * dense;
  Object.assign(sheet.style, { width: `${size.x}px`, height: `${size.y}px`, left: `${-margin.x}px`, top: `${-margin.y}px` });
  pen.setTransform(dense * zoom, 0, 0, dense * zoom, dense * (x + margin.x), dense * (y + margin.y));
  const style = getComputedStyle(sheet);
  const view = { left: (-x - margin.x) / zoom, top: (-y - margin.y) / zoom, right: (width + margin.x - x) / zoom, bottom: (height + margin.y - y) / zoom };
  const seen = lines.filter((line) => touches(line, view));
  for (const critical of [false, true]) {
    pen.beginPath();
    for (const line of seen) if (line.critical === critical) curve(pen, line, across);
    pen.strokeStyle = critical ? style.outlineColor : style.color;
    pen.lineWidth = critical ? 2 : 1.2;
    pen.stroke();
  }
}

function touches({ from, to }: Line, view: { left: number; top: number; right: number; bottom: number }): boolean {
  return Math.max(from.x, to.x) >= view.left && Math.min(from.x, to.x) <= view.right
    && Math.max(from.y, to.y) >= view.top && Math.min(from.y, to.y) <= view.bottom;
}

function curve(pen: CanvasRenderingContext2D, { from, to }: Line, across: boolean): void {
  pen.moveTo(from.x, from.y);
  if (across) {
    const middle = (from.x + to.x) / 2;
    pen.bezierCurveTo(middle, from.y, middle, to.y, to.x, to.y);
  } else {
    const middle = (from.y + to.y) / 2;
    pen.bezierCurveTo(from.x, middle, to.x, middle, to.x, to.y);
  }
}
