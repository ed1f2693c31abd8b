"""From signatures to groups of candidates: equal bands link documents, links make components.

Links of a bucket form a star on its smallest document, so a bucket of a million costs a million links. Components come from
union-find, which always converges, in any order of links; their names are their smallest members.
"""

# N documents, B bands

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from forerun.curate.text.minhash import MinHashConfig
from forerun.curate.text.words import mix


def band_keys(signature: NDArray[np.uint32], config: MinHashConfig) -> NDArray[np.uint64]:
    """`[B, N]`: one key per band and document; equal keys of one band are a bucket. What an engine groups by."""
    return _keys(signature, config.bands, config.rows)


def components(keys: NDArray[np.uint64], has_text: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Each document's component, named by its smallest member; a document without shingles is alone."""
    parents = np.arange(keys.shape[1])
    members = np.flatnonzero(has_text)
    for band in keys:
        order = members[np.argsort(band[members])]
        _join(parents, *_star(order, band))
    return _roots(parents)


def components_of(first: NDArray[np.int64], second: NDArray[np.int64], num_documents: int) -> NDArray[np.int64]:
    """Components of any list of links, such as those an engine found bucket by bucket."""
    parents = np.arange(num_documents)
    _join(parents, first, second)
    return _roots(parents)


def links(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The star links of one band over documents numbered from 0: every member of a bucket to its smallest."""
    return _star(np.argsort(keys), keys)


@numba.njit(cache=True, nogil=True)
def _keys(signature, bands, rows):
    out = np.empty((bands, len(signature)), np.uint64)
    for document in range(len(signature)):
        for band in range(bands):
            value = np.uint64(band + 1) * np.uint64(0x9E3779B97F4A7C15)
            for row in range(rows):
                value = mix(value ^ np.uint64(signature[document, band * rows + row]))
            out[band, document] = value
    return out


@numba.njit(cache=True, nogil=True)
def _star(order, keys):
    """Links of runs of equal keys. `order` sorts the keys; how it orders equal ones does not matter."""
    first, second = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    count, begin = 0, 0
    while begin < len(order):
        smallest, end = order[begin], begin + 1
        while end < len(order) and keys[order[end]] == keys[order[begin]]:
            smallest = min(smallest, order[end])
            end += 1
        for place in range(begin, end):
            if order[place] != smallest:
                first[count], second[count] = smallest, order[place]
                count += 1
        begin = end
    return first[:count], second[:count]


@numba.njit(cache=True, nogil=True)
def _find(parents, member):
    while parents[member] != member:
        parents[member] = parents[parents[member]]
        member = parents[member]
    return member


@numba.njit(cache=True, nogil=True)
def _join(parents, first, second):
    for index in range(len(first)):
        one, other = _find(parents, first[index]), _find(parents, second[index])
        if one != other:
            parents[max(one, other)] = min(one, other)


@numba.njit(cache=True, nogil=True)
def _roots(parents):
    out = np.empty(len(parents), np.int64)
    for member in range(len(parents)):
        out[member] = _find(parents, member)
    return out
