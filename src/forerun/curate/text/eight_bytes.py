"""Eight bytes of text at once in one 64-bit register: load them, class each byte, find the first of a class.

Masks have the high bit of a byte set where it is of the class. All classes assume that no byte is 128 or more.
"""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

ONES = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)


@intrinsic
def load(typingctx, array, index):
    """Eight bytes of a uint8 array from any place, the first in the lowest bits. The caller knows that they are there."""

    def codegen(context, builder, signature, arguments):
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(made.data, [arguments[1]]), ir.IntType(64).as_pointer())
        loaded = builder.load(place)
        loaded.align = 1
        return loaded

    return types.uint64(array, types.int64), codegen


@intrinsic
def trailing_zeros(typingctx, value):
    """Zero bits below the lowest one; 64 when there is none."""

    def codegen(context, builder, signature, arguments):
        count = builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))
        return count

    return types.int64(types.uint64), codegen


@numba.njit(cache=True, nogil=True)
def between(eight, first, last):
    """Mask of bytes in `first..last`."""
    return (eight + np.uint64(0x80 - first) * ONES) & ~(eight + np.uint64(0x7F - last) * ONES) & HIGH


@numba.njit(cache=True, nogil=True)
def letters(eight):
    """Mask of ASCII letters."""
    return between(eight | (np.uint64(0x20) * ONES), 97, 122)


@numba.njit(cache=True, nogil=True)
def first_clear(mask):
    """Place of the first byte not in a mask, 8 when all are."""
    return trailing_zeros(~mask & HIGH) >> 3


@numba.njit(cache=True, nogil=True)
def first_of(eight, count):
    """The first bytes, the others zero; `count` in 0..8."""
    return eight & (~np.uint64(0) >> np.uint64(64 - 8 * count)) if count else np.uint64(0)
