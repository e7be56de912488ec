"""The census of main loops: disassemblies are read right, and the kernels are as the table has them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from alpha.cu32 import census
from alpha.cu32.census import Loop
from alpha.cu32.compiler import Nvcc, Source
from alpha.cu32.resources import find_nvcc
from alpha.errors import EngineError

LISTING = """\
	.section	.text.first,"ax",@progbits
.text.first:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDS.128 R4, [R2] ;
        /*0020*/                   FFMA R8, R4.reuse, R6, R8 ;
        /*0030*/                   FFMA R10, R4, R6, R10 ;
        /*0040*/                   FFMA R12, R5, R7, R12 ;
        /*0050*/                   FFMA R14, R4, R6.reuse, R14 ;
.L_x_2:
        /*0060*/                   FFMA R16, R4, R6, R16 ;
        /*0070*/                   FFMA R17, R4, R6, R17 ;
        /*0080*/                   FFMA R18, R4, R6, R18 ;
        /*0090*/                   FFMA R19, R4, R6, R19 ;
        /*00a0*/              @!P1 BRA `(.L_x_2) ;
        /*00b0*/                   F2FP.BF16.F32.PACK_AB R20, R21, R22 ;
        /*00c0*/               @P0 BRA `(.L_x_1) ;
        /*00d0*/                   BRA `(.L_x_3) ;
.L_x_3:
        /*00e0*/                   EXIT ;
	.section	.text.second,"ax",@progbits
.text.second:
        /*0000*/                   EXIT ;
"""
KEY = ("conv.cu (REAL=float)", "conv")


@pytest.fixture
def nvcc() -> Nvcc:
    """The real compiler, beside a disassembler; the test is skipped where one is missing."""
    try:
        census.disassembler()
        return find_nvcc()
    except EngineError as error:
        pytest.skip(str(error))


def test_the_main_loop_is_the_one_with_most_products() -> None:
    """Eight of the thirteen instructions from the outer label to its branch; the inner loop has four of five."""
    assert census.main_loops(LISTING) == {"first": Loop("FFMA", 8, 12, 1, 3)}


def test_registers_of_one_bank_conflict_unless_one_is_kept() -> None:
    """R4, R6 and R8 are even; the second FFMA has R4 from the first, and R5, R7, R12 are of both banks."""
    body = [
        census.Instruction("FFMA", operands)
        for operands in (
            "R8, R4.reuse, R6, R8",
            "R10, R4, R6, R10",
            "R12, R5, R7, R12",
            "R2, R4, R4, R6",
            "R2, R4, 2, R6",
        )
    ]
    assert [census._conflicts(body[:count]) for count in range(1, 6)] == [1, 1, 1, 1, 1]
    assert census._conflicts([body[0], census.Instruction("LDS", "R1, [R2]"), body[1]]) == 2


def test_a_table_reads_back_as_written(tmp_path: Path) -> None:
    loops = {KEY: Loop("FFMA", 1024, 1170, 0, 75, "5ea1"), ("gemm_tf32.cu", "gemm"): Loop("HMMA", 64, 300, 128, 0)}
    file = tmp_path / "table.md"
    file.write_text(census.table_text(loops))
    assert census.read_table(file) == loops and census.read_table(file)[KEY].seal == "5ea1"
    assert "| 87.5% |" in file.read_text()
    assert census.read_table(tmp_path / "absent.md") == {}


def test_what_differs_from_the_table_is_named() -> None:
    now, held = Loop("FFMA", 512, 600, 0, 0), Loop("FFMA", 512, 640, 0, 0)
    assert census.differences({KEY: now}, {KEY: now}) == []
    assert census.differences({KEY: now}, {KEY: held}) == [
        "conv of conv.cu (REAL=float): FFMA 512 of 640 (80.0%) in the table, FFMA 512 of 600 (85.3%) now"
    ]
    assert census.differences({}, {KEY: held})[0].endswith("in the table, nothing now")
    assert census.differences({KEY: now}, {KEY: replace(now, seal="5ea1")}) == ["seals that do not hold: 1"]


def test_a_kernel_is_compiled_and_disassembled(nvcc: Nvcc) -> None:
    text = """
        extern "C" __global__ void dots(const float* a, const float* b, float* out, int n) {
            float sums[16] = {};
            for (int k = 0; k < n; ++k)
                #pragma unroll
                for (int i = 0; i < 16; ++i) sums[i] += a[k * 16 + i] * b[k];
            #pragma unroll
            for (int i = 0; i < 16; ++i) out[threadIdx.x * 16 + i] = sums[i];
        }"""
    loop = census.loops_of(nvcc, Source("user", text=text))["dots"]
    assert loop.kind == "FFMA" and loop.products % 16 == 0 and loop.products < loop.instructions


@pytest.mark.slow
def test_main_loops_are_as_the_table_says(nvcc: Nvcc) -> None:
    """One variant of each file is compiled whatever is known of it: how its numbers are read may have changed."""
    if not census.made_the_table(nvcc):
        pytest.skip(f"the table is of nvcc {census.PINNED} and nvdisasm {census.PINNED_DISASSEMBLER}")
    again = {source.name: source for source in census.variants()}.values()
    _, problems = census.check(nvcc, os.cpu_count() or 1, again)
    assert not problems, "\n".join([*problems, "python -m alpha.cu32.census --update writes the table anew"])
