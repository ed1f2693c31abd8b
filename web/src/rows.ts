import { numbersOf, opened } from "./parquet";

interface Index {
  run: string;
  num_steps: number;
  place: string;
  files: { file: string; rows: number; metrics: string[] }[];
}

const indexes = new Map<string, Promise<Index>>();

/** All recorded points of one metric of a run: steps and values. `null` when the run never logged it. */
export async function points(rows: string, run: string, metric: string): Promise<[Float64Array, Float64Array] | null> {
  const folder = `${rows}${encodeURIComponent(run)}/`;
  const index = await indexOf(folder);
  const entry = index.files.find((file) => file.metrics.includes(metric));
  if (!entry) return null;
  const columns = await numbersOf(await opened(folder + entry.file), ["step", metric], entry.rows);
  return [columns.get("step") as Float64Array, columns.get(metric) as Float64Array];
}

function indexOf(folder: string): Promise<Index> {
  let known = indexes.get(folder);
  if (!known) {
    known = fetch(`${folder}index.json`).then((answer) => {
      if (!answer.ok) throw new Error(`${folder}index.json: HTTP ${answer.status}`);
      return answer.json() as Promise<Index>;
    });
    indexes.set(folder, known);
  }
  return known;
}
