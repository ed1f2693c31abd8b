// Two texts, with the words of each that the other lacks at that place. Words that occur once in both are anchors; the longest run of
// anchors in order in both splits the texts, and each stretch between two anchors is compared in full. Source: Bram Cohen's patience diff.

const PIECE = /[\p{L}\p{N}_]+|[^\p{L}\p{N}_]+/gu;
const WORD = /^[\p{L}\p{N}_]/u;
const MOST_COMPARED = 250_000; // words of one stretch times those of the other: 20 ms; beyond it, words the other stretch lacks are marked

/** A stretch of text, and whether the other text lacks it. */
export interface Part {
  text: string;
  own: boolean;
}

/** Both texts as parts. White space and punctuation alone are never marked; words next to each other share one mark. */
export function differences(first: string, second: string): [Part[], Part[]] {
  const pieces = [[...(first.match(PIECE) ?? [])], [...(second.match(PIECE) ?? [])]];
  const places = pieces.map((list) => list.flatMap((piece, index) => (WORD.test(piece) ? [index] : []))) as [number[], number[]];
  const words = places.map((list, side) => list.map((index) => (pieces[side]?.[index] ?? "").toLowerCase())) as [string[], string[]];
  const kept = common(words[0], words[1]);
  return [0, 1].map((side) => written(pieces[side] ?? [], new Map((places[side] ?? []).map((index, word) => [index, kept[side]?.[word] ?? false])))) as [Part[], Part[]];
}

/** Which words of each have their counterpart in the other, in order. */
function common(a: string[], b: string[]): [boolean[], boolean[]] {
  const kept: [boolean[], boolean[]] = [a.map(() => false), b.map(() => false)];
  let [beginA, beginB] = [0, 0];
  for (const [atA, atB] of [...anchors(a, b), [a.length, b.length] as const]) {
    stretch(a, b, [beginA, atA], [beginB, atB], kept);
    if (atA < a.length) kept[0][atA] = kept[1][atB] = true;
    [beginA, beginB] = [atA + 1, atB + 1];
  }
  return kept;
}

/** Marks the longest common subsequence of two stretches as kept; of two very long ones, the words that both have. */
function stretch(a: string[], b: string[], [beginA, endA]: readonly [number, number], [beginB, endB]: readonly [number, number], kept: [boolean[], boolean[]]): void {
  const [height, width] = [endA - beginA, endB - beginB];
  if (height <= 0 || width <= 0) return;
  if (height * width > MOST_COMPARED) {
    const [mine, theirs] = [new Set(a.slice(beginA, endA)), new Set(b.slice(beginB, endB))];
    for (let i = beginA; i < endA; i += 1) kept[0][i] = theirs.has(a[i] ?? "");
    for (let j = beginB; j < endB; j += 1) kept[1][j] = mine.has(b[j] ?? "");
    return;
  }
  const longest = new Uint16Array((height + 1) * (width + 1));
  const at = (i: number, j: number): number => longest[i * (width + 1) + j] ?? 0;
  for (let i = height - 1; i >= 0; i -= 1) {
    for (let j = width - 1; j >= 0; j -= 1) {
      longest[i * (width + 1) + j] = a[beginA + i] === b[beginB + j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  for (let i = 0, j = 0; i < height && j < width; ) {
    if (a[beginA + i] === b[beginB + j]) {
      kept[0][beginA + i++] = true;
      kept[1][beginB + j++] = true;
    } else if (at(i + 1, j) >= at(i, j + 1)) i += 1;
    else j += 1;
  }
}

/** Places of words that occur once in both texts, as many as are in the same order in both. */
function anchors(a: string[], b: string[]): [number, number][] {
  const once = (words: string[]): Map<string, number> => {
    const places = new Map<string, number>();
    words.forEach((word, index) => places.set(word, places.has(word) ? -1 : index));
    return places;
  };
  const [inA, inB] = [once(a), once(b)];
  const pairs = a.flatMap((word, index): [number, number][] => (inA.get(word) === index && (inB.get(word) ?? -1) >= 0 ? [[index, inB.get(word) ?? 0]] : []));
  const ends: number[] = []; // of the runs of each length found so far, the pair that ends the one with the least end
  const before = pairs.map(() => -1);
  pairs.forEach(([, place], number) => {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((pairs[ends[middle] ?? 0]?.[1] ?? 0) < place) low = middle + 1;
      else high = middle;
    }
    before[number] = low ? (ends[low - 1] ?? -1) : -1;
    ends[low] = number;
  });
  const chain: [number, number][] = [];
  for (let number = ends.length ? (ends[ends.length - 1] ?? -1) : -1; number >= 0; number = before[number] ?? -1) chain.unshift(pairs[number] as [number, number]);
  return chain;
}

function written(pieces: string[], kept: Map<number, boolean>): Part[] {
  const parts: Part[] = [];
  pieces.forEach((piece, index) => {
    const between = !kept.has(index) && kept.get(index - 1) === false && kept.get(index + 1) === false;
    const own = kept.get(index) === false || between;
    const last = parts[parts.length - 1];
    if (last?.own === own) last.text += piece;
    else parts.push({ text: piece, own });
  });
  return parts;
}
