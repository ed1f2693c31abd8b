import { setParameter } from "./address";
import { Curve } from "./curve";
import { element, visible } from "./element";
import { measured, tell } from "./measured";
import { shown } from "./numbers";
import { onRows } from "./news";
import { Plot } from "./plot";
import type { PlotLine } from "./plot";
import { points } from "./rows";
import { table } from "./table";
import type { Column } from "./table";

interface Run {
  run: string;
  num_steps: number | null;
  tokens_per_step: number | null;
  compute_per_step: number | null;
  metrics: string[];
}

const ALIGN = {
  fraction: { label: "share of the run, %", term: "fraction_done", factor: (run: Run) => (run.num_steps ? 100 / run.num_steps : null) },
  tokens: { label: "tokens", term: "train_tokens", factor: (run: Run) => run.tokens_per_step },
  compute: { label: "compute without the head, FLOPs", term: "fit_compute", factor: (run: Run) => run.compute_per_step },
  step: { label: "step", term: "step", factor: () => 1 },
} as const;
type Alignment = keyof typeof ALIGN;

const USUAL = "eval/macro_loss_nats";
const MOST = 6;

async function start(place: HTMLElement): Promise<void> {
  const answer = await fetch(place.dataset.index ?? "");
  if (!answer.ok) return;
  const { runs, words } = (await answer.json()) as { runs: Run[]; words: Record<string, string> };
  const query = new URLSearchParams(location.search);
  const metrics = [...new Set(runs.flatMap((run) => run.metrics))].sort();
  const asked = query.getAll("run").filter((name) => runs.some((run) => run.run === name));
  const state = {
    runs: new Set(asked.length ? asked : runs.slice(0, MOST).map((run) => run.run)),
    metric: metrics.includes(query.get("metric") ?? "") ? (query.get("metric") as string) : metrics.includes(USUAL) ? USUAL : (metrics[0] ?? ""),
    by: (Object.keys(ALIGN).includes(query.get("by") ?? "") ? query.get("by") : runs.some((run) => run.num_steps) ? "fraction" : "step") as Alignment,
  };

  const figure = element("div", { class: "figure-like" });
  const told = element("p", { role: "status", class: "lead" });
  const redraw = (): void => {
    setParameter("run", [...state.runs]);
    setParameter("metric", [state.metric]);
    setParameter("by", [state.by]);
    void draw(figure, told, runs.filter((run) => state.runs.has(run.run)), state.metric, state.by, words);
  };

  const select = element("select", { id: "compare-metric" }, ...metrics.map((name) => element("option", { value: name, selected: name === state.metric }, name)));
  select.addEventListener("change", () => ((state.metric = select.value), redraw()));
  const boxes = runs.map((run, index) => {
    const box = element("input", { type: "checkbox", id: `compare-run-${index}`, checked: state.runs.has(run.run) });
    box.addEventListener("change", () => {
      if (box.checked) state.runs.add(run.run);
      else state.runs.delete(run.run);
      redraw();
    });
    return element("label", { for: `compare-run-${index}` }, box, ` ${run.run}`);
  });
  const radios = (Object.keys(ALIGN) as Alignment[]).map((by) => {
    const radio = element("input", { type: "radio", name: "compare-by", id: `compare-by-${by}`, value: by, checked: by === state.by });
    radio.addEventListener("change", () => ((state.by = by), redraw()));
    return element("label", { for: `compare-by-${by}` }, radio, ` ${by}`);
  });
  place.append(
    element("div", { class: "controls" }, element("label", { for: "compare-metric" }, "Metric "), select),
    element("fieldset", { class: "controls" }, element("legend", {}, "Runs"), ...boxes),
    element("fieldset", { class: "controls" }, element("legend", {}, "Aligned by"), ...radios),
    told,
    figure,
  );
  redraw();
}

let serial = 0;
let grow: ((run: string, rows: Record<string, number | string>[]) => void) | null = null;
onRows((run, rows) => grow?.(run, rows));

async function draw(host: HTMLElement, told: HTMLElement, runs: Run[], metric: string, by: Alignment, words: Record<string, string>): Promise<void> {
  const mine = ++serial;
  const found = await Promise.all(
    runs.map(async (run) => {
      const factor = ALIGN[by].factor(run);
      const rows = factor && run.metrics.includes(metric) ? await points(`${document.body.dataset.up ?? ""}rows/`, run.run, metric) : null;
      return { run, factor, rows };
    }),
  );
  if (mine !== serial) return; // another choice was made meanwhile
  const drawn = found.filter((entry) => entry.rows && entry.rows[0].length > 0);
  const lines: PlotLine[] = drawn.map(({ run, factor, rows }, index) => {
    const [steps, values] = rows as [Float64Array, Float64Array];
    return { label: visible(run.run), style: index % 6, marker: "", curve: new Curve(steps.map((step) => step * (factor ?? 1)), values), hidden: false };
  });
  const left = runs.length - drawn.length;
  tell(told, ...finding(lines, metric, words[metric] ?? ""), left ? ` ${left} chosen run${left > 1 ? "s have" : " has"} no such numbers.` : "");
  if (!lines.length) {
    host.replaceChildren();
    grow = null;
    return;
  }
  const legend = element("ul", { class: "legend" }, ...lines.map((line) => element("li", { class: `line s${line.style}` }, line.label)));
  const chart = element("div", { class: "plot" });
  const heads: Column[] = ["run", { label: ALIGN[by].label, words: words[ALIGN[by].term] ?? "" }, { label: metric, words: words[metric] ?? "" }];
  const ends = lines.map((line) => [line.label, shown(line.curve.last), shown(line.curve.y(line.curve.length - 1))]);
  host.replaceChildren(legend, chart, table(`${metric} at the end`, heads, ends));
  const plot = new Plot(chart, { key: "compare", x: ALIGN[by].label, y: visible(metric), logX: by === "compute", lines, bands: [], marks: [], onZoom: () => undefined });
  plot.draw();
  grow = (run, rows) => {
    const at = drawn.findIndex((entry) => entry.run.run === run);
    const line = lines[at];
    if (!line) return;
    for (const fresh of rows) if (fresh[metric] !== undefined) line.curve.push(Number(fresh.step) * (drawn[at]?.factor ?? 1), Number(fresh[metric]));
    plot.touch();
  };
}

/** Which run is lowest where all of them are. */
function finding(lines: PlotLine[], metric: string, meaning: string): (string | Node)[] {
  if (!lines.length) return ["No chosen run has these numbers."];
  const end = Math.min(...lines.map((line) => line.curve.last));
  const there = lines.map((line) => ({ label: line.label, value: line.curve.y(line.curve.nearest(end)) })).sort((a, b) => a.value - b.value);
  const [first, last] = [there[0], there[there.length - 1]];
  if (!first || !last) return [];
  if (there.length === 1) return [`${metric} of ${first.label} ends at `, measured(first.value, meaning), "."];
  return [`Where all have got to, ${first.label} has the lowest ${metric}, `, measured(first.value, meaning), `; ${last.label} the highest, `, measured(last.value, meaning), "."];
}

const place = document.getElementById("compare");
if (place) void start(place);
