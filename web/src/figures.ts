import { chosen, choose } from "./address";
import { parseFigure } from "./csv";
import { Curve } from "./curve";
import { element, visible } from "./element";
import { onRows } from "./news";
import { Plot } from "./plot";
import type { PlotBand, PlotLine } from "./plot";

interface FigureLine {
  label: string;
  style: number;
  marker: string;
  run?: string;
  metric?: string;
  factor?: number;
}

interface FigureSpec {
  x: string;
  y: string;
  logX: boolean;
  csv: string;
  rows: string;
  lines: FigureLine[];
  bands: string[];
  marks: { x: number; label: string }[];
}

const AHEAD = "400px";

/** Make figures live as they come near the view, those named in the address at once. */
export function enliven(figures: Iterable<HTMLElement>): void {
  const named = new Set([...chosen("zoom").keys(), ...chosen("hide").keys(), location.hash.slice(1)]);
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        watcher.unobserve(entry.target);
        void start(entry.target as HTMLElement);
      }
    },
    { rootMargin: AHEAD },
  );
  for (const figure of figures) {
    if (named.has(figure.id)) void start(figure);
    else watcher.observe(figure);
  }
}

/** Replace one drawing by a live figure. The drawing stays when its numbers cannot be read. */
async function start(figure: HTMLElement): Promise<void> {
  const spec = JSON.parse(figure.dataset.figure ?? "{}") as FigureSpec;
  const host = figure.querySelector<HTMLElement>(".plot");
  if (!host) return;
  try {
    const answer = await fetch(spec.csv);
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    show(figure, host, spec, await answer.text());
  } catch (error) {
    console.warn(`figure ${figure.id} stays a drawing: ${String(error)}`);
  }
}

function show(figure: HTMLElement, host: HTMLElement, spec: FigureSpec, csv: string): void {
  const rows = parseFigure(csv);
  const of = (series: string, value: "y" | "low" | "high"): Curve => {
    const chosenRows = rows.filter((row) => row.series === series && !Number.isNaN(row[value]));
    return new Curve(Float64Array.from(chosenRows, (row) => row.x), Float64Array.from(chosenRows, (row) => row[value]));
  };
  const hidden = new Set((chosen("hide").get(figure.id) ?? "").split(".").filter(Boolean).map(Number));
  const lines: PlotLine[] = spec.lines.map((line, index) => ({
    label: visible(line.label),
    style: line.style,
    marker: line.marker,
    curve: of(line.label, "y"),
    hidden: hidden.has(index),
  }));
  const bands: PlotBand[] = spec.bands.map((label) => ({ label: visible(label), low: of(label, "low"), high: of(label, "high") }));
  const plot = new Plot(host, {
    key: figure.id,
    x: visible(spec.x),
    y: visible(spec.y),
    logX: spec.logX,
    lines,
    bands,
    marks: spec.marks.map((mark) => ({ x: mark.x, label: visible(mark.label) })),
    onZoom: (range) => choose("zoom", figure.id, range && `${compact(range[0])}:${compact(range[1])}`),
  });
  legend(figure, lines, plot);
  const range = (chosen("zoom").get(figure.id) ?? "").split(":").map(Number);
  plot.zoomTo(range.length === 2 && range.every(Number.isFinite) ? (range as [number, number]) : null, false);
  figure.dataset.live = "csv";
  void fill(figure, spec, lines, plot);
  follow(spec, lines, plot);
}

const compact = (value: number): string => String(Number(value.toPrecision(6)));

/** The legend's entries become switches of their lines. */
function legend(figure: HTMLElement, lines: PlotLine[], plot: Plot): void {
  const items = [...figure.querySelectorAll<HTMLElement>(".legend li")].slice(-lines.length || undefined);
  lines.forEach((line, index) => {
    const item = items[index];
    if (!item) return;
    const button = element("button", { type: "button", "aria-pressed": String(!line.hidden) }, line.label);
    button.addEventListener("click", () => {
      plot.toggle(index, !line.hidden);
      button.setAttribute("aria-pressed", String(!line.hidden));
      const off = lines.flatMap((other, place) => (other.hidden ? [place] : [])).join(".");
      choose("hide", figure.id, off || null);
    });
    item.replaceChildren(button);
  });
}

/** Every recorded row in place of the few that were drawn. */
async function fill(figure: HTMLElement, spec: FigureSpec, lines: PlotLine[], plot: Plot): Promise<void> {
  const { points } = await import("./rows");
  await Promise.all(
    spec.lines.map(async (source, index) => {
      const line = lines[index];
      if (!line || !source.run || !source.metric) return;
      const found = await points(spec.rows, source.run, source.metric);
      if (!found) return;
      const [steps, values] = found;
      const factor = source.factor ?? 1;
      const grown = line.curve;
      line.curve = new Curve(factor === 1 ? steps : steps.map((step) => step * factor), values);
      for (let i = grown.from(line.curve.last); i < grown.length; i += 1) line.curve.push(grown.x(i), grown.y(i));
    }),
  );
  plot.draw();
  figure.dataset.live = "rows";
}

/** New rows of a run go to the lines that show it. */
function follow(spec: FigureSpec, lines: PlotLine[], plot: Plot): void {
  onRows((run, rows) => {
    let grown = false;
    spec.lines.forEach((source, index) => {
      const line = lines[index];
      if (!line || source.run !== run || !source.metric) return;
      for (const row of rows) {
        const value = row[source.metric];
        if (value === undefined) continue;
        grown = line.curve.push(Number(row.step) * (source.factor ?? 1), Number(value)) || grown;
      }
    });
    if (grown) plot.touch();
  });
}
