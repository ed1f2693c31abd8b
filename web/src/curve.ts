/** A growing series of points, x ascending, that is drawn from few of them: the lowest and highest of each pixel. */
export class Curve {
  private xs: Float64Array;
  private ys: Float64Array;
  length: number;

  constructor(xs: Float64Array = new Float64Array(0), ys: Float64Array = new Float64Array(0)) {
    this.xs = xs;
    this.ys = ys;
    this.length = Math.min(xs.length, ys.length);
  }

  x(index: number): number {
    return this.xs[index] ?? NaN;
  }

  y(index: number): number {
    return this.ys[index] ?? NaN;
  }

  get last(): number {
    return this.length ? this.x(this.length - 1) : -Infinity;
  }

  /** Adds a point behind the last; one that is not behind it is known already. */
  push(x: number, y: number): boolean {
    if (!(x > this.last)) return false;
    if (this.length === this.xs.length) {
      const room = Math.max(1024, 2 * this.length);
      const [xs, ys] = [new Float64Array(room), new Float64Array(room)];
      xs.set(this.xs);
      ys.set(this.ys);
      [this.xs, this.ys] = [xs, ys];
    }
    this.xs[this.length] = x;
    this.ys[this.length] = y;
    this.length += 1;
    return true;
  }

  /** Index of the first point at or behind x. */
  from(x: number): number {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.xs[middle] as number) < x) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Index of the point nearest to x, -1 when there is none. */
  nearest(x: number): number {
    const after = this.from(x);
    if (after === 0) return this.length ? 0 : -1;
    if (after === this.length) return after - 1;
    return x - this.x(after - 1) <= this.x(after) - x ? after - 1 : after;
  }

  /** Points to draw between two x's, at most four for each of `columns`, one more on each side; values that are not finite are left out. */
  visible(low: number, high: number, columns: number): [number[], number[]] {
    const begin = Math.max(0, this.from(low) - 1);
    let end = this.from(high);
    while (end < this.length && this.x(end) <= high) end += 1;
    end = Math.min(this.length, end + 1);
    const [xs, ys] = [this.xs, this.ys];
    const outX: number[] = [];
    const outY: number[] = [];
    if (end - begin <= 4 * columns) {
      for (let i = begin; i < end; i += 1) {
        const y = ys[i] as number;
        if (Number.isFinite(y)) {
          outX.push(xs[i] as number);
          outY.push(y);
        }
      }
      return [outX, outY];
    }
    const first = xs[begin] as number;
    const width = ((xs[end - 1] as number) - first) / columns || 1;
    let i = begin;
    for (let column = 0; column < columns && i < end; column += 1) {
      const edge = column === columns - 1 ? Infinity : first + (column + 1) * width;
      let [least, most, start, stop] = [-1, -1, -1, -1];
      let [low_, high_] = [Infinity, -Infinity];
      for (; i < end && (xs[i] as number) < edge; i += 1) {
        const y = ys[i] as number;
        if (y - y !== 0) continue;
        if (start < 0) start = i;
        stop = i;
        if (y < low_) [low_, least] = [y, i];
        if (y > high_) [high_, most] = [y, i];
      }
      if (start < 0) continue;
      const chosen = [start, Math.min(least, most), Math.max(least, most), stop];
      chosen.forEach((index, place) => {
        if (place > 0 && index === chosen[place - 1]) return;
        outX.push(xs[index] as number);
        outY.push(ys[index] as number);
      });
    }
    return [outX, outY];
  }
}
