// Small things that several views need.
import { type RefObject, useEffect, useLayoutEffect, useState } from "react";

/** Only the rows that can be seen: which of `count` rows of one height are in view, and a few around them. */
export function useRows(box: RefObject<HTMLElement | null>, count: number, height: number): { first: number; last: number } {
  const [range, setRange] = useState({ first: 0, last: Math.min(count, 60) });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = (): void => {
      const first = Math.max(0, Math.floor(element.scrollTop / height) - 12);
      const last = Math.min(count, Math.ceil((element.scrollTop + (element.clientHeight || 800)) / height) + 12);
      setRange((old) => (old.first === first && old.last === last ? old : { first, last }));
    };
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      watch.disconnect();
    };
  }, [box, count, height]);
  return { first: Math.min(range.first, count), last: Math.min(Math.max(range.last, range.first), count) };
}

/** Scrolls a box of rows of one height so that a row is in view. */
export function reveal(box: HTMLElement | null, row: number, height: number, head = 0): void {
  if (!box || row < 0) return;
  const top = row * height;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + height + head > box.scrollTop + box.clientHeight) box.scrollTop = top + height + head - box.clientHeight;
}

/** A value that follows after a moment of rest. */
export function useSettled<T>(value: T, wait: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), wait);
    return () => clearTimeout(timer);
  }, [value, wait]);
  return settled;
}

/** Draws again every so often, as long as something is going on. */
export function useTick(active: boolean, every = 500): void {
  const [, setCount] = useState(0);
  useEffect(() => {
    if (!active) return;
    const timer = setInterval(() => setCount((count) => count + 1), every);
    return () => clearInterval(timer);
  }, [active, every]);
}

export function useWide(query: string): boolean {
  const [wide, setWide] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const change = (): void => setWide(media.matches);
    change();
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, [query]);
  return wide;
}

export function useSize(box: RefObject<HTMLElement | null>): { width: number; height: number } {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    if (!box.current) return;
    const watch = new ResizeObserver(([entry]) => {
      if (entry) setSize({ width: entry.contentRect.width, height: entry.contentRect.height });
    });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [box]);
  return size;
}
