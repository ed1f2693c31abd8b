/** One row of a figure's CSV. */
export interface Row {
  series: string;
  x: number;
  y: number;
  low: number;
  high: number;
}

/** The rows behind the head of a figure's CSV: series, x, y, low, high. Names may be quoted. */
export function parseFigure(text: string): Row[] {
  const rows: Row[] = [];
  for (const cells of records(text).slice(1)) {
    if (cells.length < 5) continue;
    const [x, y, low, high] = cells.slice(1).map((cell) => (cell === "" ? NaN : Number(cell))) as [number, number, number, number];
    rows.push({ series: cells[0] ?? "", x, y, low, high });
  }
  return rows;
}

/** CSV as RFC 4180 has it: commas and line ends may stand inside quotes. */
export function records(text: string): string[][] {
  const found: string[][] = [];
  let record: string[] = [];
  let at = 0;
  while (at < text.length) {
    let cell = "";
    if (text[at] === '"') {
      for (at += 1; at < text.length; at += 1) {
        if (text[at] !== '"') cell += text[at];
        else if (text[at + 1] === '"') cell += text[at++];
        else break;
      }
      at += 1;
    } else {
      const end = /[,\n]/g;
      end.lastIndex = at;
      const stop = end.exec(text)?.index ?? text.length;
      cell = text.slice(at, stop).replace(/\r$/, "");
      at = stop;
    }
    record.push(cell);
    if (text[at] === "\r") at += 1;
    if (text[at] !== ",") {
      found.push(record);
      record = [];
    } else if (at + 1 >= text.length) {
      record.push("");
      found.push(record);
      record = [];
    }
    at += 1;
  }
  return found;
}
