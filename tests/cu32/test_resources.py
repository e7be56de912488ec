"""What every kernel needs of a multiprocessor, by the real compiler: no spills, few registers, the table's numbers."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from alpha.cu32 import references, resources
from alpha.cu32.base import DeviceEngine
from alpha.cu32.build import sources
from alpha.cu32.compiler import KERNELS, Nvcc, Source
from alpha.cu32.resources import Row, Usage
from alpha.errors import EngineError
from tests.cuda_on_cpu.checked import CASES

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'mul' for 'sm_90'
ptxas info    : Function properties for mul
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 26 registers, used 0 barriers
ptxas info    : Compile time = 17.901 ms
ptxas info    : Compiling entry function 'add' for 'sm_90'
ptxas info    : Function properties for add
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem, 368 bytes cmem[0]
"""
KEY = ("a.cu (REAL=float)", "add")


def both(one: Usage) -> dict[str, Usage]:
    return dict.fromkeys(resources.ARCHITECTURES, one)


@pytest.fixture
def nvcc() -> Nvcc:
    """The real compiler; the test is skipped where there is none."""
    try:
        return resources.find_nvcc()
    except EngineError as error:
        pytest.skip(str(error))


def test_the_assemblers_report_is_read() -> None:
    assert resources.parse(REPORT, {"add": 36}) == {"mul": Usage(26, 0, 0, 0), "add": Usage(24, 1024, 16, 20, 36)}


def test_a_table_reads_back_as_written(tmp_path: Path) -> None:
    rows = {
        KEY: Row(both(Usage(140, 4096, 8, 0)), "two tiles per thread", "5ea1"),
        ("b.cu", "f"): Row(both(Usage(8, 0, 0, 0))),
    }
    file = tmp_path / "table.md"
    file.write_text(resources.table_text(rows))
    assert resources.read_table(file) == rows
    assert resources.read_table(tmp_path / "absent.md") == {}


def test_spills_and_unexplained_registers_are_named() -> None:
    rows = {KEY: Row(both(Usage(129, 0, 0, 4)))}
    assert resources.broken_bounds(rows, {}) == [
        "add of a.cu (REAL=float) spills 4 bytes on sm_80",
        "add of a.cu (REAL=float) takes 129 registers on sm_80: the table must say why",
        "add of a.cu (REAL=float) spills 4 bytes on sm_90",
        "add of a.cu (REAL=float) takes 129 registers on sm_90: the table must say why",
    ]
    explained = {KEY: Row(both(Usage(129, 0, 0, 0)), "because")}
    assert resources.broken_bounds(explained, explained) == []
    assert resources.broken_bounds({KEY: Row(both(Usage(128, 0, 0, 0)))}, {}) == []


def test_what_differs_from_the_table_is_named() -> None:
    now, held = Row(both(Usage(32, 0, 0, 0))), Row(both(Usage(32, 0, 0, 0)))
    assert resources.differences({KEY: now}, {KEY: held}) == []
    assert resources.differences({KEY: now}, {}) == ["add of a.cu (REAL=float) is not in the table"]
    assert resources.differences({}, {KEY: held}) == ["add of a.cu (REAL=float) is no longer there"]
    now.usage["sm_90"] = Usage(33, 0, 0, 0)
    assert resources.differences({KEY: now}, {KEY: held}) == [
        "add of a.cu (REAL=float): sm_90: 32 0 0 0 0 in the table, 33 0 0 0 0 now"
    ]
    assert resources.differences({KEY: held}, {KEY: Row(held.usage, seal="5ea1")}) == ["seals that do not hold: 1"]


def test_every_kernel_file_has_a_variant() -> None:
    written = {"pointwise", "integers", "dropout", "converted", "optimizers"}
    assert {source.name for source in sources()} == {path.stem for path in KERNELS.glob("*.cu")} | written


def test_a_kernel_that_spills_is_seen(nvcc: Nvcc, tmp_path: Path) -> None:
    # 32 registers per thread for 64 values that must all live across the barrier.
    text = """
        extern "C" __global__ void __launch_bounds__(1024, 2) spill(float* a) {
            float values[64];
            #pragma unroll
            for (int i = 0; i < 64; ++i) values[i] = a[threadIdx.x * 64 + i];
            __syncthreads();
            #pragma unroll
            for (int i = 0; i < 64; ++i) a[threadIdx.x + i * 1024] = values[i] * values[63 - i];
        }"""
    rows = resources.measure(nvcc, [Source("user", text=text)], 1)
    problems = resources.broken_bounds(rows, {})
    assert [problem.partition(" of ")[0] for problem in problems] == ["spill", "spill"]
    assert all("bytes on sm_" in problem for problem in problems)


def test_only_what_no_seal_is_of_is_compiled(nvcc: Nvcc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seal holds for one source, one compiler, and the numbers and kernels that these gave."""
    pair = (
        'extern "C" __global__ void {}(float* a) {{ a[threadIdx.x] *= 2; }} '
        'extern "C" __global__ void {}(float* a) {{ a[threadIdx.x] += 1; }}'
    )
    first, second = (Source("user", text=pair.format(*names)) for names in (("twice", "next"), ("double_", "more")))
    compiled: list[Source] = []
    again: list[Source] = []
    tables: list[dict[tuple[str, str], Row]] = [{}]
    usage = resources.usage

    def noted(nvcc: Nvcc, source: Source, architecture: str, anew: bool) -> dict[str, Usage]:
        compiled.append(source)
        assert anew == (source in again)
        return usage(nvcc, source, architecture, anew)

    def compiles(variants: list[Source], *anew: Source) -> set[Source]:
        monkeypatch.setattr(resources, "sources", lambda: variants)
        compiled.clear()
        again[:] = anew
        rows, _ = resources.check(nvcc, 1, anew)
        assert {name for _, name in rows} >= {"twice", "next"}
        return set(compiled)

    monkeypatch.setattr(resources, "usage", noted)
    monkeypatch.setattr(resources, "read_table", lambda: tables[-1])
    assert compiles([first]) == {first}
    table = resources.measure(nvcc, [first], 1)
    tables.append(table)
    assert compiles([first]) == set()
    assert compiles([first], first) == {first}
    assert compiles([first, second]) == {second}
    other = Source("user", text=f"{first.text}\n")
    assert compiles([other]) == {other}
    variant = str(first)
    changed = Row(both(Usage(99, 0, 0, 0)), seal=table[variant, "next"].seal)
    tables.append({**table, (variant, "next"): changed})
    assert compiles([first]) == {first}
    tables.append({key: row for key, row in table.items() if key[1] == "twice"})
    assert compiles([first]) == {first}


@pytest.mark.slow
def test_no_kernel_spills_and_all_are_as_the_table_says(nvcc: Nvcc) -> None:
    """One variant of each file is compiled whatever is known of it: how its numbers are read may have changed."""
    again = {source.name: source for source in sources()}.values()
    _, problems = resources.check(nvcc, os.cpu_count() or 1, again)
    assert not problems, "\n".join([*problems, "python -m alpha.cu32.resources --update writes the table anew"])


def test_launches_give_as_many_bytes_as_kernels_take(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel is launched, and the table has its parameters' bytes from the real compiler, for all variants."""
    given: dict[tuple[str, str, str], set[int]] = {}
    launch = DeviceEngine.launch_packed

    def note(
        self: DeviceEngine, source: Source, kernel: str, blocks: Any, threads: Any, packed: bytes, shared: int = 0
    ) -> None:
        given.setdefault((source.name, kernel, dict(source.defines).get("REAL", "")), set()).add(len(packed))
        launch(self, source, kernel, blocks, threads, packed, shared)

    monkeypatch.setattr(DeviceEngine, "launch_packed", note)
    for function, _ in CASES.values():
        function(cu32)
    for family in references.FAMILIES:
        references.error(cu32.device, family)
    taken: dict[tuple[str, str, str], set[int]] = {}
    for (variant, kernel), row in resources.read_table().items():
        real = re.search(r"REAL=(\w+)", variant)
        place = variant.partition(".cu")[0], kernel, real[1] if real else ""
        taken.setdefault(place, set()).update(usage.parameters for usage in row.usage.values())
    assert all(0 not in sizes for sizes in taken.values())
    files = {place[0] for place in given}
    wrong, checked = [], set()
    for place in taken.keys() & given.keys():
        checked.add(place[0])
        # A struct at the end is filled up to its alignment.
        if {-(-size // 8) * 8 for size in taken[place]} != {-(-size // 8) * 8 for size in given[place]}:
            wrong.append((place, taken[place], given[place]))
    assert not wrong and checked >= files - {"optimizers", "user"}
