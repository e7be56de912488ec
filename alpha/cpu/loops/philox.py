"""Philox4x32-10 in vectors, by the definitions of ``alpha.random`` to the bit.

A lane of a vector is a counter, which has four words. Words are computed with in lanes of 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpha import random
from alpha.cpu.loops.lanes import Lanes, Text, Value, spread

Keys = Sequence[tuple[Value, Value]]
"""The two words of each round's key, in every lane."""


def keys(lanes: Lanes, seed: Value) -> Keys:
    """Those of a seed; above a word's 32 bits anything may stand."""
    write = lanes.write
    found, words = [], [seed, write(f"lshr i64 {seed}, 32")]
    for turn in range(random.ROUNDS):
        if turn:
            words = [write(f"add i64 {w}, {step}") for w, step in zip(words, random.KEY_STEPS, strict=True)]
        first, second = (spread(lanes.text, word, "i64", lanes.count) for word in words)
        found.append((first, second))
    return found


def words(lanes: Lanes, counters: Value, keys: Keys) -> list[Value]:
    """The four words of each counter. Above a word's 32 bits anything may stand until the end."""
    run, shift = lanes.integers, lanes.integer(32)
    low = lanes.integer(0xFFFFFFFF)
    zero = lanes.integer(0)
    words = [counters, run("lshr", counters, shift), zero, zero]
    for key in keys:
        # Masked here, so that LLVM sees a product of 32-bit words, for which there is one instruction.
        products = [
            run("mul", run("and", word, low), lanes.integer(multiplier))
            for word, multiplier in zip(words[::2], random.MULTIPLIERS, strict=True)
        ]
        high = [run("lshr", product, shift) for product in products]
        words = [
            run("xor", run("xor", high[1], words[1]), key[0]),
            products[1],
            run("xor", run("xor", high[0], words[3]), key[1]),
            products[0],
        ]
    return [run("and", word, low) for word in words]


def side_by_side(text: Text, values: Sequence[Value], scalar: str, count: int) -> Value:
    """The numbers of each counter side by side: of some vectors the first lanes, then the second ones."""
    many = len(values)
    order = [lane % many * count + lane // many for lane in range(many * count)]
    width, whole = count, list(values)
    while len(whole) > 1:
        last = len(whole) == 2
        wide = f"<{width} x {scalar}>"
        places = ", ".join(f"i32 {place}" for place in (order if last else range(2 * width)))
        lanes = f"<{2 * width} x i32>"
        whole = [
            text.write(f"shufflevector {wide} {x}, {wide} {y}, {lanes} <{places}>")
            for x, y in zip(whole[::2], whole[1::2], strict=True)
        ]
        width *= 2
    return whole[0]
