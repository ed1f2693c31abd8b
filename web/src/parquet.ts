import { parquetMetadataAsync, parquetRead, parquetReadObjects } from "hyparquet";
import type { AsyncBuffer, Compressors, FileMetaData } from "hyparquet";
import { decompress } from "fzstd";

/** A Parquet file somewhere, its end read. */
export interface Opened {
  file: AsyncBuffer;
  metadata: FileMetaData;
}

const COMPRESSORS: Compressors = { ZSTD: (input, size) => decompress(input, new Uint8Array(size)) };
const TAIL = 1 << 16;
const files = new Map<string, Promise<Opened>>();

/** A file read by ranges where the server gives them, and whole where it does not; read once a page. */
export function opened(url: string): Promise<Opened> {
  let known = files.get(url);
  if (!known) {
    known = remote(url).then(async (file) => ({ file, metadata: await parquetMetadataAsync(file) }));
    known.catch(() => files.delete(url));
    files.set(url, known);
  }
  return known;
}

/** Rows from `start` up to `end` as objects; binary columns stay bytes. */
export async function rowsOf<T>({ file, metadata }: Opened, columns: (keyof T & string)[], start = 0, end = Number(metadata.num_rows)): Promise<T[]> {
  const known = new Set(metadata.schema.map((element) => element.name));
  const wanted = columns.filter((name) => known.has(name));
  return (await parquetReadObjects({ file, metadata, columns: wanted, rowStart: start, rowEnd: end, compressors: COMPRESSORS, utf8: false })) as T[];
}

/** Whole columns as numbers, `length` long. */
export async function numbersOf({ file, metadata }: Opened, columns: string[], length: number): Promise<Map<string, Float64Array>> {
  const found = new Map(columns.map((name) => [name, new Float64Array(length)]));
  await parquetRead({
    file,
    metadata,
    columns,
    compressors: COMPRESSORS,
    onChunk: ({ columnName, columnData, rowStart }) => {
      const target = found.get(columnName);
      if (!target) return;
      if (ArrayBuffer.isView(columnData) && !(columnData instanceof BigInt64Array) && !(columnData instanceof BigUint64Array)) {
        target.set(columnData as Float64Array, rowStart);
      } else {
        for (let i = 0; i < columnData.length; i += 1) target[rowStart + i] = Number(columnData[i]);
      }
    },
  });
  return found;
}

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
