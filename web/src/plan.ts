// What if: sliders over a plan, worked out in the page as `forerun plan` does, with the command that says the same.
import { setParameter } from "./address";
import { element, visible } from "./element";
import { measured, tell } from "./measured";
import { count, duration, flops, size } from "./numbers";
import { plan, problem, stepsFor } from "./plan/cost";
import type { Plan } from "./plan/cost";
import type { Inputs, PlannedRun } from "./plan/inputs";

interface Field {
  path: string;
  label: string;
  choices?: string[];
}

const FIELDS: Field[] = [
  { path: "model.num_layers", label: "layers" },
  { path: "model.d_model", label: "d_model" },
  { path: "model.num_experts", label: "experts" },
  { path: "model.top_k", label: "top_k" },
  { path: "model.d_expert", label: "d_expert" },
  { path: "model.d_latent", label: "d_latent" },
  { path: "model.num_shared_experts", label: "shared experts" },
  { path: "model.d_shared", label: "d_shared" },
  { path: "model.vocab_size", label: "vocabulary" },
  { path: "seq_len", label: "context, tokens" },
  { path: "batch_size", label: "sequences per step" },
  { path: "num_steps", label: "steps" },
  { path: "num_microbatches", label: "microbatches" },
  { path: "mesh.replica", label: "replicas" },
  { path: "mesh.data", label: "data shards" },
  { path: "mesh.expert", label: "expert shards" },
  { path: "transport.capacity_factor", label: "capacity factor" },
  { path: "transport.kind", label: "transport", choices: ["local", "all_gather", "fixed_cells", "pooled_wave", "ragged"] },
  { path: "remat", label: "rematerialise", choices: ["none", "block", "moe"] },
  { path: "compute_dtype", label: "compute in", choices: ["float32", "bfloat16"] },
];

type Words = Record<string, string>;
type Value = number | string;

function read(run: PlannedRun, path: string): Value {
  return path.split(".").reduce<unknown>((part, key) => (part as Record<string, unknown>)[key], run) as Value;
}

function write(run: PlannedRun, path: string, value: Value): void {
  const keys = path.split(".");
  const last = keys.pop() as string;
  const part = keys.reduce<unknown>((inner, key) => (inner as Record<string, unknown>)[key], run);
  (part as Record<string, Value>)[last] = value;
}

class WhatIf {
  private run: PlannedRun;
  private base: PlannedRun;
  private readonly form = element("form", { class: "what-if" });
  private readonly told = element("p", { class: "lead", role: "status" });
  private readonly command = element("pre", { tabindex: "0", class: "command" });
  private source: string;
  private device: string;
  private mfu: number;

  constructor(
    place: HTMLElement,
    private readonly tables: HTMLElement,
    private readonly inputs: Inputs & { words: Words },
    start: string,
  ) {
    const query = new URLSearchParams(location.search);
    this.source = query.get("of") ?? start;
    this.base = this.sourceRun(this.source);
    this.run = structuredClone(this.base);
    this.device = query.get("device") ?? this.usualDevice();
    this.mfu = Number(query.get("mfu")) || inputs.mfu;
    for (const change of query.getAll("set")) {
      const at = change.indexOf("=");
      const field = FIELDS.find((entry) => entry.path === change.slice(0, at));
      if (field) write(this.run, field.path, field.choices ? change.slice(at + 1) : Number(change.slice(at + 1)));
    }
    this.form.addEventListener("submit", (event) => event.preventDefault());
    place.append(element("h2", {}, "What if"), this.form, this.told, element("p", { class: "soft" }, "The same on the command line:"), this.command);
    this.build();
    this.show();
  }

  private sourceRun(name: string): PlannedRun {
    const found = this.inputs.runs?.[name]?.run ?? this.inputs.presets[name] ?? Object.values(this.inputs.presets)[0];
    return found as PlannedRun;
  }

  private usualDevice(): string {
    const known = this.inputs.runs?.[this.source]?.plan.device;
    return typeof known === "string" ? known : (Object.keys(this.inputs.devices)[0] ?? "");
  }

  /** The form for the present source. */
  private build(): void {
    const names = [...Object.keys(this.inputs.runs ?? {}), ...Object.keys(this.inputs.presets)];
    const source = choice("what-if-of", "start from", names, this.source, (name) => {
      this.source = name;
      this.base = this.sourceRun(name);
      this.run = structuredClone(this.base);
      this.device = this.usualDevice();
      this.build();
      this.show();
    });
    const device = choice("what-if-device", "device", Object.keys(this.inputs.devices), this.device, (name) => ((this.device = name), this.show()));
    const mfu = slider("what-if-mfu", "MFU", this.mfu, { low: 0.05, high: 1, step: 0.01 }, (value) => ((this.mfu = value), this.show()));
    const fields = FIELDS.map((field) => {
      const value = read(this.run, field.path);
      const id = `what-if-${field.path.replace(".", "-")}`;
      const change = (next: Value): void => {
        write(this.run, field.path, next);
        this.show();
      };
      if (field.choices) return choice(id, field.label, field.choices, String(value), change);
      return slider(id, field.label, Number(value), limits(field.path, Number(read(this.base, field.path))), change);
    });
    const ratio = element("button", { type: "button" }, "Steps for 791 tokens per active parameter");
    ratio.addEventListener("click", () => {
      write(this.run, "num_steps", stepsFor(this.run, 791));
      this.build();
      this.show();
    });
    const reset = element("button", { type: "button" }, "Back to the start");
    reset.addEventListener("click", () => {
      this.run = structuredClone(this.base);
      this.build();
      this.show();
    });
    this.form.replaceChildren(source, device, mfu, ...fields, element("div", { class: "buttons" }, ratio, reset));
  }

  private changes(): [string, Value][] {
    return FIELDS.flatMap(({ path }) => {
      const value = read(this.run, path);
      return value === read(this.base, path) ? [] : [[path, value] as [string, Value]];
    });
  }

  /** Work it out and show it; a design that cannot be keeps the last tables and says why. */
  private show(): void {
    const changes = this.changes();
    setParameter("of", [this.source]);
    setParameter("device", [this.device]);
    setParameter("mfu", [String(this.mfu)]);
    setParameter("set", changes.map(([path, value]) => `${path}=${value}`));
    this.command.textContent = visible(this.asCommand(changes));
    const wrong = problem(this.run) || (this.mfu > 0 && this.mfu <= 1 ? "" : "MFU must lie in 0..1");
    const device = this.inputs.devices[this.device];
    if (wrong || !device) {
      this.told.textContent = `Not possible: ${wrong || "choose a device"}.`;
      this.told.dataset.state = "missed";
      return;
    }
    const worked = plan(this.run, device, this.mfu, this.inputs);
    const fits = worked.memory_bytes.fits;
    const { words } = this.inputs;
    const number = (value: number, term: string, written?: string): HTMLElement => measured(value, words[term] ?? "", written);
    tell(
      this.told,
      number(worked.num_params, "num_params", count(worked.num_params)),
      " parameters, ",
      number(worked.num_active_params, "num_active_params", count(worked.num_active_params)),
      " active, ",
      number(worked.train_flops, "train_flops", flops(worked.train_flops)),
      " FLOPs: ",
      number(worked.days, "days"),
      ` days on ${worked.num_devices} x ${worked.device}; `,
      number(worked.memory_bytes.total, "memory_bytes", size(worked.memory_bytes.total)),
      " of ",
      number(worked.memory_bytes.device, "memory_bytes", size(worked.memory_bytes.device)),
      ` a device${fits ? "" : ", which does not fit"}; bound by ${worked.step_bounds_s.binding}.`,
    );
    this.told.dataset.state = fits ? "kept" : "missed";
    this.tables.replaceChildren(...tables(worked, this.inputs.words));
    this.tables.dataset.plan = JSON.stringify(worked);
  }

  private asCommand(changes: [string, Value][]): string {
    const isRun = this.source in (this.inputs.runs ?? {});
    const mesh = changes.some(([path]) => path.startsWith("mesh."));
    const { replica, data, expert } = this.run.mesh;
    const sets = changes.filter(([path]) => !path.startsWith("mesh.") && path !== "transport.kind");
    const kind = changes.find(([path]) => path === "transport.kind")?.[1];
    return [
      `forerun plan ${isRun ? `runs/${this.source}/config.json` : `--preset ${this.source}`}`,
      `--device ${this.device} --mfu ${this.mfu}`,
      ...(mesh ? [`--mesh replica=${replica},data=${data},expert=${expert}`] : []),
      ...(kind ? [`--transport ${kind}`] : []),
      ...sets.map(([path, value]) => `--set ${path}=${typeof value === "string" ? JSON.stringify(value) : value}`),
    ].join(" ");
  }
}

interface Limits {
  low: number;
  high: number;
  step: number;
}

/** A slider spans an eighth to eight times the start; the box beside it takes any number. */
function limits(path: string, start: number): Limits {
  if (path === "transport.capacity_factor") return { low: 0, high: 2, step: 0.05 };
  const step = path === "model.d_latent" ? 2 : 1;
  const least = path === "model.num_shared_experts" || (path === "model.top_k" && start === 0) ? 0 : step;
  return { low: Math.max(least, Math.floor(start / 8 / step) * step), high: Math.max(8, start * 8), step };
}

function slider(id: string, label: string, value: number, { low, high, step }: Limits, change: (value: number) => void): HTMLElement {
  const range = element("input", { type: "range", id: `${id}-range`, min: String(low), max: String(high), step: String(step), value: String(value), "aria-label": `${label}, slider` });
  const box = element("input", { type: "number", id, step: "any", value: String(value) });
  range.addEventListener("input", () => {
    box.value = range.value;
    change(Number(range.value));
  });
  box.addEventListener("input", () => {
    if (box.value === "" || !Number.isFinite(Number(box.value))) return;
    range.value = box.value;
    change(Number(box.value));
  });
  return element("div", { class: "field" }, element("label", { for: id }, label), box, range);
}

function choice(id: string, label: string, choices: string[], value: string, change: (value: string) => void): HTMLElement {
  const select = element("select", { id }, ...choices.map((name) => element("option", { value: name, selected: name === value }, name)));
  select.addEventListener("change", () => change(select.value));
  return element("div", { class: "field" }, element("label", { for: id }, label), select);
}

/** The same tables the page has without scripts. */
function tables(worked: Plan, words: Words): HTMLElement[] {
  const number = (value: number, term: string, written?: string): HTMLElement => measured(value, words[term] ?? "", written);
  const table = (caption: string, head: string[], rows: (string | HTMLElement)[][]): HTMLElement =>
    element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      element(
        "table",
        {},
        element("caption", {}, caption),
        element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
        element("tbody", {}, ...rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell))))),
      ),
    );
  const { memory_bytes: memory, network_bytes_per_step: network, step_bounds_s: bounds } = worked;
  const bytes = (label: string, value: number): (string | HTMLElement)[] => [label, number(value, "memory_bytes", size(value))];
  const spaced = (name: string): string => name.replaceAll("_", " ");
  return [
    element("h2", {}, `${worked.name} on ${worked.num_devices} x ${worked.device}, MFU ${worked.mfu}`),
    table("Totals", ["what", "value"], [
      ["parameters", number(worked.num_params, "num_params")],
      ["active parameters", number(worked.num_active_params, "num_active_params")],
      ["tokens", number(worked.train_tokens, "train_tokens")],
      ["tokens per active parameter", number(worked.tokens_per_active_param, "tokens_per_active_param")],
      ["training compute", number(worked.train_flops, "train_flops", `${flops(worked.train_flops)} FLOPs`)],
      ["step time at that MFU", number(worked.step_time_s, "step_time_s", duration(worked.step_time_s))],
      ["days", number(worked.days, "days")],
      ["energy, MWh", number(worked.energy_mwh, "energy_mwh")],
      ["checkpoint", number(worked.checkpoint_bytes, "checkpoint_bytes", size(worked.checkpoint_bytes))],
      ...(worked.ladder_flops_fraction === null
        ? []
        : [["its ladder costs", number(worked.ladder_flops_fraction, "compute_fraction", `${(100 * worked.ladder_flops_fraction).toFixed(2)}%`)]]),
    ]),
    table("Parameters by part", ["part", "parameters"], Object.entries(worked.params_by_part).map(([part, value]) => [spaced(part), number(value, "num_params")])),
    table("Forward FLOPs by part", ["part", "FLOPs per token"], Object.entries(worked.forward_flops_by_term).map(([part, value]) => [spaced(part), number(value, "forward_flops_per_token")])),
    table("Memory", ["part", "per device"], [
      bytes("weights", memory.weights),
      bytes("compute copy", memory.compute_copy),
      bytes("optimizer", memory.optimizer),
      bytes("gradients", memory.gradients),
      bytes(`activations, remat ${memory.remat}`, memory.activations[memory.remat] ?? 0),
      bytes("expert buffers", memory.expert_buffers),
      bytes("all", memory.total),
      bytes(`a ${worked.device} has`, memory.device),
    ]),
    table(
      `Bytes one device sends per step; this run uses ${network.transport}`,
      ["exchange", "inside the domain", "beyond it"],
      [["weights and gradients", network.weights] as const, ...Object.entries(network.experts).map(([kind, sent]) => [`experts, ${kind}`, sent] as const)].map(
        ([label, sent]) => [label, number(sent.inner, "network_bytes_per_step", size(sent.inner)), number(sent.outer, "network_bytes_per_step", size(sent.outer))],
      ),
    ),
    table(
      `A step takes at least the largest: ${bounds.binding}`,
      ["bound by", "shortest step"],
      (["compute", "memory", "network"] as const).map((name) => [name, number(bounds[name], "step_bound_s", duration(bounds[name]))]),
    ),
  ];
}

const place = document.getElementById("what-if");
const shownTables = document.getElementById("plan-tables");
if (place && shownTables) {
  void fetch(place.dataset.index ?? "")
    .then((answer) => (answer.ok ? (answer.json() as Promise<Inputs & { words: Words }>) : Promise.reject(new Error(`HTTP ${answer.status}`))))
    .then((inputs) => new WhatIf(place, shownTables, inputs, place.dataset.start ?? ""))
    .catch((error: unknown) => console.warn(`the plan stays as it is: ${String(error)}`));
}
