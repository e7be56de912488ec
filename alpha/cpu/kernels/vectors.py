"""Vectors: LLVM IR for kernels written as vector code: loads, stores, masks and transposition."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.isa import ISA

I64 = ir.IntType(64)
I32 = ir.IntType(32)


_LLVM_TYPES = {4: ir.FloatType(), 8: ir.DoubleType()}
"""LLVM's floats by their bytes."""


def integer(value: int) -> ir.Constant:
    """An int64 constant."""
    return ir.Constant(I64, value)


def every(kind: ir.Type, value: int) -> ir.Constant:
    """A constant of a type of integers; of vectors in every lane."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)
    return ir.Constant(kind, value)


def upper_half(builder: ir.IRBuilder, bits: Any) -> Any:
    """The bits of float32 numbers rounded to bfloat16, in the upper halves of theirs; the lower halves are any."""
    kind = bits.type
    last = builder.and_(builder.lshr(bits, every(kind, 16)), every(kind, 1))
    rounded = builder.add(bits, builder.add(last, every(kind, 0x7FFF)))
    size = builder.and_(bits, every(kind, 0x7FFFFFFF))
    is_nan = builder.icmp_unsigned(">", size, every(kind, 0x7F800000))
    return builder.select(is_nan, builder.or_(bits, every(kind, 0x400000)), rounded)


def scalar_of(tag: Any) -> tuple[ir.Type, int]:
    """The LLVM type and the bytes of a kernel's numbers, from the Numba type of its tag.

    Words of two bfloat16 (``alpha.cpu.kernels.pairs``), whose tag is an int32, are moved as floats are.
    """
    return _LLVM_TYPES[tag.bitwidth // 8], tag.bitwidth // 8


class _BFloat(ir.Type):  # type: ignore[misc, unused-ignore]
    """LLVM's bfloat, which llvmlite does not have."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


class Vectors:
    """Emits operations on vectors of ``lanes`` numbers of a type; addresses are int64 and need no alignment."""

    def __init__(self, builder: ir.IRBuilder, tag: Any) -> None:
        self.builder = builder
        self.scalar, self.item = scalar_of(tag)
        self.lanes = ISA.lanes(self.item)
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.zero = self.constant(0.0)
        self.are_pairs = isinstance(tag, types.Integer)
        self.align = self.item // 2 if self.are_pairs else self.item  # words may begin at any number of bfloat16

    def opaque(self, value: Any) -> Any:
        """The same integer, hidden from LLVM, which otherwise computes one address from another by a difference."""
        return self.builder.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [value], False)

    def constant(self, value: float) -> ir.Constant:
        """A vector with the value in every lane."""
        return ir.Constant(self.vector, [ir.Constant(self.scalar, value)] * self.lanes)

    def pointer(self, address: Any, pointee: ir.Type) -> Any:
        """The address as a pointer."""
        return self.builder.inttoptr(address, pointee.as_pointer())

    def load_address(self, table: Any, index: int) -> Any:
        """Loads an int64 from a table."""
        at = self.builder.add(table, integer(8 * index)) if index else table
        return self.builder.load(self.pointer(at, I64))

    def load(self, address: Any) -> Any:
        """Loads a vector."""
        value = self.builder.load(self.pointer(address, self.vector))
        value.align = self.align
        return value

    def store(self, value: Any, address: Any) -> None:
        """Stores a vector."""
        self.builder.store(value, self.pointer(address, self.vector)).align = self.align

    def stream(self, value: Any, address: Any) -> None:
        """Stores a vector past the caches; the address must be a multiple of the vector's size."""
        store = self.builder.store(value, self.pointer(address, self.vector))
        store.align = self.lanes * self.item
        store.set_metadata("nontemporal", self.builder.module.add_metadata([ir.Constant(I32, 1)]))

    def prefetch(self, address: Any, *, to_write: bool = False, into_l2: bool = False) -> None:
        """Asks for the cache line of an address, which need not be memory: into the L1 cache, or no nearer than L2."""
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), I32, I32, I32])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        settings = [ir.Constant(I32, value) for value in (int(to_write), 2 if into_l2 else 3, 1)]
        self.builder.call(function, [self.pointer(address, ir.IntType(8)), *settings])

    def broadcast(self, address: Any) -> Any:
        """Loads a number into every lane of a vector."""
        value = self.builder.load(self.pointer(address, self.scalar))
        value.align = self.align
        return self.spread(value)

    def spread(self, value: Any) -> Any:
        """A vector with the number in every lane."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, value, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, undefined, self._lanes([0] * self.lanes))

    def leaky_relu(self, value: Any, slope: Any) -> Any:
        """The value where it is above 0, else its product with the slope, or 0 for a slope of 0; NaN stays NaN."""
        builder = self.builder
        flat = builder.fcmp_ordered("==", slope, self.zero)
        # ReLU sets what is below 0 to 0, since -inf * 0 would be NaN; other slopes compare with NaN, which is never
        # true.
        limit = builder.select(flat, self.zero, self.constant(float("nan")))
        positive = builder.fcmp_ordered(">", value, self.zero)
        product = builder.select(builder.fcmp_ordered("<", value, limit), self.zero, builder.fmul(value, slope))
        return builder.select(positive, value, product)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c; of words of two numbers both products are added."""
        if self.are_pairs:
            halves = ir.VectorType(_BFloat(), 2 * self.lanes)
            kind = ir.FunctionType(self.vector, [self.vector, halves, halves])
            dot = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
            return self.builder.call(dot, [c, self.builder.bitcast(a, halves), self.builder.bitcast(b, halves)])
        name = f"llvm.fma.v{self.lanes}f{8 * self.item}"
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b, c])

    def factor(self, value: Any) -> Any:
        """The bits of float32 numbers rounded to bfloat16, by the instruction that goes with ``fma`` of words.

        Both take what is too small for a normal number as 0.
        """
        halves = ir.VectorType(_BFloat(), self.lanes)
        name, kind = "llvm.x86.avx512bf16.cvtneps2bf16.512", ir.FunctionType(halves, [self.vector])
        rounded = self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [value])
        return self.builder.bitcast(rounded, ir.VectorType(ir.IntType(16), self.lanes))

    def of_factor(self, bits: Any) -> Any:
        """The float32 numbers that bits of bfloat16 stand for."""
        wide = ir.VectorType(I32, self.lanes)
        return self.builder.bitcast(self.builder.shl(self.builder.zext(bits, wide), every(wide, 16)), self.vector)

    def total(self, value: Any) -> Any:
        """The sum of the lanes: halves are added until one lane is left."""
        lanes = self.lanes
        while lanes > 1:
            lanes //= 2
            upper = [lane + lanes if lane < lanes else lane for lane in range(self.lanes)]
            value = self.builder.fadd(value, self.builder.shuffle_vector(value, value, self._lanes(upper)))
        return self.builder.extract_element(value, ir.Constant(I32, 0))

    def reversed(self, value: Any) -> Any:
        """The lanes in reverse order."""
        return self.builder.shuffle_vector(value, value, self._lanes(list(range(self.lanes - 1, -1, -1))))

    def load_masked(self, address: Any, count: Any, others: Any = None) -> Any:
        """Loads the first ``count`` lanes; the others are 0, or a vector's, and their memory is not read."""
        mask = self.below(count)
        load = self._masked("load", self.vector, [self.vector.as_pointer(), I32, mask.type, self.vector])
        at = self.pointer(address, self.vector)
        return self.builder.call(
            load, [at, ir.Constant(I32, self.align), mask, self.zero if others is None else others]
        )

    def store_masked(self, value: Any, address: Any, count: Any) -> None:
        """Stores the first ``count`` lanes; other memory is not touched."""
        mask = self.below(count)
        store = self._masked("store", ir.VoidType(), [self.vector, self.vector.as_pointer(), I32, mask.type])
        at = self.pointer(address, self.vector)
        self.builder.call(store, [value, at, ir.Constant(I32, self.align), mask])

    def store_first(self, value: Any, address: Any, count: Any) -> None:
        """Does what ``store_masked`` does, without a mask if all lanes are stored: masks may be slow."""
        whole = self.builder.icmp_signed(">=", count, integer(self.lanes))
        with self.builder.if_else(whole, likely=True) as (then, otherwise):
            with then:
                self.store(value, address)
            with otherwise:
                self.store_masked(value, address, count)

    def first(self, count: Any) -> Any:
        """A mask of the lanes whose index is below ``count``, which may be any int64."""
        most = integer(self.lanes)
        return self.below(self.builder.select(self.builder.icmp_signed(">", count, most), most, count))

    def store_where(self, value: Any, address: Any, mask: Any) -> None:
        """Stores the lanes of a mask; other memory is not touched."""
        store = self._masked("store", ir.VoidType(), [self.vector, self.vector.as_pointer(), I32, mask.type])
        self.builder.call(store, [value, self.pointer(address, self.vector), ir.Constant(I32, self.item), mask])

    def expand(self, address: Any, mask: Any) -> Any:
        """Loads one number after another into the lanes of a mask; nothing behind the last of them is read."""
        name = f"llvm.masked.expandload.v{self.lanes}f{8 * self.item}"
        kind = ir.FunctionType(self.vector, [self.scalar.as_pointer(), mask.type, self.vector])
        load = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(load, [self.pointer(address, self.scalar), mask, self.zero])

    def load_first(self, address: Any, count: Any) -> Any:
        """Does what ``load_masked`` does, without a mask if all lanes are loaded."""
        whole = self.builder.icmp_signed(">=", count, integer(self.lanes))
        slot = cgutils.alloca_once(self.builder, self.vector)
        with self.builder.if_else(whole, likely=True) as (then, otherwise):
            with then:
                self.builder.store(self.load(address), slot)
            with otherwise:
                self.builder.store(self.load_masked(address, count), slot)
        return self.builder.load(slot)

    def transposed(self, rows: list[Any]) -> list[Any]:
        """The columns of a square matrix of vectors: halves are exchanged at each power of two."""
        rows = list(rows)
        step = self.lanes // 2
        while step:
            low = [lane if not lane & step else self.lanes + lane - step for lane in range(self.lanes)]
            high = [lane + step if not lane & step else self.lanes + lane for lane in range(self.lanes)]
            for i in range(self.lanes):
                if not i & step:
                    a, b = rows[i], rows[i + step]
                    rows[i] = self.builder.shuffle_vector(a, b, self._lanes(low))
                    rows[i + step] = self.builder.shuffle_vector(a, b, self._lanes(high))
            step //= 2
        return rows

    def _lanes(self, indices: list[int]) -> ir.Constant:
        return ir.Constant(ir.VectorType(I32, len(indices)), [ir.Constant(I32, index) for index in indices])

    def below(self, count: Any) -> Any:
        """A mask of the lanes whose index is below ``count``."""
        builder = self.builder
        vector = ir.VectorType(I32, self.lanes)
        undefined = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(undefined, builder.trunc(count, I32), ir.Constant(I32, 0))
        counts = builder.shuffle_vector(first, undefined, self._lanes([0] * self.lanes))
        return builder.icmp_signed("<", self._lanes(list(range(self.lanes))), counts)

    def _masked(self, kind: str, result: ir.Type, arguments: list[ir.Type]) -> Any:
        name = f"llvm.masked.{kind}.v{self.lanes}f{8 * self.item}.p0"
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)


class Images:
    """Loads and stores of matrices for ``Vectors`` of floats: numbers of their type, or float32 as halves in memory.

    Halves are bits: those of bfloat16, whose tag is a uint16, or of float16, whose tag is an int16. They are rounded to
    the nearest, ties to even.

    Attributes:
        item: bytes of a number in memory.
    """

    def __init__(self, emit: Vectors, tag: Any) -> None:
        self._emit, self._is_half = emit, isinstance(tag, types.Integer)
        self._is_brain = self._is_half and not tag.signed
        self.item = tag.bitwidth // 8
        self._bits = ir.VectorType(ir.IntType(16), emit.lanes)
        self._ints = ir.VectorType(I32, emit.lanes)

    def load(self, address: Any, left: Any = None) -> Any:
        """Loads a vector, or its first ``left`` lanes."""
        emit, builder = self._emit, self._emit.builder
        if not self._is_half:
            return emit.load(address) if left is None else emit.load_masked(address, left)
        at = emit.pointer(address, self._bits)
        if left is None:
            bits = builder.load(at)
            bits.align = self.item
        else:
            mask, nothing = emit.below(left), every(self._bits, 0)
            load = self._masked("load", self._bits, [at.type, I32, mask.type, self._bits])
            bits = builder.call(load, [at, ir.Constant(I32, self.item), mask, nothing])
        if not self._is_brain:
            return builder.fpext(builder.bitcast(bits, self._halves), emit.vector)
        return builder.bitcast(builder.shl(builder.zext(bits, self._ints), every(self._ints, 16)), emit.vector)

    def store(self, value: Any, address: Any, left: Any = None) -> None:
        """Stores a vector, or its first ``left`` lanes."""
        emit, builder = self._emit, self._emit.builder
        if not self._is_half:
            emit.store(value, address) if left is None else emit.store_masked(value, address, left)
            return
        if self._is_brain:
            upper = upper_half(builder, builder.bitcast(value, self._ints))
            bits = builder.trunc(builder.lshr(upper, every(self._ints, 16)), self._bits)
        else:
            bits = builder.bitcast(builder.fptrunc(value, self._halves), self._bits)
        at = emit.pointer(address, self._bits)
        if left is None:
            builder.store(bits, at).align = self.item
        else:
            mask = emit.below(left)
            store = self._masked("store", ir.VoidType(), [self._bits, at.type, I32, mask.type])
            builder.call(store, [bits, at, ir.Constant(I32, self.item), mask])

    def load_first(self, address: Any, count: Any) -> Any:
        """Loads the first ``count`` lanes, without a mask if these are all."""
        emit, builder = self._emit, self._emit.builder
        slot = cgutils.alloca_once(builder, emit.vector)
        with builder.if_else(self._are_all(count), likely=True) as (then, otherwise):
            with then:
                builder.store(self.load(address), slot)
            with otherwise:
                builder.store(self.load(address, count), slot)
        return builder.load(slot)

    def store_first(self, value: Any, address: Any, count: Any) -> None:
        """Stores the first ``count`` lanes, without a mask if these are all: masks may be slow."""
        with self._emit.builder.if_else(self._are_all(count), likely=True) as (then, otherwise):
            with then:
                self.store(value, address)
            with otherwise:
                self.store(value, address, count)

    def _are_all(self, count: Any) -> Any:
        return self._emit.builder.icmp_signed(">=", count, integer(self._emit.lanes))

    @property
    def _halves(self) -> ir.Type:
        return ir.VectorType(ir.HalfType(), self._emit.lanes)

    def _masked(self, kind: str, result: ir.Type, arguments: list[ir.Type]) -> Any:
        name = f"llvm.masked.{kind}.v{self._emit.lanes}i16.p0"
        return cgutils.get_or_insert_function(self._emit.builder.module, ir.FunctionType(result, arguments), name)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def transpose(_typing: Any, tag: Any, source: Any, source_step: Any, target: Any, target_step: Any, count: Any) -> Any:
    """Writes the first ``count`` columns of a square of a vector's size as rows; steps between rows are in bytes."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, source, source_step, target, target_step, count = arguments
        rows = []
        for _ in range(vectors.lanes):
            rows.append(vectors.load(source))
            source = builder.add(source, source_step)
        for i, row in enumerate(vectors.transposed(rows)):
            with builder.if_then(builder.icmp_signed(">", count, integer(i)), likely=True):
                vectors.store(row, target)
            target = builder.add(target, target_step)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 5), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def read_number(_typing: Any, tag: Any, address: Any) -> Any:
    """Reads the number at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scalar, item = scalar_of(tag)
        value = builder.load(builder.inttoptr(arguments[1], scalar.as_pointer()))
        value.align = item
        return value

    return tag(tag, types.int64), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def write_number(_typing: Any, tag: Any, address: Any, value: Any) -> Any:
    """Writes a number to an address."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        scalar, item = scalar_of(tag)
        builder.store(arguments[2], builder.inttoptr(arguments[1], scalar.as_pointer())).align = item
        return context.get_dummy_value()

    return types.void(tag, types.int64, tag), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def rounded(_typing: Any, tag: Any, value: Any) -> Any:
    """A float64 number in the tag's type."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, arguments[1], types.float64, tag)

    return tag(tag, types.float64), codegen
