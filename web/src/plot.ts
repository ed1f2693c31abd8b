import uPlot from "uplot";
import { Curve } from "./curve";
import { element } from "./element";
import { count, shown } from "./numbers";

export interface PlotLine {
  label: string;
  style: number;
  marker: string;
  curve: Curve;
  hidden: boolean;
}

export interface PlotBand {
  label: string;
  low: Curve;
  high: Curve;
}

export interface PlotSpec {
  /** Name in links and marks of performance. */
  key: string;
  x: string;
  y: string;
  logX: boolean;
  lines: PlotLine[];
  bands: PlotBand[];
  marks: { x: number; label: string }[];
  /** Told when the reader zooms; null is everything. */
  onZoom: (range: [number, number] | null) => void;
}

const DASHES: number[][] = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2], [1, 2]];
const ZOOM_STEP = 0.6;
const HELP = "Arrow keys move the cursor, with Shift the view; plus and minus zoom, 0 shows everything.";

/** A chart that is zoomed, read and toggled by mouse, touch and keyboard, and grows. */
export class Plot {
  private readonly area: HTMLElement;
  private readonly words: HTMLElement;
  private plot: uPlot | null = null;
  private range: [number, number] | null = null;
  private cursor: number | null = null;
  private frame = 0;

  constructor(
    private readonly host: HTMLElement,
    private readonly spec: PlotSpec,
  ) {
    this.area = element("div", { class: "area", tabindex: "0", role: "group", "aria-label": `${spec.y} over ${spec.x}. ${HELP}` });
    this.words = element("p", { class: "readout" });
    host.replaceChildren(this.toolbar(), this.area, this.words);
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("dblclick", (event) => {
      event.stopPropagation();
      this.zoomTo(null);
    });
    new ResizeObserver(() => this.resize()).observe(this.area);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
    this.say();
  }

  /** Show everything, or a range of x. */
  zoomTo(range: [number, number] | null, tell = true): void {
    const [low, high] = this.extent();
    if (range) {
      const [begin, end] = [Math.max(low, Math.min(...range)), Math.min(high, Math.max(...range))];
      range = end > begin && (begin > low || end < high) ? [begin, end] : null;
    }
    this.range = range;
    if (tell) this.spec.onZoom(range);
    this.draw();
  }

  /** Lines have grown or changed: draw at the next frame. */
  touch(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => ((this.frame = 0), this.draw()));
  }

  /** Draw now: what is visible, from few points a pixel. */
  draw(): void {
    if (!this.plot) {
      this.rebuild();
      return;
    }
    const [low, high] = this.view();
    this.plot.batch(() => {
      this.plot?.setData(this.data(low, high), false);
      this.plot?.setScale("x", { min: low, max: high });
    });
    this.tell();
  }

  /** What is drawn, for whoever waits for it. */
  private tell(): void {
    const curves = this.spec.lines.map((line) => line.curve);
    this.host.dataset.points = String(curves.reduce((all, curve) => all + curve.length, 0));
    this.host.dataset.last = String(Math.max(...curves.map((curve) => curve.last)));
    performance.mark(`drawn:${this.spec.key}`);
  }

  /** Show or hide a line. */
  toggle(index: number, hidden: boolean): void {
    const line = this.spec.lines[index];
    if (!line) return;
    line.hidden = hidden;
    this.rebuild();
  }

  private extent(): [number, number] {
    let [low, high] = [Infinity, -Infinity];
    for (const curve of this.curves()) {
      if (!curve.length) continue;
      let first = curve.x(0);
      if (this.spec.logX) first = curve.x(curve.from(Number.MIN_VALUE));
      low = Math.min(low, first);
      high = Math.max(high, curve.last);
    }
    if (!(high >= low)) return [0, 1];
    return high > low ? [low, high] : [low - 0.5, high + 0.5];
  }

  private curves(): Curve[] {
    return [...this.spec.bands.flatMap((band) => [band.low, band.high]), ...this.spec.lines.map((line) => line.curve)];
  }

  private view(): [number, number] {
    return this.range ?? this.extent();
  }

  private data(low: number, high: number): uPlot.AlignedData {
    const columns = Math.max(100, Math.round(this.area.clientWidth || 600));
    const tables = this.curves().map((curve) => curve.visible(low, high, columns) as unknown as uPlot.AlignedData);
    const joined = uPlot.join(tables);
    return (joined[0]?.length ?? 0) > 0 ? joined : ([[low, high], ...tables.map(() => [null, null])] as uPlot.AlignedData);
  }

  private rebuild(): void {
    this.plot?.destroy();
    const width = Math.max(200, this.area.clientWidth || this.host.clientWidth || 640);
    const [low, high] = this.view();
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string): string => style.getPropertyValue(name).trim() || "#444";
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule"), width: 1 } };
    const series: uPlot.Series[] = [{}];
    const bands: uPlot.Band[] = [];
    for (const band of this.spec.bands) {
      const edge: uPlot.Series = { label: band.label, width: 0, spanGaps: true, points: { show: false }, stroke: colour("--band") };
      series.push(edge, { ...edge });
      bands.push({ series: [series.length - 1, series.length - 2], fill: colour("--band-fill") });
    }
    for (const line of this.spec.lines) {
      const stroke = colour(`--s${line.style}`);
      const round = line.marker === "circle";
      series.push({
        label: line.label,
        show: !line.hidden,
        stroke,
        width: line.marker ? 0 : 1.5,
        dash: DASHES[line.style] ?? [],
        spanGaps: true,
        points: line.marker ? { show: true, size: 7, width: 1.5, stroke, fill: round ? stroke : colour("--ground") } : { show: line.curve.length === 1, size: 7, fill: stroke },
        ...(line.marker ? { paths: () => null } : {}),
      });
    }
    this.plot = new uPlot(
      {
        width,
        height: Math.round(Math.max(220, Math.min(400, width * 0.53))),
        legend: { show: false },
        scales: { x: { time: false, distr: this.spec.logX ? 3 : 1, auto: false, min: low, max: high }, y: { auto: true } },
        axes: [
          { ...axis, label: this.spec.x, labelSize: 24, size: 34 },
          { ...axis, label: this.spec.y, labelSize: 24, size: 58, values: (_plot, ticks) => ticks.map((tick) => (Math.abs(tick) >= 10_000 ? count(tick) : shown(tick))) },
        ],
        series,
        bands,
        cursor: { drag: { x: true, y: false, setScale: false, dist: 6 }, points: { show: false } },
        hooks: {
          setSelect: [(plot) => this.selected(plot)],
          setCursor: [(plot) => this.moved(plot)],
          draw: [(plot) => this.drawMarks(plot, colour("--soft"))],
        },
      },
      this.data(low, high),
      this.area,
    );
    this.plot.root.setAttribute("aria-hidden", "true");
    this.tell();
  }

  private resize(): void {
    const width = this.area.clientWidth;
    if (!this.plot || !width || Math.abs(width - this.plot.width) < 2) return;
    this.plot.setSize({ width, height: Math.round(Math.max(220, Math.min(400, width * 0.53))) });
    this.draw();
  }

  private selected(plot: uPlot): void {
    if (plot.select.width < 4) return;
    const [begin, end] = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoomTo([begin, end]);
  }

  private moved(plot: uPlot): void {
    const left = plot.cursor.left ?? -1;
    if (left < 0) return;
    this.cursor = plot.posToVal(left, "x");
    this.say();
  }

  /** What every visible line is at the cursor. */
  private say(): void {
    const at = this.cursor;
    if (at === null) {
      this.words.textContent = "Drag over the figure to zoom; move over it to read values.";
      return;
    }
    const parts = this.spec.lines.flatMap((line) => {
      const index = line.hidden ? -1 : line.curve.nearest(at);
      return index < 0 ? [] : [`${line.label} ${shown(line.curve.y(index))}`];
    });
    this.words.textContent = `${this.spec.x} ${shown(at)}: ${parts.join(" · ")}`;
  }

  private drawMarks(plot: uPlot, stroke: string): void {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = stroke;
    ctx.setLineDash([3, 3]);
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    for (const mark of this.spec.marks) {
      const x = plot.valToPos(mark.x, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(mark.label, x + 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
    }
    ctx.restore();
  }

  private toolbar(): HTMLElement {
    const button = (label: string, words: string, act: () => void): HTMLElement => {
      const made = element("button", { type: "button", "aria-label": `${words} ${this.spec.key}` }, label);
      made.addEventListener("click", act);
      return made;
    };
    return element(
      "div",
      { class: "tools", role: "group", "aria-label": `View of ${this.spec.key}` },
      button("+", "Zoom in on", () => this.zoom(ZOOM_STEP)),
      button("−", "Zoom out of", () => this.zoom(1 / ZOOM_STEP)),
      button("◀", "Earlier in", () => this.pan(-0.3)),
      button("▶", "Later in", () => this.pan(0.3)),
      button("All", "All of", () => this.zoomTo(null)),
    );
  }

  private zoom(factor: number): void {
    const [low, high] = this.view();
    const middle = this.cursor !== null && this.cursor >= low && this.cursor <= high ? this.cursor : (low + high) / 2;
    this.zoomTo([middle - (middle - low) * factor, middle + (high - middle) * factor]);
  }

  private pan(share: number): void {
    const [low, high] = this.view();
    const [first, last] = this.extent();
    let by = (high - low) * share;
    by = Math.max(first - low, Math.min(last - high, by));
    this.zoomTo([low + by, high + by]);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [low, high] = this.view();
    const by = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    if (by && event.shiftKey) this.pan(by * 0.3);
    else if (by) {
      const step = (high - low) / 50;
      this.cursor = Math.min(high, Math.max(low, (this.cursor ?? (by > 0 ? low - step : high + step)) + by * step));
      this.words.setAttribute("aria-live", "polite");
      this.plot?.setCursor({ left: this.plot.valToPos(this.cursor, "x"), top: 10 }, false);
      this.say();
    } else if (event.key === "+" || event.key === "=") this.zoom(ZOOM_STEP);
    else if (event.key === "-") this.zoom(1 / ZOOM_STEP);
    else if (event.key === "0" || event.key === "Home") this.zoomTo(null);
    else return;
    event.preventDefault();
  }
}
