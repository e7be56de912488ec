"""Structs for kernels: fields come from the sources, by name, and lie as C has them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from alpha.cu32 import compiler, convolution, depthwise, few_channels, patches, products, structs
from alpha.cu32.structs import KernelStruct
from alpha.errors import EngineError

ALL = [
    value
    for module in (convolution, depthwise, few_channels, patches, products)
    for value in vars(module).values()
    if isinstance(value, KernelStruct)
]


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
