/** A number as the pages write it: 4 significant digits, thousands apart. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1e15 || (size < 1e-4 && size > 0)) return value.toExponential(3);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return size >= 1000 ? value.toLocaleString("en-US", { maximumFractionDigits: 1 }) : String(Number(value.toPrecision(4)));
}

/** Binary units: 1536 is 1.50 KiB. */
export function size(bytes: number): string {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(value) < 1024) return unit === "B" ? `${value.toFixed(0)} B` : `${value.toFixed(2)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(2)} PiB`;
}

/** Seconds as people say them. */
export function duration(seconds: number): string {
  if (seconds < 1) return `${(seconds * 1e3).toPrecision(3)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ${String(Math.floor((seconds % 3600) / 60)).padStart(2, "0")} min`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

/** Three digits and an exponent: 2.70e24. */
export function flops(value: number): string {
  return value.toExponential(2).replace("e+", "e");
}

/** Counts with k, M, B, T, of three digits; 999,999 is 1M. */
export function count(value: number): string {
  const rounded = Number(value.toPrecision(3));
  for (const [scale, letter] of [[1e15, "Q"], [1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]] as const) {
    if (Math.abs(rounded) >= scale) return `${Number((rounded / scale).toPrecision(3))}${letter}`;
  }
  return String(Number(value.toPrecision(3)));
}
