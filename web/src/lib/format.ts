// Times, sizes and numbers as people read them.
import { t } from "./i18n";

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  if (seconds < 0.0005) return t("unit.ms", { n: seconds === 0 ? 0 : "<1" });
  if (seconds < 1) return t("unit.ms", { n: Math.round(seconds * 1000) });
  if (seconds < 60) return t("unit.s", { n: seconds < 10 ? seconds.toFixed(1) : Math.round(seconds) });
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return t("unit.m", { m: minutes, s: Math.floor(seconds % 60) });
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return t("unit.h", { h: hours, m: minutes % 60 });
  return t("unit.d", { d: Math.floor(hours / 24), h: hours % 24 });
}

const locale = (): string => t("language.locale");

export const clock = (at: number): string =>
  new Date(at * 1000).toLocaleTimeString(locale(), { hour12: false, hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const moment = (at: number): string =>
  new Date(at * 1000).toLocaleString(locale(), { hour12: false, dateStyle: "medium", timeStyle: "medium" });

export function ago(at: number, now: number): string {
  const passed = Math.max(0, now - at);
  if (passed < 5) return t("time.now");
  return t("time.ago", { span: coarse(passed) });
}

/** One unit only: how long ago something was is not asked to the second. */
function coarse(seconds: number): string {
  if (seconds < 60) return t("unit.s", { n: Math.floor(seconds) });
  if (seconds < 3600) return t("unit.min", { n: Math.floor(seconds / 60) });
  if (seconds < 86400) return t("unit.hours", { n: Math.floor(seconds / 3600) });
  return t("unit.days", { n: Math.floor(seconds / 86400) });
}

export function bytes(size: number): string {
  if (size < 1000) return t("unit.bytes", { n: size });
  if (size < 1_000_000) return t("unit.kb", { n: (size / 1000).toFixed(size < 10_000 ? 1 : 0) });
  return t("unit.mb", { n: (size / 1_000_000).toFixed(1) });
}

export function amount(value: number, unit: string | undefined): string {
  if (unit === "s" || unit === "seconds") return duration(value);
  if (unit === "usd" || unit === "$" || unit === "cost") return value.toFixed(value < 1 ? 4 : 2);
  return value.toLocaleString(locale(), { maximumFractionDigits: 2 });
}

/** Steps of a time axis that read well: at most `most` of them over `range` seconds. */
export function ticks(range: number, most: number): number {
  const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  return steps.find((step) => range / step <= most) ?? Math.ceil(range / most / 86400) * 86400;
}

export const shortId = (id: string): string => (id.length > 14 ? id.slice(0, 12) : id);
