import { tellRows } from "./news";
import type { JournalRow } from "./news";

const SETTLE_MS = 1500;
const BETWEEN_MS = 5000;

/** Follow the lab: rows go to the figures, changed files refresh the regions of the page. */
export function listen(): void {
  const place = document.querySelector<HTMLElement>("[data-run]");
  const run = place?.dataset.run ?? "";
  const query = new URLSearchParams({ run, place: place?.dataset.rows ?? "" });
  const note = document.querySelector<HTMLElement>("[data-live-note]");
  const source = new EventSource(`${document.body.dataset.live}?${query.toString()}`);
  source.addEventListener("open", () => say(note, "Live: new points appear as they are written."));
  source.addEventListener("error", () => say(note, "The connection was lost; it is tried again."));
  source.addEventListener("rows", (event) => tellRows(run, JSON.parse((event as MessageEvent<string>).data) as JournalRow[]));

  let waiting = 0;
  let last = performance.now();
  source.addEventListener("changed", () => {
    if (waiting) return;
    const since = performance.now() - last;
    waiting = window.setTimeout(
      () => {
        waiting = 0;
        last = performance.now();
        if (!document.hidden) void refresh();
      },
      Math.max(SETTLE_MS, BETWEEN_MS - since),
    );
  });
}

function say(note: HTMLElement | null, words: string): void {
  if (note && note.textContent !== words) note.textContent = words;
}

/** Whether the run on this page was restarted or changed since the page was made: its figures have other marks. */
function restarted(fresh: Document): boolean {
  return [...document.querySelectorAll<HTMLElement>("figure[data-figure]")].some((figure) => {
    const other = fresh.getElementById(figure.id)?.dataset.figure;
    return other !== undefined && marks(other) !== marks(figure.dataset.figure ?? "{}");
  });
}

function marks(spec: string): string {
  return JSON.stringify((JSON.parse(spec) as { marks?: unknown }).marks ?? []);
}

/** Fetch this page again and put in what differs: regions, and the findings and tables of figures. Focus and open details stay. */
export async function refresh(): Promise<void> {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (restarted(fresh)) {
    location.reload(); // steps were trained again: rows on this page are no longer part of the run; the address keeps the view
    return;
  }
  for (const region of document.querySelectorAll<HTMLElement>("[data-region]")) {
    const other = fresh.getElementById(region.id);
    if (other && other.innerHTML !== region.innerHTML && !region.contains(document.activeElement)) {
      const open = [...region.querySelectorAll("details")].map((details) => details.open);
      region.replaceChildren(...[...other.childNodes].map((node) => document.importNode(node, true)));
      region.querySelectorAll("details").forEach((details, index) => (details.open = open[index] ?? details.open));
    }
  }
  for (const figure of document.querySelectorAll<HTMLElement>("figure[id]")) {
    const other = fresh.getElementById(figure.id);
    const [finding, news] = [figure.querySelector("figcaption strong"), other?.querySelector("figcaption strong")];
    if (finding && news && finding.textContent !== news.textContent) finding.textContent = news.textContent;
    const [table, rows] = [figure.querySelector("details table"), other?.querySelector("details table")];
    if (table && rows && table.textContent !== rows.textContent) table.replaceChildren(...[...rows.childNodes].map((node) => document.importNode(node, true)));
  }
}
