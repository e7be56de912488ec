"""Runs: loops over numbers that lie side by side in memory, and sums of what is made of them.

A float32 sum adds up to 32 numbers as a tree, and goes on in float64: with u half of float32's epsilon its error is at
most ``5 u sum(|x|)`` and the result's own rounding, however many numbers there are, where a pairwise sum's grows with
their logarithm. A float64 sum carries the rounding errors of its trees' sums along (Neumaier, 1974): at most
``9 u sum(|x|)``. Less than 32 numbers make fewer levels, so that no sum is worse than a pairwise one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from alpha.cpu.isa import FUSED, ISA
from alpha.cpu.loops.code import Code
from alpha.cpu.loops.lanes import Lanes, Value, scalar, spread
from alpha.cpu.loops.machine import pointer_to

DEEP = 16
"""Vectors that are added before they are widened where each takes few instructions."""

SHALLOW = 4
"""Those where each takes many; and the chains in which vectors of a line are added, in the order of their places: what
is read otherwise arrives later from memory."""

LONG = (DEEP, SHALLOW, 1)
"""Vectors of a line that are added at a time where each takes few instructions."""

State = list[Value]
"""A sum in float64: of float32 numbers one value; of float64 numbers another one, what rounding took."""


class Run(Lanes):
    """The vectors of a run of float32 or float64 numbers."""

    def __init__(self, bits: int, code: Code) -> None:
        super().__init__(bits, ISA.lanes(bits // 8), FUSED, code)
        self.code, self.item = code, bits // 8
        self.wide_count = ISA.lanes(8)
        self.wide = f"<{self.wide_count} x double>"
        self.halves = self.count // self.wide_count

    # -- memory --------------------------------------------------------------------------------------------------

    def read(self, address: Value, left: Value | None = None, fill: float = 0.0) -> Value:
        """A vector, or the first of its lanes; the others are ``fill``."""
        if left is None:
            return self.code.load(self.floats, address, self.item)
        pointer, name = self._masked("load")
        self.text.declarations.add(f"declare {self.floats} @{name}({pointer}, i32, {self.masks}, {self.floats})")
        at = self.code.pointer(self.floats, address)
        given = f"{pointer} {at}, i32 {self.item}, {self.masks} {self.below(left)}, {self.floats} {self.number(fill)}"
        return self.code.do(f"call {self.floats} @{name}({given})")

    def put(self, value: Value, address: Value, left: Value | None = None) -> None:
        """The reverse of ``read``."""
        if left is None:
            self.code.store(self.floats, value, address, self.item)
            return
        pointer, name = self._masked("store")
        self.text.declarations.add(f"declare void @{name}({self.floats}, {pointer}, i32, {self.masks})")
        at = self.code.pointer(self.floats, address)
        given = f"{self.floats} {value}, {pointer} {at}, i32 {self.item}, {self.masks} {self.below(left)}"
        self.code.act(f"call void @{name}({given})")

    def _masked(self, what: str) -> tuple[str, str]:
        pointer, suffix = pointer_to(self.floats), self.suffix
        return pointer, f"llvm.masked.{what}.{suffix}.p0{'' if pointer == 'ptr' else suffix}"

    def below(self, left: Value) -> Value:
        """The lanes below a count, which is at most the lanes' number."""
        kind = f"<{self.count} x i32>"
        first = self.write(f"insertelement {kind} undef, i32 {self.write(f'trunc i64 {left} to i32')}, i32 0")
        every = self.write(f"shufflevector {kind} {first}, {kind} undef, {kind} zeroinitializer")
        places = ", ".join(f"i32 {k}" for k in range(self.count))
        return self.write(f"icmp slt {kind} <{places}>, {every}")

    def kept(self, value: Value, left: Value | None, fill: float = 0.0) -> Value:
        """A vector whose lanes from a count on are ``fill``."""
        return value if left is None else self.select(self.below(left), value, self.number(fill))

    # -- lanes ---------------------------------------------------------------------------------------------------

    def spread(self, value: Value) -> Value:
        """A number in every lane."""
        return spread(self.code, value, self.scalar, self.count)

    def widened(self, value: Value) -> list[Value]:
        """A vector's numbers in vectors of float64."""
        if self.bits == 64:
            return [value]
        found = []
        for half in range(self.halves):
            places = ", ".join(f"i32 {half * self.wide_count + lane}" for lane in range(self.wide_count))
            order = f"<{self.wide_count} x i32> <{places}>"
            part = self.write(f"shufflevector {self.floats} {value}, {self.floats} undef, {order}")
            found.append(self.write(f"fpext <{self.wide_count} x float> {part} to {self.wide}"))
        return found

    def narrowed(self, value: Value) -> Value:
        """A float64 number in the run's dtype."""
        return value if self.bits == 64 else self.write(f"fptrunc double {value} to float")

    def double(self, value: Value) -> Value:
        """The reverse of ``narrowed``."""
        return value if self.bits == 64 else self.write(f"fpext float {value} to double")

    def across(self, kind: str, value: Value, count: int, merge: Callable[[str, Value, Value], Value]) -> Value:
        """The lanes of a vector as one number; halves are merged until one is left, ``merge`` being given a type."""
        scalar = kind
        while count > 1:
            half, whole = count // 2, f"<{count} x {scalar}>"
            parts = []
            for first in (0, half):
                places = ", ".join(f"i32 {first + lane}" for lane in range(half))
                order = f"<{half} x i32> <{places}>"
                parts.append(self.write(f"shufflevector {whole} {value}, {whole} undef, {order}"))
            value, count = merge(f"<{half} x {scalar}>", *parts), half
        return self.write(f"extractelement <1 x {scalar}> {value}, i32 0")

    # -- loops ---------------------------------------------------------------------------------------------------

    def fold(
        self,
        count: Value,
        together: Sequence[int],
        body: Callable[[list[Value], Value | None, list[Value]], Sequence[Value]],
        carried: Sequence[tuple[str, Value]] = (),
    ) -> list[Value]:
        """``body(offsets, left, values)`` for so many vectors at a time, then for fewer, then for what is left.

        ``offsets`` count bytes from the run's start; ``left`` is None for whole vectors. Returns the last values.
        """
        code, at = self.code, "0"
        kinds, values = [kind for kind, _ in carried], [value for _, value in carried]
        for vectors in together:
            step = vectors * self.count

            def turn(i: Value, now: list[Value], vectors: int = vectors) -> Sequence[Value]:
                first = code.mul(i, self.item)
                offsets = [code.add(first, k * self.count * self.item) if k else first for k in range(vectors)]
                return body(offsets, None, now)

            end = code.sub(count, step - 1)
            at, *values = code.loop(at, end, turn, list(zip(kinds, values, strict=True)), step)
        left = code.sub(count, at)
        now = list(values)
        return code.choose(code.less(0, left), lambda: body([code.mul(at, self.item)], left, now), lambda: now, kinds)

    def map(self, count: Value, together: int, body: Callable[[Value, Value | None], None]) -> None:
        """``body(offset, left)`` for each vector."""

        def visit(offsets: list[Value], left: Value | None, _: list[Value]) -> Sequence[Value]:
            for offset in offsets:
                body(offset, left)
            return ()

        self.fold(count, (together, 1) if together > 1 else (1,), visit)

    # -- sums ----------------------------------------------------------------------------------------------------

    def tree(self, values: Sequence[Value], merge: Callable[[Value, Value], Value] | None = None) -> Value:
        """Neighbours are merged, by default added, until one value is left."""
        merge, values = merge or self.add, list(values)
        while len(values) > 1:
            pairs = [values[k : k + 2] for k in range(0, len(values), 2)]
            values = [merge(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return values[0]

    def totals(
        self,
        count: Value,
        sums: int,
        terms: Callable[[Value, Value | None], Sequence[Value]],
        together: Sequence[int] = (SHALLOW, 1),
    ) -> list[State]:
        """So many sums of the vectors that ``terms(offset, left)`` gives, which are added up to ``together`` at a time.

        They are added as they come, in ``SHALLOW`` chains, which then are a tree: up to ``DEEP`` of them make as many
        levels as a tree.
        """
        carried = [(self.wide, "zeroinitializer")] * (2 * sums)

        def take(offsets: list[Value], left: Value | None, now: list[Value]) -> Sequence[Value]:
            chains: list[list[Value]] = [[] for _ in range(sums)]
            for place, offset in enumerate(offsets):
                for chain, term in zip(chains, terms(offset, left), strict=True):
                    if place < SHALLOW:
                        chain.append(term)
                    else:
                        chain[place % SHALLOW] = self.add(chain[place % SHALLOW], term)
            after: list[Value] = []
            for k, chain in enumerate(chains):
                after += self.taken(now[2 * k : 2 * k + 2], self.kept(self.tree(chain), left))
            return after

        last = self.fold(count, together, take, carried)
        return [self.state(last[2 * k : 2 * k + 2]) for k in range(sums)]

    def taken(self, sums: Sequence[Value], value: Value) -> list[Value]:
        """A vector added to sums in float64: of float32, one of each half; of float64, a sum and what rounding took."""
        parts = self.widened(value)
        if self.bits == 32:
            return [self.write(f"fadd {self.wide} {one}, {part}") for one, part in zip(sums, parts, strict=True)]
        return list(self.two_sum(self.wide, sums[0], sums[1], value))

    def two_sum(self, kind: str, total: Value, error: Value, part: Value) -> tuple[Value, Value]:
        """A sum, what rounding took, and a part more."""
        new = self.write(f"fadd {kind} {total}, {part}")
        back = self.write(f"fsub {kind} {new}, {total}")
        kept = self.write(f"fsub {kind} {new}, {back}")
        first = self.write(f"fsub {kind} {total}, {kept}")
        second = self.write(f"fsub {kind} {part}, {back}")
        lost = self.write(f"fadd {kind} {first}, {second}")
        return new, self.write(f"fadd {kind} {error}, {lost}")

    def state(self, sums: Sequence[Value]) -> State:
        """What ``taken`` has gathered as one sum."""

        def add(kind: str, x: Value, y: Value) -> Value:
            return self.write(f"fadd {kind} {x}, {y}")

        if self.bits == 32:
            return [self.across("double", add(self.wide, *sums), self.wide_count, add)]
        return [self.across("double", one, self.wide_count, add) for one in sums]

    def merged(self, kind: str, state: State, other: State) -> State:
        """Two sums as one; they may be vectors."""
        if len(state) == 1:
            return [self.write(f"fadd {kind} {state[0]}, {other[0]}")]
        error = self.write(f"fadd {kind} {state[1]}, {other[1]}")
        return list(self.two_sum(kind, state[0], error, other[0]))

    def total(self, kind: str, state: State) -> Value:
        """A sum as one float64, what rounding took added where the sum is finite; they may be vectors."""
        if len(state) == 1:
            return state[0]
        corrected = self.write(f"fadd {kind} {state[0]}, {state[1]}")
        finite, masks = self.finite(kind, state[1]), kind.replace("double", "i1")
        return self.write(f"select {masks} {finite}, {kind} {corrected}, {kind} {state[0]}")

    # -- sums of columns -----------------------------------------------------------------------------------------
    #
    # In memory: for each vector of columns the two vectors that ``taken`` makes. ``at`` counts the bytes of the
    # columns before it.

    def clear(self, sums: Value, at: Value) -> None:
        """Begins the sums of a vector of columns."""
        self._store_sums(sums, at, ["zeroinitializer"] * 2)

    def add_to(self, sums: Value, at: Value, value: Value) -> None:
        """Adds a vector of columns to their sums."""
        self._store_sums(sums, at, self.taken(self._load_sums(sums, at), value))

    def join_sums(self, sums: Value, other: Value, at: Value) -> None:
        """Adds other sums to those of a vector of columns."""
        ours, others = self._load_sums(sums, at), self._load_sums(other, at)
        if self.bits == 64:
            self._store_sums(sums, at, self.merged(self.wide, ours, others))
            return
        pairs = zip(ours, others, strict=True)
        self._store_sums(sums, at, [self.write(f"fadd {self.wide} {one}, {two}") for one, two in pairs])

    def totals_of(self, sums: Value, at: Value) -> list[Value]:
        """The sums of a vector of columns, in vectors of float64."""
        found = self._load_sums(sums, at)
        return found if self.bits == 32 else [self.total(self.wide, found)]

    def _load_sums(self, sums: Value, at: Value) -> list[Value]:
        place = self.code.add(sums, self.code.mul(at, 2))
        return [self.code.load(self.wide, self.code.add(place, k * ISA.bytes), 8) for k in range(2)]

    def _store_sums(self, sums: Value, at: Value, values: Sequence[Value]) -> None:
        place = self.code.add(sums, self.code.mul(at, 2))
        for k, value in enumerate(values):
            self.code.store(self.wide, value, self.code.add(place, k * ISA.bytes), 8)

    def plain_totals(self, sums: Value, count: Value, to: Value) -> None:
        """Writes the sums of so many columns side by side, as float64."""

        def visit(at: Value, _: Value | None) -> None:
            place = self.code.add(to, self.code.mul(at, 8 // self.item))
            for k, part in enumerate(self.totals_of(sums, at)):
                self.code.store(self.wide, part, self.code.add(place, k * ISA.bytes), 8)

        self.map(count, 1, visit)

    # -- float64, alone or in vectors ----------------------------------------------------------------------------

    def constant(self, kind: str, value: float) -> Value:
        """A float64, or a vector of it."""
        text = scalar(value, 64)
        return "<" + ", ".join([f"double {text}"] * self.wide_count) + ">" if kind == self.wide else text

    def wide_call(self, kind: str, function: str, *operands: Value) -> Value:
        """A function of LLVM's of float64."""
        name = f"llvm.{function}.{f'v{self.wide_count}' if kind == self.wide else ''}f64"
        self.text.declarations.add(f"declare {kind} @{name}({', '.join([kind] * len(operands))})")
        return self.write(f"call {kind} @{name}({', '.join(f'{kind} {one}' for one in operands)})")

    def finite(self, kind: str, value: Value) -> Value:
        """Whether a float64 is a number other than the infinities."""
        return self.write(f"fcmp olt {kind} {self.wide_call(kind, 'fabs', value)}, {self.constant(kind, math.inf)}")

    def wide_do(self, operation: str, x: Value, y: Value) -> Value:
        """An operation of vectors of float64."""
        return self.write(f"{operation} {self.wide} {x}, {y}")

    def wide_finite(self, value: Value) -> Value:
        """A vector of float64 with 0 for what is not finite."""
        masks, zero = f"<{self.wide_count} x i1>", self.constant(self.wide, 0.0)
        return self.write(f"select {masks} {self.finite(self.wide, value)}, {self.wide} {value}, {self.wide} {zero}")

    def wide_spread(self, value: Value) -> Value:
        """A float64 in every lane."""
        return spread(self.code, value, "double", self.wide_count)

    def joined(self, values: Sequence[Value]) -> Value:
        """The reverse of ``widened``."""
        if self.bits == 64:
            return values[0]
        half = f"<{self.wide_count} x float>"
        parts = [self.write(f"fptrunc {self.wide} {value} to {half}") for value in values]
        order = f"<{self.count} x i32> <{', '.join(f'i32 {lane}' for lane in range(self.count))}>"
        return self.write(f"shufflevector {half} {parts[0]}, {half} {parts[1]}, {order}")
