// Rows of the run this page shows, as they are written. Figures listen; the stream tells.

/** One row of a journal: step, time and metrics. Values JSON cannot say are words. */
export type JournalRow = Record<string, number | string>;

type Listener = (run: string, rows: JournalRow[]) => void;
const listeners: Listener[] = [];

export function onRows(listener: Listener): void {
  listeners.push(listener);
}

export function tellRows(run: string, rows: JournalRow[]): void {
  for (const listener of listeners) listener(run, rows);
}
