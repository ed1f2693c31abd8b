"""Many bytes of text at once in vector and 64-bit registers, for loops that would otherwise go byte by byte.

Source of the idea: simdjson (Langdale and Lemire 2019): class 64 bytes into a bit mask, then walk over the mask's edges.
LLVM turns the vector types into whatever the processor has.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types

intrinsic: Any = extending.intrinsic  # what it decorates is called without the typing context, which no type checker knows
HIGH = np.uint64(0x8080808080808080)
ONES = np.uint64(0x0101010101010101)
_BYTE, _LANES = ir.IntType(8), 64


def _pointer(context, builder, kind, array, index, target):
    made = context.make_array(kind)(context, builder, array)
    return builder.bitcast(builder.gep(made.data, [index]), target.as_pointer())


@intrinsic
def load_eight(typingctx, array, index):
    """Eight bytes of a uint8 array from any place, the first in the lowest bits. The caller knows that they are there."""

    def codegen(context, builder, signature, arguments):
        loaded = builder.load(_pointer(context, builder, signature.args[0], arguments[0], arguments[1], ir.IntType(64)))
        loaded.align = 1
        return loaded

    return types.uint64(array, types.int64), codegen


@intrinsic
def word_bits(typingctx, array, index, punctuated):
    """Which of 64 bytes belong to a word, one bit each: letters and digits, or all but white space; and every byte from 128 on."""

    def codegen(context, builder, signature, arguments):
        vector = ir.VectorType(_BYTE, _LANES)
        loaded = builder.load(_pointer(context, builder, signature.args[0], arguments[0], arguments[1], vector))
        loaded.align = 1

        def all_lanes(value):
            return ir.Constant(vector, [value] * _LANES)

        def within(lanes, first, count):
            return builder.icmp_unsigned("<", builder.sub(lanes, all_lanes(first)), all_lanes(count))

        high = builder.icmp_unsigned(">=", loaded, all_lanes(128))
        letter = within(builder.or_(loaded, all_lanes(32)), 97, 26)
        narrow = builder.bitcast(builder.or_(high, builder.or_(letter, within(loaded, 48, 10))), ir.IntType(64))
        control = builder.or_(within(loaded, 2, 7), within(loaded, 14, 14))  # all that Python's `split` leaves in words
        broad = builder.bitcast(builder.or_(high, builder.or_(control, within(loaded, 33, 95))), ir.IntType(64))
        return builder.select(builder.icmp_signed("!=", arguments[2], ir.Constant(ir.IntType(64), 0)), broad, narrow)

    return types.uint64(array, types.int64, types.int64), codegen


@intrinsic
def bits_within(typingctx, array, index, first, count):
    """Which of 64 bytes lie in `first .. first + count - 1`, one bit each. The caller knows that they are there."""

    def codegen(context, builder, signature, arguments):
        vector = ir.VectorType(_BYTE, _LANES)
        loaded = builder.load(_pointer(context, builder, signature.args[0], arguments[0], arguments[1], vector))
        loaded.align = 1
        one = ir.VectorType(_BYTE, 1)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)

        def spread(value):
            lane = builder.insert_element(ir.Constant(one, ir.Undefined), builder.trunc(value, _BYTE), ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(lane, lane, zeros)

        inside = builder.icmp_unsigned("<", builder.sub(loaded, spread(arguments[2])), spread(arguments[3]))
        return builder.bitcast(inside, ir.IntType(64))

    return types.uint64(array, types.int64, types.int64, types.int64), codegen


@intrinsic
def ones_in(typingctx, value):
    """Bits that are set."""

    def codegen(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), codegen


@intrinsic
def trailing_zeros(typingctx, value):
    """Zero bits below the lowest one; 64 when there is none."""

    def codegen(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@numba.njit(cache=True, nogil=True)
def letters(eight):
    """The high bit of each byte that is an ASCII letter; no byte may be 128 or more."""
    lower = eight | (np.uint64(0x20) * ONES)
    return (lower + np.uint64(0x80 - 97) * ONES) & ~(lower + np.uint64(0x7F - 122) * ONES) & HIGH


@numba.njit(cache=True, nogil=True)
def folded(eight):
    """The bytes with letters in lower case and every control character a space; no byte may be 128 or more."""
    control = (~(eight + np.uint64(0x80 - 33) * ONES) | (eight + ONES)) & HIGH
    every_bit = (control >> np.uint64(7)) * np.uint64(0xFF)
    return ((eight | (letters(eight) >> np.uint64(2))) & ~every_bit) | (np.uint64(0x20) * ONES & every_bit)


@numba.njit(cache=True, nogil=True)
def up_to_eight(content, at, count):
    """The `count` bytes from `at` on, 1 to 8, zeros above them."""
    if at + 8 <= len(content):
        return load_eight(content, at) & (~np.uint64(0) >> np.uint64(64 - 8 * count))
    eight = np.uint64(0)
    for index in range(count):
        eight |= np.uint64(content[at + index]) << np.uint64(8 * index)
    return eight
