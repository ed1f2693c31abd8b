import { element } from "./element";

export type Content = string | Node;

/** A column: its head, and what its numbers are. */
export type Column = string | { label: string; words: string };

/** What the names used in a part of a page mean, as the page carries it. */
export function meaningsOf(place: HTMLElement): Record<string, string> {
  return JSON.parse(place.dataset.terms ?? "{}") as Record<string, string>;
}

/** A table with a caption and heads, in a region that scrolls. */
export function table(caption: string, heads: Column[], rows: Content[][]): HTMLElement {
  const head = element("tr", {}, ...heads.map((name) => (typeof name === "string" ? element("th", { scope: "col" }, name) : element("th", { scope: "col", title: name.words }, name.label))));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell))));
  const made = element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made);
}

/** A share as a percentage. */
export function percent(share: number, digits = 1): string {
  return Number.isFinite(share) ? `${(100 * share).toFixed(digits)}%` : "–";
}

