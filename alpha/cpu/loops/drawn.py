"""Bools that a loop draws at random, where others are loaded: dropout's mask."""

from __future__ import annotations

from alpha.cpu.loops import philox
from alpha.cpu.loops.lanes import Lanes, Value, spread
from alpha.random import WORDS


class Draw:
    """Bools that are drawn in a loop. Element n of the draw has word n % 4 of the first counter + n // 4."""

    def __init__(self, lanes: Lanes, turns: int, seed: Value, first: Value, threshold: Value) -> None:
        """``turns``: vectors that a turn of the loop computes."""
        self._masks, self._turns, self._text = lanes.masks, turns, lanes.text
        self._lanes = Lanes(64, lanes.count, False, lanes.text)
        self._first = self._spread(first)
        self._keys = philox.keys(self._lanes, seed)
        self._threshold = self._spread(threshold)
        self._places = "<" + ", ".join(f"i64 {lane}" for lane in range(lanes.count)) + ">"

    def in_turn(self, number: Value, turn: int) -> Value:
        """Those of one of the vectors of a turn, whose elements stand one after the other from a number on.

        The number is a multiple of 4. In a turn of four vectors all words are drawn at once, four per lane of counters.
        """
        lanes, write, count = self._lanes, self._text.write, self._lanes.count
        if self._turns != WORDS:
            return self.of_each(number, str(turn * count), "1")
        counters = self._spread(write(f"lshr i64 {number}, 2"))
        counters = lanes.integers("add", lanes.integers("add", counters, self._places), self._first)
        found = philox.words(lanes, counters, self._keys)
        short = [write(f"trunc {lanes.ints} {word} to <{count} x i32>") for word in found]
        every = philox.side_by_side(self._text, short, "i32", count)
        places = ", ".join(f"i32 {turn * count + lane}" for lane in range(count))
        whole, part = f"<{WORDS * count} x i32>", f"<{count} x i32>"
        word = write(f"shufflevector {whole} {every}, {whole} undef, {part} <{places}>")
        return self._reach(write(f"zext {part} {word} to {lanes.ints}"))

    def of_each(self, base: Value, index: Value, step: Value) -> Value:
        """Those of elements any steps apart, each by a counter of its own."""
        lanes, run = self._lanes, self._lanes.integers
        places = run("mul", run("add", self._spread(index), self._places), self._spread(step))
        numbers = run("add", self._spread(base), places)
        counters = run("add", run("lshr", numbers, lanes.integer(2)), self._first)
        word, *others = philox.words(lanes, counters, self._keys)
        rest = run("and", numbers, lanes.integer(3))
        for k, other in enumerate(others, 1):
            is_other = self._text.write(f"icmp eq {lanes.ints} {rest}, {lanes.integer(k)}")
            word = self._text.write(f"select {self._masks} {is_other}, {lanes.ints} {other}, {lanes.ints} {word}")
        return self._reach(word)

    def _reach(self, words: Value) -> Value:
        kind = self._lanes.ints
        bits = self._lanes.integers("lshr", words, self._lanes.integer(8))
        return self._text.write(f"icmp uge {kind} {bits}, {self._threshold}")

    def _spread(self, value: Value) -> Value:
        return spread(self._text, value, "i64", self._lanes.count)
