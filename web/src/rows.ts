import { parquetMetadataAsync, parquetRead } from "hyparquet";
import type { AsyncBuffer, FileMetaData } from "hyparquet";

interface Index {
  run: string;
  num_steps: number;
  place: string;
  files: { file: string; rows: number; metrics: string[] }[];
}

const indexes = new Map<string, Promise<Index>>();
const files = new Map<string, Promise<{ file: AsyncBuffer; metadata: FileMetaData }>>();

/** All recorded points of one metric of a run: steps and values. `null` when the run never logged it. */
export async function points(rows: string, run: string, metric: string): Promise<[Float64Array, Float64Array] | null> {
  const folder = `${rows}${encodeURIComponent(run)}/`;
  const index = await indexOf(folder);
  const entry = index.files.find((file) => file.metrics.includes(metric));
  if (!entry) return null;
  const { file, metadata } = await opened(folder + entry.file);
  return decode(file, metadata, entry.rows, metric);
}

/** Two columns of a Parquet file as numbers. */
export async function decode(
  file: AsyncBuffer,
  metadata: FileMetaData,
  length: number,
  metric: string,
): Promise<[Float64Array, Float64Array]> {
  const columns = { step: new Float64Array(length), value: new Float64Array(length) };
  await parquetRead({
    file,
    metadata,
    columns: ["step", metric],
    onChunk: ({ columnName, columnData, rowStart }) => {
      const target = columnName === "step" ? columns.step : columns.value;
      if (ArrayBuffer.isView(columnData) && !(columnData instanceof BigInt64Array) && !(columnData instanceof BigUint64Array)) {
        target.set(columnData as Float64Array, rowStart);
      } else {
        for (let i = 0; i < columnData.length; i += 1) target[rowStart + i] = Number(columnData[i]);
      }
    },
  });
  return [columns.step, columns.value];
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

function opened(url: string): Promise<{ file: AsyncBuffer; metadata: FileMetaData }> {
  let known = files.get(url);
  if (!known) {
    known = remote(url).then(async (file) => ({ file, metadata: await parquetMetadataAsync(file) }));
    files.set(url, known);
  }
  return known;
}

const TAIL = 1 << 16;

/** A file read by ranges where the server gives them, and whole where it does not. */
async function remote(url: string): Promise<AsyncBuffer> {
  const answer = await fetch(url, { headers: { Range: `bytes=-${TAIL}` } });
  if (!answer.ok) throw new Error(`${url}: HTTP ${answer.status}`);
  const content = await answer.arrayBuffer();
  performance.mark(`arrived:${url}`);
  const total = Number(answer.headers.get("Content-Range")?.split("/")[1]);
  if (answer.status !== 206 || !Number.isFinite(total)) {
    return { byteLength: content.byteLength, slice: (start, end) => content.slice(start, end) };
  }
  const begin = total - content.byteLength;
  return {
    byteLength: total,
    slice: async (start, end = total) => {
      if (start >= begin) return content.slice(start - begin, end - begin);
      const part = await fetch(url, { headers: { Range: `bytes=${start}-${end - 1}` } });
      const bytes = await part.arrayBuffer();
      performance.mark(`arrived:${url}`);
      return part.status === 206 ? bytes : bytes.slice(start, end);
    },
  };
}
