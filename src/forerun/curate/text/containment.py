"""Which documents are held by another of their component that stays: exact containment through an inverted index.

Members are visited in order of rank, many components in one call. One goes only if a kept, earlier member holds enough of its distinct grams. To miss no
holder, a member probes with its rarest grams, one more than it may lack: whoever holds enough has at least one of them (prefix
filter; Chaudhuri et al. 2006). A probe of a fixed number of rare grams would find only grams that are the member's own.

A gram that several kept members hold is their template: a licence, a menu, a form. Of a short file it may be the larger part, so the
holder must have enough of what is left without it, too.
"""

# M members of components in order of rank, G grams

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from forerun.curate.text.words import mix, ngram_hashes

LEAST_OWN = 0.1  # assumed: a smaller rest beside the template is a changed name or date


def distinct(values: NDArray[np.uint64], starts: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Sorted distinct values of each document, back to back."""
    return _distinct(values, starts)


def held_by(
    grams: NDArray[np.uint64],
    starts: NDArray[np.int64],
    component: NDArray[np.int64],
    removable: NDArray[np.bool_],
    threshold: float,
    template_members: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each member the kept member of its component that holds most of it, or -1 when it stays.

    Args:
        grams: sorted distinct grams of each member, members in order of rank.
        removable: members that may go; the others stay and may hold.
        threshold: least share of a member's grams its holder has, with and without its template.
        template_members: kept members that make a gram a template.
    Returns: holder `[M]`, shared grams with it `[M]`, members compared with `[M]`. Ties go to the earlier rank.
    """
    return _held_by(grams, starts, component, removable, threshold, template_members)


def rows_of(values: NDArray[np.uint64], starts: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The values of some documents, in the order asked for."""
    lengths = np.diff(starts)[rows]
    out_starts = np.concatenate([[0], np.cumsum(lengths)])
    index = np.arange(out_starts[-1]) + np.repeat(starts[rows] - out_starts[:-1], lengths)
    return values[index], out_starts


def least_of_each(values: NDArray[np.uint64], starts: NDArray[np.int64], rows: NDArray[np.int64], n: int) -> NDArray[np.uint64]:
    """The least hash of `n` words of some documents: equal for near-duplicates about as often as their Jaccard; 0 without words."""
    grams, gram_starts = ngram_hashes(*rows_of(values, starts, rows), n)
    filled = np.diff(gram_starts) > 0
    out = np.zeros(len(rows), np.uint64)
    if filled.any():
        out[filled] = np.minimum.reduceat(grams, gram_starts[:-1][filled])
    return out


@numba.njit(cache=True, nogil=True)
def shared(left, right):
    """Common values of two sorted distinct arrays; a much shorter one is looked up in the longer."""
    if len(left) > len(right):
        left, right = right, left
    count = 0
    if len(left) * 16 < len(right):
        low = 0
        for value in left:
            low += np.searchsorted(right[low:], value)
            if low == len(right):
                break
            count += right[low] == value
        return count
    one, other = 0, 0
    while one < len(left) and other < len(right):
        a, b = left[one], right[other]
        count += a == b
        one += a <= b
        other += b <= a
    return count


@numba.njit(cache=True, nogil=True)
def _distinct(values, starts):
    out, out_starts = np.empty(len(values), np.uint64), np.zeros(len(starts), np.int64)
    count = 0
    for document in range(len(starts) - 1):
        ordered = np.sort(values[starts[document] : starts[document + 1]])
        for index in range(len(ordered)):
            if index == 0 or ordered[index] != ordered[index - 1]:
                out[count] = ordered[index]
                count += 1
        out_starts[document + 1] = count
    return out[:count].copy(), out_starts


@numba.njit(cache=True, nogil=True)
def _numbered(grams, starts, component):
    """Each gram of a component as a small number, and in how many of its members it occurs."""
    slots = 64
    while slots < 2 * len(grams):
        slots *= 2
    keys, values = np.zeros(slots, np.uint64), np.empty(slots, np.int64)
    numbers, members = np.empty(len(grams), np.int64), np.zeros(len(grams), np.int64)
    known = 0
    for member in range(len(starts) - 1):
        own = mix(np.uint64(component[member]) + np.uint64(1))
        for index in range(starts[member], starts[member + 1]):
            key = (grams[index] ^ own) | np.uint64(1)  # 0 marks a free slot
            slot = (key >> np.uint64(20)) & np.uint64(slots - 1)
            while keys[slot] != 0 and keys[slot] != key:
                slot = (slot + np.uint64(1)) & np.uint64(slots - 1)
            if keys[slot] == 0:
                keys[slot], values[slot] = key, known
                known += 1
            numbers[index] = values[slot]
            members[numbers[index]] += 1
    return numbers, members[:known]


@numba.njit(cache=True, nogil=True)
def _held_by(grams, starts, component, removable, threshold, template_members):
    num = len(starts) - 1
    numbers, members = _numbered(grams, starts, component)
    newest = np.full(len(members), -1, np.int64)  # per gram, its newest posting
    keepers = np.zeros(len(members), np.int64)  # per gram, how many kept members hold it
    posted, older = np.empty(len(grams), np.int64), np.empty(len(grams), np.int64)
    postings = 0
    holder, common, comparisons = np.full(num, -1, np.int64), np.zeros(num, np.int64), np.zeros(num, np.int64)
    stamp = np.full(num, -1, np.int64)
    for member in range(num):
        first, last = starts[member], starts[member + 1]
        size = last - first
        if removable[member] and size > 0:
            need = _enough(threshold, size)
            order = np.argsort(members[numbers[first:last]])[: size - need + 1]
            own = grams[first:last][keepers[numbers[first:last]] < template_members]
            best, most = -1, 0
            for place in order:
                posting = newest[numbers[first + place]]
                while posting >= 0:
                    other = posted[posting]
                    posting = older[posting]
                    if stamp[other] == member or component[other] != component[member]:
                        continue
                    stamp[other] = member
                    comparisons[member] += 1
                    theirs = grams[starts[other] : starts[other + 1]]
                    both = shared(grams[first:last], theirs)
                    if both < need or both < most or (both == most and other > best):
                        continue
                    if LEAST_OWN * size <= len(own) < size and shared(own, theirs) < _enough(threshold, len(own)):
                        continue
                    best, most = other, both
            if best >= 0:
                holder[member], common[member] = best, most
                continue
        for index in range(first, last):
            posted[postings], older[postings] = member, newest[numbers[index]]
            newest[numbers[index]] = postings
            keepers[numbers[index]] += removable[member]  # sources that lose nothing may keep any number of copies
            postings += 1
    return holder, common, comparisons


@numba.njit(cache=True, nogil=True)
def _enough(threshold, size):
    """The least number that is such a share of a size."""
    return max(1, int(np.ceil(threshold * size - 1e-9)))


@numba.njit(cache=True, nogil=True)
def not_in(values, starts, member, holder):
    """How many distinct values of each member its holder lacks. `values` are sorted and distinct within each document."""
    out = np.empty(len(member), np.int64)
    for index in range(len(member)):
        own = values[starts[member[index]] : starts[member[index] + 1]]
        out[index] = len(own) - shared(own, values[starts[holder[index]] : starts[holder[index] + 1]])
    return out
