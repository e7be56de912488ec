"""Structs for kernels: fields come from the sources, by name, and lie as C has them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from alpha.cu32 import compiler, products, random, strided, structs
from alpha.cu32.conv import (
    depthwise,
    depthwise_gradient,
    few_channels,
    few_results,
    patches,
    tiles,
    tiles_gradient,
)
from alpha.cu32.structs import KernelStruct
from alpha.errors import EngineError

CONVOLUTIONS = (depthwise, depthwise_gradient, few_channels, few_results, patches, tiles, tiles_gradient)

ALL = [
    value
    for module in (*CONVOLUTIONS, products, random)
    for value in vars(module).values()
    if isinstance(value, KernelStruct)
]
"""Those that kernels are handed, by value."""


@pytest.mark.parametrize("kernel_struct", ALL, ids=repr)
def test_every_struct_is_declared(kernel_struct: KernelStruct) -> None:
    assert len(kernel_struct.fields) == len({field.name for field in kernel_struct.fields})
    assert kernel_struct.layout.size % 8 == 0


@pytest.fixture
def declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelStruct:
    (tmp_path / "inner.cuh").write_text("struct Inner {\n    int64 a, b;  // {not; this}\n};\n")
    (tmp_path / "outer.cu").write_text(
        '#include "inner.cuh"\nstruct Other { int x; };\n'
        "struct Outer {\n    Inner inner;\n    const Other* list;\n    int count;\n    int64 size[2], last;\n};\n"
    )
    monkeypatch.setattr(structs, "KERNELS", tmp_path)
    return KernelStruct("outer.cu", "Outer")


def test_fields_lie_as_in_c(declared: KernelStruct) -> None:
    packed = declared.pack(last=7, size=(5, 6), count=4, list=3, inner=struct.pack("2q", 1, 2))
    assert packed == struct.pack("3qi4x3q", 1, 2, 3, 4, 5, 6, 7)


def test_arrays_of_structs_and_types_that_macros_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a short array is 0, and a struct is filled up to what it is aligned to."""
    (tmp_path / "loop.cu").write_text(
        "typedef REAL T;\nconstexpr int MOST = 3;\nstruct Axis { int n; T step; };\n"
        "struct alignas(8) Loop {\n    int count;\n    Axis axis[MOST];\n    uint64 seed;\n    uint32 tail;\n};\n"
    )
    monkeypatch.setattr(structs, "KERNELS", tmp_path)
    loop, axis = (KernelStruct("loop.cu", name, REAL="double") for name in ("Loop", "Axis"))
    first = axis.pack(n=5, step=0.5)
    assert first == struct.pack("i4xd", 5, 0.5)
    whole = struct.pack("i4x16s32xQI4x", 2, first, 1 << 63, 7)
    assert loop.pack(count=2, axis=[first], seed=1 << 63, tail=7) == whole
    with pytest.raises(EngineError, match="expected axis of 3, got 4"):
        loop.pack(count=2, axis=[first] * 4, seed=1 << 63, tail=7)
    assert KernelStruct("loop.cu", "Axis", REAL="float").pack(n=5, step=0.5) == struct.pack("if", 5, 0.5)


def test_the_hosts_limits_are_the_structs() -> None:
    lengths = {field.name: field.length for field in strided.LOOP.fields}
    assert lengths["axis"] == strided.MAX_AXES


@pytest.mark.parametrize("change", [{"width": 1}, {"last": None}])
def test_every_field_is_given_and_no_other(declared: KernelStruct, change: dict[str, int | None]) -> None:
    values = {"last": 7, "size": (5, 6), "count": 4, "list": 3, "inner": bytes(16), **change}
    given = {name: value for name, value in values.items() if value is not None}
    with pytest.raises(EngineError, match="expected the fields"):
        declared.pack(**given)


def test_a_struct_that_is_not_there() -> None:
    assert (compiler.KERNELS / "tile.cuh").is_file()
    with pytest.raises(EngineError, match="expected a struct of that name"):
        _ = KernelStruct("tile.cuh", "Nothing").fields
