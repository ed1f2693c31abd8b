import { differences } from "./difference";
import type { Part } from "./difference";
import { element } from "../element";
import { measured } from "../measured";
import { opened, rowsOf } from "../parquet";
import { meaningsOf, table } from "../table";
import type { Content } from "../table";

// Documents, pairs and contaminated documents: pages that are filled from the Parquet files one can download.

const SHOWN_CHARS = 1500;

interface Sample {
  kind: string;
  id: string;
  source: string;
  source_id: string;
  quality_score: number | null;
  domain_cosine: number | null;
  num_tokens: bigint;
  text: string | null;
  cut: boolean;
}

interface Pair {
  kind: string;
  id: string;
  source: string;
  kept_source: string;
  kept_id: string;
  text: string | null;
  kept_text: string | null;
  containment: number;
  jaccard: number;
  cluster_size: bigint | number;
  novel_grams: bigint | number | null;
  novel_words: bigint | number | null;
  comparisons: bigint | number | null;
}

interface Hit {
  id: string;
  source: string;
  item: string;
  text: string | null;
  item_text: string | null;
}

type Words = Record<string, string>;

/** Fills what the page left to be filled. Places of many texts are filled when they are opened. */
export function startTexts(): void {
  const pair = document.getElementById("pair");
  if (pair) void filled(pair, showPair);
  for (const place of document.querySelectorAll<HTMLDetailsElement>("details[data-documents]")) whenOpen(place, showDocuments);
  for (const place of document.querySelectorAll<HTMLDetailsElement>("details[data-hit]")) whenOpen(place, showHit);
}

function whenOpen(place: HTMLDetailsElement, show: (place: HTMLElement) => Promise<void>): void {
  let asked = false;
  const fill = (): void => {
    if (!place.open || asked) return;
    asked = true;
    void filled(place, show);
  };
  place.addEventListener("toggle", fill);
  fill();
}

async function filled(place: HTMLElement, show: (place: HTMLElement) => Promise<void>): Promise<void> {
  const note = element("p", { class: "soft", role: "status" });
  place.append(note);
  try {
    await show(place);
    note.remove();
    performance.mark("filled");
  } catch (error) {
    console.warn(String(error));
    note.textContent = "The texts cannot be read here; serve the folder with any file server, or with `forerun site serve`.";
  }
}

function number(value: number, term: string, words: Words): HTMLElement {
  return measured(value, words[term] ?? "");
}

async function showDocuments(place: HTMLElement): Promise<void> {
  const [start, end] = (place.dataset.documents ?? "").split(":").map(Number);
  const columns = ["kind", "id", "source", "source_id", "quality_score", "domain_cosine", "num_tokens", "text", "cut"] as const;
  const rows = await rowsOf<Sample>(await opened(place.dataset.file ?? ""), [...columns], start, end);
  const words = meaningsOf(document.getElementById("documents") ?? place);
  place.append(...rows.map((row) => sampled(row, words)));
}

function sampled(row: Sample, words: Words): HTMLElement {
  const text = row.text ?? "";
  const facts: Content[] = [
    `${row.kind === "nearest" ? "nearest to its cluster's centre" : "drawn at random"}; source ${row.source}, ${row.source_id ?? ""}; `,
    number(Number(row.num_tokens), "num_tokens", words),
    " tokens",
  ];
  if (Number.isFinite(row.quality_score ?? NaN)) facts.push("; quality score ", number(row.quality_score ?? 0, "quality_score", words));
  if (Number.isFinite(row.domain_cosine ?? NaN)) facts.push("; cosine to centre ", number(row.domain_cosine ?? 0, "domain_cosine", words));
  const more = row.cut || text.length > SHOWN_CHARS ? [element("span", { class: "soft" }, " […]")] : [];
  return element(
    "article",
    { class: "document" },
    element("p", { class: "soft" }, ...facts),
    element("pre", { dir: "ltr", tabindex: "0" }, text.slice(0, SHOWN_CHARS), ...more),
    element("p", { class: "soft" }, "id ", element("code", {}, row.id)),
  );
}

async function showPair(place: HTMLElement): Promise<void> {
  const asked = new URLSearchParams(location.search).get("pair") ?? "";
  const file = await opened(place.dataset.file ?? "");
  const names = await rowsOf<Pair>(file, ["kind", "id"]);
  const index = names.findIndex((row) => `${row.kind}-${row.id}` === asked);
  if (index < 0) {
    place.append(element("p", { class: "lead" }, asked ? `No sampled pair is called ${asked}.` : "Choose a pair from the list of duplicates."));
    return;
  }
  const columns = ["kind", "id", "source", "kept_source", "kept_id", "text", "kept_text", "containment", "jaccard", "cluster_size", "novel_grams", "novel_words", "comparisons"] as const;
  const [row] = await rowsOf<Pair>(file, [...columns], index, index + 1);
  if (!row) return;
  const words = meaningsOf(place);
  const removed = row.kind === "removed";
  const facts: Content[][] = [["decision", removed ? "removed: the other document holds it" : "kept: the other document holds too little of it"]];
  for (const name of ["containment", "jaccard", "cluster_size", "novel_grams", "novel_words", "comparisons"] as const) {
    if (row[name] !== null && row[name] !== undefined) facts.push([name.replaceAll("_", " "), number(Number(row[name]), name, words)]);
  }
  const said = Object.entries((JSON.parse(place.dataset.reviews ?? "{}") as Record<string, Words>)[asked] ?? {});
  const heading = document.querySelector("h1");
  if (heading) heading.textContent = `${removed ? "Removed" : "Kept"}: ${row.id.slice(0, 12)}`;
  document.title = `${heading?.textContent ?? ""} · forerun`;
  place.append(
    table("How it was decided", ["what", "value"], facts),
    ...said.map(([reviewer, judgement]) => element("p", {}, `${reviewer} says: ${judgement}.`)),
    beside(
      [`${removed ? "Removed" : "Kept"}: ${row.source}`, row.id, row.text ?? ""],
      [`${removed ? "Holds it" : "Compared with"}: ${row.kept_source}`, row.kept_id, row.kept_text ?? ""],
    ),
  );
}

async function showHit(place: HTMLElement): Promise<void> {
  const at = Number(place.dataset.hit);
  const [row] = await rowsOf<Hit>(await opened(place.dataset.file ?? ""), ["id", "source", "item", "text", "item_text"], at, at + 1);
  if (row) place.append(beside([`Dropped: ${row.source}`, row.id, row.text ?? ""], ["Evaluation item", row.item, row.item_text ?? ""]));
}

/** Two texts, one beside the other, with the words that differ marked. */
function beside(left: [string, string, string], right: [string, string, string]): HTMLElement {
  const parts = differences(left[2], right[2]);
  return element(
    "div",
    { class: "beside" },
    ...[left, right].map(([head, name], side) =>
      element("section", {}, element("h3", {}, head), element("p", { class: "soft" }, element("code", {}, name)), element("pre", { dir: "ltr", tabindex: "0" }, ...marked(parts[side] ?? []))),
    ),
  );
}

function marked(parts: Part[]): Content[] {
  return parts.map((part) => (part.own ? element("mark", {}, part.text) : part.text));
}
