import { setParameter } from "../address";
import { element } from "../element";
import { measured, tell } from "../measured";
import { count } from "../numbers";
import { opened, rowsOf } from "../parquet";
import type { Column } from "../table";
import { meaningsOf, percent, table } from "../table";

/** `search.json`: what each row of the uniform samples is, and what each cell holds. */
interface Head {
  cells: [name: string, domain: string, quality: number, tokens: number][];
  titles: Record<string, string>;
  slugs: Record<string, string>;
  common: string[];
  row_cell: number[];
  row_tokens: number[];
  /** First word of each row group of `words.parquet`, and how many words a group holds. */
  groups: string[];
  group_words: number;
}

/** A row of `search-documents.parquet`: what is shown of a found document. */
interface Start {
  id: string;
  start: string;
}

interface Word {
  word: string;
  rows: Uint8Array;
}

const SHOWN_DOMAINS = 12;
const SHOWN_EXAMPLES = 10;
const WAIT_MS = 120;

/** Words in lower case, as the index has them. */
export function wordsOf(text: string): string[] {
  return [...new Set(text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [])];
}

/** Search by topic: words in, share of the data, of every bucket and of every domain out. */
export function startSearch(place: HTMLElement): void {
  const input = element("input", { type: "search", id: "topic", autocomplete: "off", spellcheck: "false" });
  const told = element("p", { role: "status", class: "lead" });
  const found = element("div", {});
  const label = element("label", { for: "topic" }, "Search by topic ");
  place.append(element("div", { class: "controls" }, label, input), told, found);
  const index = new URL(place.dataset.index ?? "", document.baseURI);
  let head: Promise<Head> | null = null;
  let serial = 0;
  let timer = 0;
  const run = async (): Promise<void> => {
    const mine = ++serial;
    setParameter("topic", input.value ? [input.value] : []);
    const typed = wordsOf(input.value);
    if (!typed.length) {
      told.textContent = "";
      found.replaceChildren();
      return;
    }
    try {
      head ??= read<Head>(index);
      const known = await head;
      const words = typed.filter((word) => !known.common.includes(word));
      if (!words.length) {
        told.textContent = "Half of all documents hold these words; give rarer ones.";
        found.replaceChildren();
        return;
      }
      const rows = await rowsWith(index, known, words);
      if (mine !== serial) return;
      show(known, words, rows, told, found, place);
      if (!rows.length) return;
      const listed = await examples(known, index, rows);
      if (mine === serial) found.append(listed);
    } catch {
      head = null;
      told.textContent = "The search index cannot be read here; serve the site with `forerun site serve`, or search with `forerun data search`.";
    }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => void run(), WAIT_MS);
  });
  const asked = new URLSearchParams(location.search).get("topic");
  if (asked) {
    input.value = asked;
    void run();
  }
}

const groups = new Map<number, Promise<Map<string, Uint8Array>>>();

/** Rows that hold every word: one row group of the index is read a word. */
async function rowsWith(index: URL, head: Head, words: string[]): Promise<number[]> {
  const lists = await Promise.all(
    words.map(async (word) => {
      const group = groupOf(head, word);
      if (group < 0) return [];
      let known = groups.get(group);
      if (!known) {
        known = opened(new URL("words.parquet", index).href)
          .then((file) => rowsOf<Word>(file, ["word", "rows"], group * head.group_words, Math.min((group + 1) * head.group_words, Number(file.metadata.num_rows))))
          .then((rows) => new Map(rows.map((row) => [row.word, row.rows])));
        known.catch(() => groups.delete(group));
        groups.set(group, known);
      }
      return places((await known).get(word) ?? new Uint8Array(0));
    }),
  );
  const [first = [], ...others] = lists.sort((a, b) => a.length - b.length);
  const sets = others.map((list) => new Set(list));
  return first.filter((row) => sets.every((set) => set.has(row)));
}

/** The last group that begins at or before a word; words are in the order of their code points. */
function groupOf(head: Head, word: string): number {
  const key = points(word);
  let [low, high] = [0, head.groups.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points(head.groups[middle] ?? "") <= key) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Text that compares as its code points do; UTF-16 puts characters beyond the first plane before some within it. */
function points(word: string): string {
  return [...word].map((character) => (character.codePointAt(0) ?? 0).toString(16).padStart(6, "0")).join("");
}

/** Rows from their differences, seven bits a byte, the lowest first. */
function places(coded: Uint8Array): number[] {
  const found: number[] = [];
  let [at, step, shift] = [0, 0, 0];
  for (const byte of coded) {
    step |= (byte & 127) << shift;
    shift += 7;
    if (byte > 127) continue;
    found.push((at += step));
    step = shift = 0;
  }
  return found;
}

async function read<T>(address: URL): Promise<T> {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address.pathname} answers ${answer.status}`);
  return (await answer.json()) as T;
}

function show(head: Head, words: string[], rows: number[], told: HTMLElement, found: HTMLElement, place: HTMLElement): void {
  const sampled = new Float64Array(head.cells.length);
  const matched = new Float64Array(head.cells.length);
  head.row_cell.forEach((cell, row) => (sampled[cell] = (sampled[cell] ?? 0) + (head.row_tokens[row] ?? 0)));
  for (const row of rows) {
    const cell = head.row_cell[row] ?? 0;
    matched[cell] = (matched[cell] ?? 0) + (head.row_tokens[row] ?? 0);
  }
  const qualities = [0, 0, 0, 0, 0];
  const usual = [0, 0, 0, 0, 0];
  const topic = new Map<string, number>();
  const whole = new Map<string, number>();
  let total = 0;
  let all = 0;
  head.cells.forEach(([, domain, quality, tokens], cell) => {
    const part = sampled[cell] ? (tokens * (matched[cell] ?? 0)) / (sampled[cell] ?? 1) : 0;
    qualities[quality] = (qualities[quality] ?? 0) + part;
    usual[quality] = (usual[quality] ?? 0) + tokens;
    topic.set(domain, (topic.get(domain) ?? 0) + part);
    whole.set(domain, (whole.get(domain) ?? 0) + tokens);
    total += part;
    all += tokens;
  });
  const named = (domain: string): boolean => {
    const known = new Set(wordsOf(head.titles[domain] ?? ""));
    return words.every((word) => known.has(word));
  };
  const hits = [...topic].filter(([domain, part]) => part > 0 || named(domain)).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  if (!rows.length) {
    const only = hits.filter(([domain]) => named(domain)).map(([domain]) => domain);
    told.textContent = `None of ${head.row_cell.length.toLocaleString("en-US")} sampled documents has ${words.join(" and ")}.` + (only.length ? ` Domains called so: ${only.join(", ")}.` : "");
    found.replaceChildren();
    return;
  }
  const best = total ? (qualities[4] ?? 0) / total : 0;
  const expected = all ? (usual[4] ?? 0) / all : 0;
  const meanings = meaningsOf(place);
  const share = (value: number, term: string, digits?: number): HTMLElement => measured(value, meanings[term] ?? "", percent(value, digits));
  tell(
    told,
    "About ",
    share(all ? total / all : 0, "topic_share", 2),
    ` of the tokens (${rows.length} of ${head.row_cell.length.toLocaleString("en-US")} sampled documents). `,
    share(best, "topic_share"),
    " of it is in Q4, where the average is ",
    share(expected, "token_share"),
    ...(expected ? [": ", measured(best / expected, meanings.enrichment ?? "", (best / expected).toFixed(2)), " times the usual share."] : ["."]),
  );
  const buckets = qualities.map((part, quality) => [`Q${quality}`, percent(total ? part / total : 0), percent(all ? (usual[quality] ?? 0) / all : 0)]);
  const parts = hits.slice(0, SHOWN_DOMAINS).map(([domain, part]) => [
    element("a", { href: `${place.dataset.domains ?? ""}/${encodeURIComponent(head.slugs[domain] ?? "")}.html` }, domain),
    count(part),
    percent((whole.get(domain) ?? 0) > 0 ? part / (whole.get(domain) ?? 1) : 0),
    named(domain) ? "in its name or terms" : "",
  ]);
  const meant = (label: string, term: string): Column => ({ label, words: meanings[term] ?? "" });
  found.replaceChildren(
    table("The topic by bucket", ["bucket", meant("share of the topic", "topic_share"), meant("share of all text", "token_share")], buckets),
    table("Where it is", ["domain", meant("tokens, estimated", "topic_tokens"), meant("share of the domain", "topic_share"), ""], parts),
  );
}

async function examples(head: Head, index: URL, rows: number[]): Promise<HTMLElement> {
  const file = await opened(new URL("search-documents.parquet", index).href);
  const shown = await Promise.all(
    rows.slice(0, SHOWN_EXAMPLES).map(async (row) => {
      const [found] = await rowsOf<Start>(file, ["id", "start"], row, row + 1);
      return [head.cells[head.row_cell[row] ?? 0]?.[0] ?? "", found?.start ?? "", found?.id ?? ""];
    }),
  );
  return table("Documents with it", ["cell", "beginning", "id"], shown);
}
