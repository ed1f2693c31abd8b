import { setParameter } from "../address";
import { element } from "../element";
import { measured, tell } from "../measured";
import { count } from "../numbers";
import type { Column } from "../table";
import { percent, table, meaningsOf } from "../table";

interface Inputs {
  name: string;
  manifest: string;
  epoch_cap: number;
  num_tokens: number;
  cells: [name: string, domain: string, quality: number, tokens: number][];
  titles: Record<string, string>;
  sources: Record<string, [cell: number, tokens: number][]>;
}

const SHOWN_CELLS = 20;

/** Weights times factors, and what a run would read with them. */
export interface Outcome {
  weights: number[];
  exposure: number[];
  over: number[];
  qualities: number[];
  domains: Map<string, number>;
  sources: Map<string, number>;
}

/** The arithmetic of `forerun data mixture`: tokens times the factor of the domain, the bucket and the cell, normalised. */
export function outcome(inputs: Inputs, factors: Map<string, number>, trainTokens: number): Outcome {
  const raw = inputs.cells.map(([name, domain, quality, tokens]) => tokens * (factors.get(name) ?? 1) * (factors.get(domain) ?? 1) * (factors.get(`q${quality}`) ?? 1));
  const total = raw.reduce((sum, value) => sum + value, 0);
  const weights = raw.map((value) => (total ? value / total : 0));
  const exposure = weights.map((weight, cell) => ((inputs.cells[cell]?.[3] ?? 0) > 0 ? (weight * trainTokens) / (inputs.cells[cell]?.[3] ?? 1) : 0));
  const qualities = [0, 0, 0, 0, 0];
  const domains = new Map<string, number>();
  inputs.cells.forEach(([, domain, quality], cell) => {
    qualities[quality] = (qualities[quality] ?? 0) + (weights[cell] ?? 0);
    domains.set(domain, (domains.get(domain) ?? 0) + (weights[cell] ?? 0));
  });
  const sources = new Map(Object.entries(inputs.sources).map(([name, parts]) => [name, parts.reduce((sum, [cell, tokens]) => sum + (exposure[cell] ?? 0) * tokens, 0)]));
  const over = exposure.flatMap((epochs, cell) => (epochs > inputs.epoch_cap * (1 + 1e-9) ? [cell] : []));
  return { weights, exposure, over, qualities, domains, sources };
}

/** Fills the page's place with controls and the consequences. */
export async function startWhatIf(place: HTMLElement): Promise<void> {
  const answer = await fetch(new URL(place.dataset.inputs ?? "", document.baseURI)).catch(() => null);
  if (!answer?.ok) {
    place.append(element("p", { class: "soft" }, "The numbers cannot be read here; serve the site with `forerun site serve`."));
    return;
  }
  const inputs = (await answer.json()) as Inputs;
  const words = meaningsOf(place);
  const query = new URLSearchParams(location.search);
  const factors = new Map<string, number>();
  for (const entry of query.getAll("set")) {
    const at = entry.lastIndexOf("=");
    const value = Number(entry.slice(at + 1));
    if (at > 0 && Number.isFinite(value) && value >= 0) factors.set(entry.slice(0, at), value);
  }
  const budget = element("input", { type: "number", id: "train-tokens", min: "1", step: "any", value: query.get("tokens") ?? String(inputs.num_tokens) });
  const told = element("p", { role: "status", class: "lead" });
  const shown = element("div", {});
  const redraw = (): void => {
    setParameter("set", [...factors].filter(([, factor]) => factor !== 1).map(([name, factor]) => `${name}=${factor}`));
    setParameter("tokens", [budget.value]);
    show(inputs, factors, Number(budget.value), told, shown, words);
  };
  const control = (name: string, label: string): HTMLElement => {
    const id = `factor-${name}`;
    const input = element("input", { type: "number", id, min: "0", step: "0.1", value: String(factors.get(name) ?? 1) });
    input.addEventListener("input", () => {
      const value = Number(input.value);
      if (input.value !== "" && Number.isFinite(value) && value >= 0) factors.set(name, value);
      redraw();
    });
    return element("label", { for: id }, `${label} × `, input);
  };
  const domains = [...new Set(inputs.cells.map(([, domain]) => domain))];
  budget.addEventListener("input", redraw);
  const save = element("button", { type: "button" }, "Save as mixture file");
  save.addEventListener("click", () => download(inputs, factors));
  place.append(
    element("div", { class: "controls" }, element("label", { for: "train-tokens" }, "Tokens of the run ", budget), save),
    element("fieldset", { class: "controls" }, element("legend", {}, "Buckets"), ...[0, 1, 2, 3, 4].map((quality) => control(`q${quality}`, `Q${quality}`))),
    element("details", {}, element("summary", {}, "Domains"), element("div", { class: "controls" }, ...domains.map((name) => control(name, inputs.titles[name] ?? name)))),
    told,
    shown,
  );
  redraw();
}

function show(inputs: Inputs, factors: Map<string, number>, trainTokens: number, told: HTMLElement, shown: HTMLElement, words: Record<string, string>): void {
  if (!(trainTokens > 0)) {
    told.textContent = "Give the tokens of the run as a number above 0.";
    return;
  }
  const now = outcome(inputs, factors, trainTokens);
  if (!now.weights.some((weight) => weight > 0)) {
    told.textContent = "No cell has any weight left.";
    shown.replaceChildren();
    return;
  }
  const head = (label: string, term: string): Column => ({ label, words: words[term] ?? "" });
  const [share, usual] = [head("share", "share_read"), head("in proportion", "share_read")];
  const before = outcome(inputs, new Map(), trainTokens);
  const most = now.exposure.reduce((best, epochs, cell) => (epochs > (now.exposure[best] ?? 0) ? cell : best), 0);
  tell(
    told,
    (now.over.length ? `${now.over.length} cells would be read more than ${inputs.epoch_cap} times. ` : `No cell is read more than ${inputs.epoch_cap} times. `) +
      `Most often: ${inputs.cells[most]?.[0] ?? ""}, `,
    measured(now.exposure[most] ?? 0, words.exposure ?? "", (now.exposure[most] ?? 0).toFixed(2)),
    " epochs.",
  );
  told.classList.toggle("off_course", now.over.length > 0);
  const quality = now.qualities.map((share, bucket) => [`Q${bucket}`, percent(share, 2), percent(before.qualities[bucket] ?? 0, 2)]);
  const domains = [...now.domains].sort((a, b) => b[1] - a[1]).map(([name, share]) => [inputs.titles[name] ?? name, percent(share, 2), percent(before.domains.get(name) ?? 0, 2)]);
  const cells = now.exposure
    .map((epochs, cell) => ({ epochs, cell }))
    .sort((a, b) => b.epochs - a.epochs)
    .slice(0, SHOWN_CELLS)
    .map(({ epochs, cell }) => [inputs.cells[cell]?.[0] ?? "", epochs.toFixed(3), percent(now.weights[cell] ?? 0, 3), epochs > inputs.epoch_cap ? "over the cap" : ""]);
  const sources = [...now.sources].sort((a, b) => b[1] - a[1]).map(([name, tokens]) => [name, count(tokens), count(before.sources.get(name) ?? 0)]);
  shown.replaceChildren(
    table("Buckets", ["bucket", share, usual], quality),
    table("Cells read most often", ["cell", head("epochs", "exposure"), head("weight", "mixture_weight"), ""], cells),
    table("Domains", ["domain", share, usual], domains),
    ...(sources.length ? [table("Tokens read of each source", ["source", head("tokens", "tokens_read"), head("in proportion", "tokens_read")], sources)] : []),
  );
}

/** One phase as `data.mixture` takes it, like `forerun mixture plan` prints. */
export function phase(inputs: Inputs, factors: Map<string, number>): string {
  const { weights } = outcome(inputs, factors, 1);
  const named = Object.fromEntries(inputs.cells.map(([name], cell) => [name, weights[cell] ?? 0] as const).filter(([, weight]) => weight > 0));
  return `${JSON.stringify({ start_fraction: 0, weights: named }, null, 1)}\n`;
}

function download(inputs: Inputs, factors: Map<string, number>): void {
  const link = element("a", { href: `data:application/json;charset=utf-8,${encodeURIComponent(phase(inputs, factors))}`, download: `mixture-${inputs.name}.json` });
  link.click();
}
