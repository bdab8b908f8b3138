// Light, dark, or as the system says.
export type Theme = "auto" | "light" | "dark";
const KEPT = "rerail.theme";

export function theme(): Theme {
  const kept = localStorage.getItem(KEPT);
  return kept === "light" || kept === "dark" ? kept : "auto";
}

export function setTheme(wanted: Theme): void {
  localStorage.setItem(KEPT, wanted);
  showTheme();
}

export function showTheme(): void {
  document.documentElement.dataset["theme"] = theme();
}

export const nextTheme = (now: Theme): Theme => (now === "auto" ? "light" : now === "light" ? "dark" : "auto");
