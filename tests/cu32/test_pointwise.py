"""Point-wise programs on cu32: every operation, with the CPU engine's bits; layouts, vectors, plans, captures."""

from __future__ import annotations

import gc
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alpha
from alpha.cpu.isa import FUSED
from alpha.cpu.loops import turns
from alpha.cu32 import compiler, expressions, pointwise, resources, scalars
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import KERNELS, Nvcc, Source
from alpha.cu32.expressions import DENSE, DRAWN, SAME, STRIDED, Layout
from alpha.cu32.pointwise import MOST_OPERANDS, MOST_VECTORS, WORDS, TensorLayout, planned
from alpha.cu32.programs import SOURCES
from alpha.engine import Engine
from alpha.errors import EngineError
from alpha.expressions import dropout, integers, writers
from alpha.expressions import graph as graphs
from alpha.expressions.graph import BOOL, OF_INTEGERS_ALONE, OPERATIONS, Graph, Node
from alpha.expressions.program import Program
from tests.cu32.test_arrays import PLACES, both, memory
from tests.engine.test_pointwise_accuracy import everywhere
from tests.robustness.inject import interrupt

Array = np.ndarray[Any, Any]
needs_fma = pytest.mark.skipif(not FUSED, reason="this processor's loops multiply and add in two roundings")


def program_of(operations: Sequence[str], numbers: int = 0) -> Program:
    """The results of operations of the same tensors, the last of which may be numbers."""
    graph = Graph()
    count = len(OPERATIONS[operations[0]].operands) - numbers
    inputs = [graph.input(place) for place in range(count)]
    operands = [*inputs, *(graph.argument(place) for place in range(numbers))]
    return Program(graph, [graph.apply(name, *operands) for name in operations], inputs)


def bits(x: Any) -> Array:
    """A tensor's elements as integers, all NaN as one."""
    values = np.array(x.engine.to_numpy(x))
    if values.dtype == np.bool_:
        return values
    values[np.isnan(values)] = np.nan
    return values.view(np.int32 if values.dtype == np.float32 else np.int64)


# -- operations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float", "double", *scalars.INTEGERS])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_written(name: str, kind: str) -> None:
    program = program_of([name])
    layout = Layout(kind, ((kind, STRIDED),) * program.tensors, False, 1)
    functions = integers.FUNCTIONS if kind in scalars.INTEGERS else writers.FUNCTIONS
    assert (name in functions) == (kind in scalars.INTEGERS) or name not in OF_INTEGERS_ALONE
    if name not in functions:
        with pytest.raises(EngineError, match=f"written for {kind}, got {name}"):
            expressions.source(program, layout)
        return
    source = expressions.source(program, layout)
    assert source.text is not None and expressions.kernel_name(program, layout) in source.text


def test_an_operation_that_is_not_written_is_an_error_at_once(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(graphs.OPERATIONS, "cube", graphs.Operation(("float",), "float", lambda x: x**3))
    with pytest.raises(EngineError, match="got cube"):
        cu32.pointwise("cube", program_of(["cube"]), (cu32.from_numpy(np.ones(3)),), ())


def by_operands() -> list[list[str]]:
    """The operations, those together that take the same operands."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, operation in OPERATIONS.items():
        if name not in OF_INTEGERS_ALONE:
            found.setdefault(operation.operands, []).append(name)
    return list(found.values())


@needs_fma
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("operations", by_operands(), ids=lambda names: f"{names[0]} and its kin")
def test_the_bits_are_those_of_the_cpu(
    cu32: DeviceEngine, rng: np.random.Generator, operations: list[str], dtype: Any
) -> None:
    program = program_of(operations)
    arrays = [everywhere(rng, dtype, 1 << 13) for _ in range(program.tensors)]
    for array in arrays[1:]:
        rng.shuffle(array)
    found, wanted = (
        engine.pointwise("test", program, [engine.from_numpy(array) for array in arrays], ())
        for engine in (cu32, alpha.engine("cpu"))
    )
    for name, one, other in zip(operations, found, wanted, strict=True):
        np.testing.assert_array_equal(bits(one), bits(other), err_msg=name)


def test_the_digits_of_two_over_pi_are_the_loops() -> None:
    text = (KERNELS / "turns.cuh").read_text("utf-8")
    table = text[text.index("two_over_pi[") : text.index("};")]
    assert tuple(int(word, 16) for word in re.findall(r"0x[0-9a-f]{16}", table)) == turns._two_over_pi()


# -- layouts ---------------------------------------------------------------------------------------------------------


@needs_fma
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_wherever_tensors_lie(cu32: DeviceEngine, rng: np.random.Generator, dtype: Any) -> None:
    graph = Graph()
    x, y, slope = graph.input(0), graph.input(1), graph.argument(0)
    total = graph.apply("add", graph.apply("mul", x, slope), y)
    program = Program(graph, [total, graph.apply("lt", x, y), graph.apply("tanh", total)], [x, y])
    cpu = alpha.engine("cpu")
    for name, (first, second) in PLACES.items():
        a, b = both(cu32, memory(rng, dtype), first), both(cu32, memory(rng, dtype), second)
        for one, other in ((a, b), (b, a), (a, a)):
            wanted = cpu.pointwise("test", program, (one[0], other[0]), (0.3,))
            found = cu32.pointwise("test", program, (one[1], other[1]), (0.3,))
            for mine, theirs in zip(found, wanted, strict=True):
                assert (mine.shape, mine.strides, mine.dtype) == (theirs.shape, theirs.strides, theirs.dtype), name
                np.testing.assert_array_equal(bits(mine), bits(theirs), err_msg=name)


def test_dtypes_meet(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    program = program_of(["add", "lt"])
    wide, narrow = rng.standard_normal((6, 8)), rng.standard_normal((6, 8)).astype(np.float32)
    total, less = cu32.pointwise("test", program, (cu32.from_numpy(narrow), cu32.from_numpy(wide)), ())
    np.testing.assert_array_equal(cu32.to_numpy(total), narrow + wide)
    np.testing.assert_array_equal(cu32.to_numpy(less), narrow < wide)
    (shifted, _) = cu32.pointwise("test", program, (cu32.from_numpy(narrow), cu32.from_numpy(np.array(0.1))), ())
    np.testing.assert_array_equal(cu32.to_numpy(shifted), narrow + np.float32(0.1))


def test_bools_are_conditions(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    mask, x = rng.integers(0, 2, (6, 35)).astype(np.bool_), rng.standard_normal((6, 35)).astype(np.float32)
    for shape in ((6, 35), (35,), (6, 1)):
        condition = mask[tuple([slice(n) for n in shape[-2:]])] if len(shape) == 2 else mask[0]
        a, b = cu32.from_numpy(condition), cu32.from_numpy(x)
        found = cu32.elementwise("where", a, b, -2.5)
        np.testing.assert_array_equal(cu32.to_numpy(found), np.where(condition, x, np.float32(-2.5)))
    for name in ("logical_and", "logical_or", "logical_xor"):
        found = cu32.elementwise(name, cu32.from_numpy(mask), cu32.from_numpy(mask[:, :1]))
        np.testing.assert_array_equal(cu32.to_numpy(found), getattr(np, name)(mask, mask[:, :1]))
    flipped = cu32.elementwise("logical_not", cu32.from_numpy(mask))
    np.testing.assert_array_equal(cu32.to_numpy(flipped), ~mask)


def test_into_a_given_tensor(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    """One operand, part of one, in an order of its own, of another shape or dtype."""
    values = rng.standard_normal((2, 6, 8)).astype(np.float32)
    program = program_of(["sub"])
    for offset, shape, strides in (
        (0, (6, 8), (8, 1)), (1, (5, 8), (8, 1)), (0, (8, 6), (1, 8)), (47, (6, 8), (-8, -1)), (8, (5, 4), (8, 2)),
    ):  # fmt: skip
        memory = cu32.from_numpy(values)
        wanted = values.copy()
        view = np.lib.stride_tricks.as_strided(wanted.reshape(-1)[offset:], shape, [4 * step for step in strides])
        y = rng.standard_normal(shape).astype(np.float32)
        whole = memory.strided(0, shape, (shape[1], 1))
        plain = values.reshape(-1)[: shape[0] * shape[1]].reshape(shape)
        view[...] = plain - y
        out = memory.strided(offset, shape, strides)
        assert cu32.pointwise("test", program, (whole, cu32.from_numpy(y)), (), out)[0] is out
        np.testing.assert_array_equal(cu32.to_numpy(memory), wanted)
    narrow, wide = cu32.from_numpy(values[0]), cu32.empty((6, 8), alpha.float64)
    cu32.pointwise("test", program, (narrow, cu32.from_numpy(values[1])), (), wide)
    np.testing.assert_array_equal(cu32.to_numpy(wide), (values[0] - values[1]).astype(np.float64))


FLAT: TensorLayout = ((1024,), (1,), alpha.float32, 0)


def defines(*layouts: TensorLayout, program: Program | None = None) -> dict[str, str]:
    """The macros of the kernel for tensors that lie so."""
    return dict(planned(program or program_of(["add"]), "test", None, *layouts).source.defines)


def test_sixteen_bytes_at_once_where_memory_allows_it() -> None:
    dense = ((6, 8), (8, 1), alpha.float32, 0)
    assert defines(FLAT, FLAT) == {"OFFSETS": "1", "REAL": "float", "WIDTH": "4"}
    assert defines(FLAT, ((), (), alpha.float32, 3)) == {"OFFSETS": "1", "REAL": "float", "WIDTH": "4"}
    assert defines(dense, ((8,), (1,), alpha.float32, 4)) == {"OFFSETS": "3", "REAL": "float", "WIDTH": "4"}
    assert defines(dense, ((6, 1), (1, 1), alpha.float32, 1)) == {"OFFSETS": "3", "REAL": "float", "WIDTH": "4"}
    assert defines(FLAT, ((1024,), (1,), alpha.float32, 1))["WIDTH"] == "1"
    assert defines(FLAT, ((1024,), (2,), alpha.float32, 0))["WIDTH"] == "1"
    assert defines(dense, ((8,), (1,), alpha.float32, 2))["WIDTH"] == "1"
    many = chained("add", MOST_VECTORS - 1, 1), chained("add", MOST_VECTORS, 1)
    assert [defines(*[FLAT] * one.tensors, program=one)["WIDTH"] for one in many] == ["4", "1"]
    wide = ((1024,), (1,), alpha.float64, 2)
    assert defines(wide, wide) == {"OFFSETS": "1", "REAL": "double", "WIDTH": "2"}


def test_one_kernel_serves_all_tensors_that_lie_alike() -> None:
    program, longer = program_of(["mul"]), ((999,), (1,), alpha.float32, 8)
    flat = planned(program, "test", None, FLAT, FLAT)
    assert flat.source is planned(program, "other", None, longer, longer).source
    unaligned = planned(program, "test", None, FLAT, ((1024,), (1,), alpha.float32, 1))
    grids = [((6, 5, 8), strides, alpha.float32, 0) for strides in ((40, 1, 5), (1, 48, 6))]
    across = planned(program, "test", None, *grids)
    assert unaligned.source is across.source is not flat.source
    assert unaligned.kernel == flat.kernel


def test_more_than_32_bits_of_elements_and_offsets() -> None:
    """The loops of one launch stay below 2 ** 31; together they reach every element once."""
    rows, columns = 3 << 20, 4099
    for lies in (
        (((rows * columns,), (1,), alpha.float32, 0),) * 2,
        (((rows, columns), (columns, 1), alpha.float32, 0), ((columns,), (1,), alpha.float32, 0)),
        (((rows, columns), (1, rows), alpha.float32, 0), ((rows, 1), (columns, 1), alpha.float32, 0)),
    ):
        plan = planned(program_of(["add", "lt"]), "test", None, *lies)
        width = int(dict(plan.source.defines)["WIDTH"])
        assert len(plan.pieces) > 5
        elements, reached = 0, {0}
        for piece in sorted(plan.pieces, key=lambda piece: piece.bytes[0]):
            count, tail = np.frombuffer(piece.loop[:8], np.uint32).tolist()
            assert count * width + tail < 1 << 31
            start, of_bools = piece.bytes[:2]
            assert start == 4 * of_bools and start % 16 * (width > 1) == 0
            elements += count * width + tail
            reached.add(start // 4 + count * width + tail)
            assert start // 4 in reached  # as the results are dense, it begins where another stopped
        assert elements == rows * columns == max(reached)


def test_very_many_tensors(cu32: DeviceEngine) -> None:
    graph = Graph()
    inputs = [graph.input(place) for place in range(MOST_OPERANDS + 5)]
    total: Node = inputs[0]
    for one in inputs[1:]:
        total = graph.apply("add", total, one)
    for program, count in (
        (Program(graph, [total], inputs), len(inputs)),
        (_sum(MOST_OPERANDS - 1), MOST_OPERANDS - 1),
    ):
        values = [np.arange(5, dtype=np.float32) + place for place in range(count)]
        (found,) = cu32.pointwise("test", program, [cu32.from_numpy(value) for value in values], ())
        np.testing.assert_array_equal(cu32.to_numpy(found), np.sum(values, 0))


def _sum(count: int) -> Program:
    graph = Graph()
    inputs = [graph.input(place) for place in range(count)]
    total: Node = inputs[0]
    for one in inputs[1:]:
        total = graph.apply("add", total, one)
    return Program(graph, [total], inputs)


# -- programs at random ----------------------------------------------------------------------------------------------

STEPS = ("neg", "abs", "tanh", "sigmoid", "sin", "cos", "erf", "sub", "mul", "maximum", "minimum", "where")
"""Operations whose results, halved where there are two operands, stay within 2 of 0 if the operands do."""


@st.composite
def programs(draw: Any) -> Program:
    """Some instructions of two tensors and a number; the last results count."""
    graph = Graph()
    x, y = graph.input(0), graph.input(1)
    nodes = [x, y, graph.argument(0), graph.constant(draw(st.sampled_from([0.0, -1.0, 0.3])))]
    for _ in range(draw(st.integers(1, 7))):
        name = draw(st.sampled_from(STEPS))
        taken = [draw(st.sampled_from(nodes)) for _ in range(len(OPERATIONS[name].operands))]
        if name == "where":
            taken[0] = graph.apply("lt", *taken[1:])
        node = graph.apply(name, *taken)
        nodes.append(graph.apply("mul", node, 0.5) if name in ("sub", "mul") else node)
    results = [graph.apply("add", node, graph.apply("mul", x, 0.0)) for node in nodes[-2:]]
    return Program(graph, [*results, graph.apply("le", results[0], y)], [x, y])


LAYOUTS = ("dense", "row", "column", "every other", "off by one", "one number", "across")


def placed(engine: Engine, values: Array, layout: str) -> alpha.Tensor:
    """Elements of a (5, 12) tensor or of one that broadcasts to it."""
    x = engine.from_numpy(values)
    shape, strides, offset = {
        "dense": ((5, 12), (12, 1), 0),
        "row": ((12,), (1,), 4),
        "column": ((5, 1), (3, 1), 2),
        "every other": ((5, 12), (24, 2), 1),
        "off by one": ((5, 12), (12, 1), 1),
        "one number": ((), (), 7),
        "across": ((5, 12), (1, 5), 0),
    }[layout]
    return x.strided(offset, shape, strides)


@needs_fma
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    program=programs(),
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 99),
)
def test_programs_at_random(
    cu32: DeviceEngine, program: Program, layouts: tuple[str, str], dtype: Any, seed: int
) -> None:
    values = np.random.default_rng(seed).uniform(-2, 2, (2, 128)).astype(dtype)
    number = program.numbers((0.7,))
    found, theirs = (
        engine.pointwise(
            "test", program, [placed(engine, v, one) for v, one in zip(values, layouts, strict=True)], number
        )
        for engine in (cu32, alpha.engine("cpu"))
    )
    for mine, other in zip(found, theirs, strict=True):
        np.testing.assert_array_equal(bits(mine), bits(other))
    cpu = alpha.engine("cpu")
    slots: list[Any] = [
        np.array(cpu.to_numpy(placed(cpu, v, one)), np.float64) for v, one in zip(values, layouts, strict=True)
    ]
    slots += number
    for one in program.instructions:
        operands = [slots[slot] for slot in one.operands]
        slots.append(one.value if one.operation == "constant" else OPERATIONS[one.operation].evaluate(*operands))
    for mine, slot in zip(found[:2], program.results, strict=False):
        exact = np.broadcast_to(slots[slot], mine.shape)
        np.testing.assert_allclose(cu32.to_numpy(mine), exact, rtol=0, atol=2e-5 if dtype == np.float32 else 1e-13)


# -- numbers, compilations, captures ---------------------------------------------------------------------------------


def test_another_number_compiles_nothing(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    @alpha.pointwise
    def scaled(x: Any, by: Any, plus: Any) -> Any:
        return x * by + plus

    x = alpha.tensor(np.ones(7, np.float32), engine=cu32)
    whole = alpha.tensor(np.arange(7), engine=cu32)
    assert scaled(x, 2, 1).tolist() == [3] * 7
    assert (whole * 3 > 2).tolist() == [False] + [True] * 6
    cu32.dropout(x, 0.5, 1, 2)

    def refuse(*_: object) -> bytes:
        raise AssertionError("compiled")

    monkeypatch.setattr(compiler, "cubin", refuse)
    monkeypatch.setattr(expressions, "source", refuse)
    assert scaled(x, 5, 1e300).tolist() == [np.inf] * 7
    assert (whole * -(2**40) > -(2**42)).tolist() == [True] * 4 + [False] * 3
    assert cu32.dropout(x, 1.0, 3, 4)[0].tolist() == [0] * 7
    assert scaled(alpha.tensor(np.ones(999, np.float32), engine=cu32), -1e-300, 0.1).tolist() == [np.float32(0.1)] * 999


@alpha.pointwise
def bent(x: Any, slope: Any) -> Any:
    """A swish with a slope of its own."""
    return x * alpha.sigmoid(slope * x)


def test_in_a_captured_step(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    slope = alpha.tensor(np.float32(0.5) * np.ones(12, np.float32), engine=cu32, requires_grad=True)

    def step(x: alpha.Tensor) -> tuple[alpha.Tensor, alpha.Tensor]:
        y = bent(x.permute(1, 0), slope)
        slope.grad = None
        y.sum().backward()
        assert slope.grad is not None
        return y.detach(), slope.grad

    captured = alpha.graph(step)
    for _ in range(4):
        x = alpha.tensor(rng.standard_normal((12, 5)).astype(np.float32), engine=cu32)
        for mine, plain in zip(captured(x), step(x), strict=True):
            np.testing.assert_array_equal(bits(mine), bits(plain))


def test_an_interrupt_anywhere_leaves_the_function_whole(cu32: DeviceEngine) -> None:
    values = np.linspace(-2, 2, 37, dtype=np.float32)

    def gradient(function: Any) -> Array:
        x = alpha.tensor(values, engine=cu32, requires_grad=True)
        y = function(x.reshape(37, 1), 0.5)
        y.backward(alpha.tensor(np.ones((37, 1), np.float32), engine=cu32))
        assert x.grad is not None
        return np.concatenate([y.detach().numpy().reshape(-1), x.grad.numpy()])

    def fresh() -> Any:
        return alpha.pointwise(lambda x, a: alpha.sin(x % a) + alpha.where(x > 0, x, a))

    wanted = gradient(fresh())
    gc.collect()
    in_use, at = cu32.memory.in_use, 0
    while True:
        pointwise._kernels.clear()  # so that they are written anew
        function = fresh()
        place = interrupt(lambda f=function: gradient(f), at, "cu32/pointwise.py", "cu32/expressions.py")  # type: ignore[misc]
        np.testing.assert_array_equal(gradient(function), wanted)
        if place is None:
            break
        at += 61
    assert at > 300
    gc.collect()
    assert cu32.memory.in_use == in_use


# -- what the real compiler makes of them ----------------------------------------------------------------------------


@pytest.fixture
def nvcc() -> Nvcc:
    """The real compiler; the test is skipped where there is none."""
    try:
        return resources.find_nvcc()
    except EngineError as error:
        pytest.skip(str(error))


def ptx(nvcc: Nvcc, source: Source, folder: Path) -> str:
    """The intermediate code of a source."""
    file, out = folder / "kernel.cu", folder / "kernel.ptx"
    file.write_text(source.code, "utf-8")
    options = [*compiler.OPTIONS, "-arch=sm_80", f"-I{KERNELS}", *source.flags]
    subprocess.run([nvcc.command, "-ptx", *options, "-o", str(out), str(file)], check=True, capture_output=True)
    return out.read_text("utf-8")


@pytest.mark.parametrize(
    ("kind", "width", "lies", "is_flat"),
    [
        ("float", 4, (DENSE, DENSE), True),
        ("double", 2, (DENSE, DENSE), True),
        ("float", 4, (DENSE, SAME), True),
        ("float", 4, (DENSE, DENSE), False),
        ("float", 4, (DENSE, SAME), False),
        ("int", 4, (DENSE, DENSE), True),
        ("int64", 2, (DENSE, SAME), False),
        ("uint8", 16, (DENSE, DENSE), True),
    ],
    ids=str,
)
def test_loads_and_stores_of_sixteen_bytes(
    nvcc: Nvcc, tmp_path: Path, kind: str, width: int, lies: tuple[str, str], is_flat: bool
) -> None:
    layout = Layout(kind, ((kind, lies[0]), (kind, lies[1])), is_flat, width)
    text = ptx(nvcc, expressions.source(program_of(["add"]), layout), tmp_path)
    assert len(SIXTEEN_LOADED.findall(text)) == 2 * lies.count(DENSE)  # two steps a thread
    assert len(SIXTEEN_STORED.findall(text)) == 2


SIXTEEN_LOADED, SIXTEEN_STORED = (re.compile(rf"{way}\.global\.(v4\.[fubs]32|v2\.[fubs]64)") for way in ("ld", "st"))


@pytest.mark.parametrize(("kind", "is_flat"), [("float", True), ("double", False)])
def test_dropout_moves_sixteen_bytes_and_draws_a_counter_for_four(
    nvcc: Nvcc, tmp_path: Path, kind: str, is_flat: bool
) -> None:
    layout = Layout(kind, ((kind, DENSE), (DRAWN, DENSE)), is_flat, WORDS)
    text = ptx(nvcc, expressions.source(dropout.KEPT_AND_MASK, layout), tmp_path)
    moves = 2 * (1 if kind == "float" else 2)
    assert len(SIXTEEN_LOADED.findall(text)) == moves and len(SIXTEEN_STORED.findall(text)) == moves
    products = len(re.findall(r"mul\.(hi|lo|wide)\.[us](32|64)", text))
    assert products <= 3 * 10 * 4  # two steps and the tail: ten rounds of two products, each of two words


@pytest.mark.slow
def test_kernels_of_integers_and_of_dropout_do_not_spill(nvcc: Nvcc) -> None:
    """Every operation of every integer, by vectors in rows: what is compiled ahead is by runs of memory."""
    sources = []
    for kind in scalars.INTEGERS:
        size = {"int": 4, "int64": 8, "uint8": 1}[kind]
        for name in integers.FUNCTIONS:
            program = program_of([name])
            kinds = ["bool" if is_condition else kind for is_condition in program.conditions]
            layout = Layout(kind, tuple([(one, DENSE) for one in kinds]), False, 16 // size)
            sources.append(expressions.source(program, layout))
    rows = resources.measure(nvcc, sources, 2)
    assert rows
    assert not [str(key) for key, row in rows.items() for usage in row.usage.values() if usage.spills or usage.stack]


def test_what_is_compiled_ahead_has_integers_and_dropout() -> None:
    assert {source.name for source in SOURCES} == {"pointwise", "optimizers", "integers", "dropout", "converted"}


def chained(operation: str, tensors: int, results: int) -> Program:
    """An operation of all tensors, one after the other, whose last results all live to the end."""
    graph = Graph()
    inputs = [graph.input(place) for place in range(tensors)]
    found = [inputs[0]]
    for one in inputs[1:]:
        if len(OPERATIONS[operation].operands) == 2:
            found.append(graph.apply(operation, found[-1], one))
        else:
            found.append(graph.apply("add", graph.apply(operation, found[-1]), graph.apply(operation, one)))
    return Program(graph, found[-results:], inputs)


@pytest.mark.slow
def test_the_largest_programs_do_not_spill(nvcc: Nvcc) -> None:
    """As many tensors and results as move 16 bytes at a time, and as many as a kernel takes at all."""
    sources = [expressions.source(_sum(MOST_OPERANDS - 1), Layout("double", (("double", STRIDED),) * 63, False, 1))]
    for operation, tensors in (("add", 11), ("tanh", 8), ("sin", 7), ("pow", 8), ("floor_divide", 7), ("erf", 8)):
        program = chained(operation, tensors, MOST_VECTORS - tensors)
        for real, width in (("float", 4), ("double", 2)):
            for is_flat in (True, False):
                layout = Layout(real, ((real, DENSE),) * tensors, is_flat, width)
                sources.append(expressions.source(program, layout))
    rows = resources.measure(nvcc, sources, 2)
    assert not [str(key) for key, row in rows.items() for usage in row.usage.values() if usage.spills or usage.stack]


def test_nothing_is_contracted(nvcc: Nvcc, tmp_path: Path) -> None:
    graph = Graph()
    x, y, z = (graph.input(place) for place in range(3))
    program = Program(graph, [graph.apply("add", graph.apply("mul", x, y), z)], [x, y, z])
    for real in ("float", "double"):
        source = expressions.source(
            program, Layout(real, ((real, DENSE),) * 3, True, 16 // (4 if real == "float" else 8))
        )
        text = ptx(nvcc, source, tmp_path)
        assert "fma" not in text and "mul.rn.f" in text and "add.rn.f" in text


def test_results_that_are_bools_are_stored_together(nvcc: Nvcc, tmp_path: Path) -> None:
    program = program_of(["lt"])
    assert OPERATIONS["lt"].result == BOOL
    text = ptx(nvcc, expressions.source(program, Layout("float", (("float", DENSE),) * 2, True, 4)), tmp_path)
    assert "ld.global.v4.f32" in text and re.search(r"st\.global\.(v4\.u8|u32|b32)", text)


def test_plans_are_remembered() -> None:
    program = program_of(["mul"])
    assert planned(program, "test", None, FLAT, FLAT) is planned(program, "test", None, FLAT, FLAT)
    assert pointwise.kernel(program, Layout("float", (("float", DENSE),) * 2, True, 4)) == (
        planned(program, "test", None, FLAT, FLAT).source,
        planned(program, "test", None, FLAT, FLAT).kernel,
    )
