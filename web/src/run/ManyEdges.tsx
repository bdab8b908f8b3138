// Thousands of edges on one canvas: as elements of their own they would make every move of the view slow.
import { useViewport } from "@xyflow/react";
import { type ReactNode, useEffect, useRef } from "react";
import { useSize } from "../lib/hooks";
import type { Point } from "../lib/layout";

export interface Line {
  from: Point;
  to: Point;
  critical: boolean;
}

export function ManyEdges({ lines, across }: { lines: readonly Line[]; across: boolean }): ReactNode {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { x, y, zoom } = useViewport();
  const { width, height } = useSize(box);
  useEffect(() => {
    const pen = canvas.current?.getContext("2d");
    if (!pen || !canvas.current) return;
    const dense = window.devicePixelRatio || 1;
    canvas.current.width = width * dense;
    canvas.current.height = height * dense;
    pen.setTransform(dense * zoom, 0, 0, dense * zoom, dense * x, dense * y);
    const style = getComputedStyle(canvas.current);
    const view = { left: -x / zoom, top: -y / zoom, right: (width - x) / zoom, bottom: (height - y) / zoom };
    const seen = lines.filter((line) => touches(line, view));
    for (const critical of [false, true]) {
      pen.beginPath();
      for (const line of seen) if (line.critical === critical) curve(pen, line, across);
      pen.strokeStyle = critical ? style.outlineColor : style.color;
      pen.lineWidth = critical ? 2 : 1.2;
      pen.stroke();
    }
  });
  return <div ref={box} className="many-edges" aria-hidden="true"><canvas ref={canvas} /></div>;
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
