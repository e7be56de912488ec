"""``python -m alpha.cu32.census``: what the compiler made of the kernels' main loops, held to a table. It needs no GPU.

The share of a loop's instructions that multiply and add says how near a kernel can come to the device's peak: each
instruction takes a slot of a scheduler. The table, ``kernels/LOOPS.md``, is of one compiler and one disassembler.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from tqdm import tqdm

from alpha import cache as disk
from alpha.cu32.build import sources
from alpha.cu32.compiler import KERNELS, KIND, Nvcc, Source, content_key, toolkits
from alpha.cu32.resources import PINNED, Key, find_nvcc, is_pinned, known_rows, origin_of, sealed
from alpha.errors import AlphaError, EngineError

TABLE = KERNELS / "LOOPS.md"
ARCHITECTURE = "sm_90"
PINNED_DISASSEMBLER = "13.2.86"
"""The disassembler's version with which the table was made."""

FILES = (
    "conv", "conv_patch_tf32", "conv_tf32", "conv_threefold", "conv_weight", "conv_weight_tf32",
    "conv_weight_threefold", "conv_window_tf32", "conv_window_threefold", "depthwise", "depthwise_weight",
    "few_results", "few_weight", "gemm", "gemm_tf32", "gemm_threefold",
)  # fmt: skip
"""Kernel files whose time is in a loop of products."""

PRODUCTS = ("FFMA", "DFMA", "HMMA", "DMMA")
CONVERSION = "F2FP"
_LEAST_PRODUCTS = 8
"""Products of a loop that counts as a main loop."""


@dataclass(frozen=True)
class Instruction:
    """One of a kernel's instructions: its name up to the first point, and its operands."""

    name: str
    operands: str


@dataclass(frozen=True)
class Loop:
    """What a kernel's main loop is made of.

    Attributes:
        kind: the instruction that multiplies and adds.
        products: how many of them there are.
        instructions: how many there are in all.
        conversions: how many round operands to TF32.
        conflicts: products that read three registers of one bank at once, which takes a cycle more.
        seal: as that of ``resources.Row``.
    """

    kind: str
    products: int
    instructions: int
    conversions: int
    conflicts: int
    seal: str = field(default="", compare=False)

    @property
    def counts(self) -> tuple[str | int, ...]:
        """All but the seal."""
        return self.kind, self.products, self.instructions, self.conversions, self.conflicts

    @property
    def share(self) -> float:
        """Products per instruction."""
        return self.products / self.instructions

    def __str__(self) -> str:
        return f"{self.kind} {self.products} of {self.instructions} ({self.share:.1%})"


# -- what the disassembler says --------------------------------------------------------------------------------------

_SECTION = re.compile(r"\s*\.section\s+\.text\.(\w+)")
_LABEL = re.compile(r"\s*(\.L\w*):")
_INSTRUCTION = re.compile(
    r"\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?(?P<name>[A-Z]\w*)(?:\.\w+)*\s*(?P<operands>[^;]*);"
)
_BRANCH = re.compile(r"`\((\.L\w*)\)")


def main_loops(text: str) -> dict[str, Loop]:
    """The main loop of each kernel in a disassembly, of those that have one."""
    found = {}
    for kernel, (instructions, labels) in _kernels(text).items():
        loops = [
            instructions[labels[match[1]] : place + 1]
            for place, one in enumerate(instructions)
            if one.name == "BRA" and (match := _BRANCH.search(one.operands)) and labels.get(match[1], 1 << 62) <= place
        ]
        loop = max(loops, key=lambda body: (_products(body)[1], -len(body)), default=None)
        if loop is not None and _products(loop)[1] >= _LEAST_PRODUCTS:
            found[kernel] = _census(loop)
    return found


def _kernels(text: str) -> dict[str, tuple[list[Instruction], dict[str, int]]]:
    """For each kernel its instructions, and its labels with the place of what follows them."""
    found: dict[str, tuple[list[Instruction], dict[str, int]]] = {}
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if section := _SECTION.match(line):
            instructions, labels = found.setdefault(section[1], ([], {}))
        elif label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif match := _INSTRUCTION.match(line):
            instructions.append(Instruction(match["name"], match["operands"]))
    return found


def _products(body: list[Instruction]) -> tuple[str, int]:
    """The most frequent kind of product in a loop, and how many there are."""
    counts = Counter(one.name for one in body)
    kind = max(PRODUCTS, key=lambda name: counts[name])
    return kind, counts[kind]


def _census(body: list[Instruction]) -> Loop:
    kind, count = _products(body)
    conversions = sum(one.name == CONVERSION for one in body)
    return Loop(kind, count, len(body), conversions, _conflicts(body) if kind == "FFMA" else 0)


def _conflicts(body: list[Instruction]) -> int:
    """FFMAs that fetch three registers of one bank, of which there are two: the even ones and the odd ones.

    What an FFMA marks as ``.reuse`` the next one has without fetching it.
    """
    conflicts, kept = 0, dict[int, int]()
    for one in body:
        if one.name != "FFMA":
            kept = {}
            continue
        fetched, next_kept = [], dict[int, int]()
        for place, operand in enumerate(one.operands.split(",")[1:4]):
            register = re.match(r"\s*-?\|?R(\d+)", operand)
            if register is None:
                continue
            number = int(register[1])
            if kept.get(place) != number:
                fetched.append(number)
            if ".reuse" in operand:
                next_kept[place] = number
        conflicts += len(set(fetched)) > 2 and len({number % 2 for number in fetched}) == 1
        kept = next_kept
    return conflicts


@cache
def disassembler() -> str:
    """The command; EngineError where there is none."""
    for root in toolkits():
        found = shutil.which(str(root / "bin" / "nvdisasm"))
        if found:
            return found
    raise EngineError(
        "[cu32] expected nvdisasm, got none: install the CUDA toolkit, or from PyPI nvidia-cuda-nvdisasm of version "
        f"{PINNED_DISASSEMBLER}"
    )


@cache
def version() -> str:
    """The disassembler's."""
    return _run(disassembler(), "--version").strip()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise EngineError(f"[cu32] expected {command[0]} to succeed, got: {done.stdout}{done.stderr}")
    return done.stdout


def loops_of(nvcc: Nvcc, source: Source, anew: bool = False) -> dict[str, Loop]:
    """The main loops of a source's kernels, from disk where they were looked for before, unless ``anew``."""
    file = f"{content_key(source, ARCHITECTURE, nvcc.version + version())}.loops"
    kept = None if anew else disk.load(KIND, file)
    if kept is not None:
        return {name: Loop(*numbers) for name, numbers in json.loads(kept).items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(nvcc.compile(source, ARCHITECTURE))
        found = main_loops(_run(disassembler(), "-c", str(path)))
    disk.keep(KIND, file, json.dumps({name: one.counts for name, one in found.items()}).encode())
    return found


def measure(nvcc: Nvcc, variants: Iterable[Source], jobs: int, anew: bool = False) -> dict[Key, Loop]:
    """The main loops of variants, in the table's order; ``anew`` as ``resources.measure`` has it."""
    work = list(variants)
    with ThreadPoolExecutor(jobs) as threads, tqdm(total=len(work), unit="file", disable=None) as bar:
        found = {}
        for source, loops in zip(work, threads.map(lambda one: loops_of(nvcc, one, anew), work), strict=True):
            origin = _origin(nvcc, source)
            for name, loop in loops.items():
                found[str(source), name] = replace(loop, seal=_seal(origin, len(loops), name, loop))
            bar.update()
    return dict(sorted(found.items()))


def check(nvcc: Nvcc, jobs: int, again: Iterable[Source] = ()) -> tuple[dict[Key, Loop], list[str]]:
    """The main loops as they are now, and what is not as the table has it; ``again`` as ``resources.check`` has it."""
    table = read_table()
    known, others = known_rows(table, {source: _origin(nvcc, source) for source in variants()}, _seal)
    found = dict(sorted({**known, **measure(nvcc, others, jobs), **measure(nvcc, again, jobs, True)}.items()))
    return found, differences(found, table)


def _origin(nvcc: Nvcc, source: Source) -> str:
    return origin_of(content_key(source, ARCHITECTURE, nvcc.version + version()))


def _seal(origin: str, loops: int, kernel: str, loop: Loop) -> str:
    return sealed(origin, loops, kernel, *map(str, loop.counts))


# -- the table -------------------------------------------------------------------------------------------------------

_HEAD = f"""# What the main loops are made of

Written by `python -m alpha.cu32.census --update` with nvcc {PINNED} and nvdisasm {PINNED_DISASSEMBLER} for
{ARCHITECTURE}; `tests/cu32/test_census.py` holds the kernels to it. Each instruction takes a slot of a scheduler, so
the share of products bounds a kernel's part of the device's peak. Conflicts are products that read three registers of
one bank at once and take a cycle more; conversions round operands to TF32. Half of the products of the threefold
kernels are on a branch that is taken where a number is infinite or none, with more than half of the instructions.
Kernels that normalise (NORMALISED=1) have the instructions of ReLU and those of other slopes, and run one of both.
Seals are as those of RESOURCES.md.

"""
_COLUMNS = ("variant", "kernel", "product", "products", "instructions", "share", "conversions", "conflicts", "seal")


def table_text(loops: Mapping[Key, Loop]) -> str:
    """The table's file."""
    lines = [list(_COLUMNS), ["---"] * len(_COLUMNS)]
    for (variant, kernel), loop in loops.items():
        numbers = (loop.products, loop.instructions, f"{loop.share:.1%}", loop.conversions, loop.conflicts)
        lines.append([variant, kernel, loop.kind, *map(str, numbers), loop.seal])
    return _HEAD + "".join("| " + " | ".join(line) + " |\n" for line in lines)


def read_table(path: Path = TABLE) -> dict[Key, Loop]:
    """The rows of a table's file; none where it is not there."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(_COLUMNS) and cells[0] not in ("variant", "---"):
            variant, kernel, kind, products, instructions, _, conversions, conflicts, seal = cells
            counts = int(products), int(instructions), int(conversions), int(conflicts)
            rows[variant, kernel] = Loop(kind, *counts, seal=seal)
    return rows


def differences(loops: Mapping[Key, Loop], table: Mapping[Key, Loop]) -> list[str]:
    """A line for each main loop that is not the table's."""
    lines = [
        f"{kernel} of {variant}: {table.get((variant, kernel), 'nothing')} in the table, "
        f"{loops.get((variant, kernel), 'nothing')} now"
        for variant, kernel in sorted({*loops, *table})
        if loops.get((variant, kernel)) != table.get((variant, kernel))
    ]
    old = sum(key in table and loop.seal != table[key].seal for key, loop in loops.items())
    return [*lines, f"seals that do not hold: {old}"] if old else lines


def made_the_table(nvcc: Nvcc) -> bool:
    """Whether the table is of this compiler and this disassembler."""
    return is_pinned(nvcc) and f"V{PINNED_DISASSEMBLER}" in version()


def variants() -> list[Source]:
    """The sources whose loops the table has."""
    return [source for source in sources() if source.name in FILES]


# -- the command -----------------------------------------------------------------------------------------------------


def main() -> int:
    """The command; exit status 1 where a loop is not as the table has it."""
    parser = argparse.ArgumentParser(prog="python -m alpha.cu32.census", description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the table anew")
    parser.add_argument("--again", action="store_true", help="compile what is known, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="files compiled at a time (%(default)s)")
    options = parser.parse_args()
    try:
        nvcc = find_nvcc()
        if not made_the_table(nvcc):
            raise EngineError(
                f"[cu32] expected nvcc {PINNED} and nvdisasm {PINNED_DISASSEMBLER}, got "
                f"{nvcc.version.splitlines()[-1]} and {version().splitlines()[-1]}"
            )
        loops, problems = check(nvcc, max(1, options.jobs), variants() if options.again else ())
        if options.update:
            TABLE.write_text(table_text(loops), encoding="utf-8")
            problems = []
    except AlphaError as error:
        print(error, file=sys.stderr)
        return 1
    if not options.update:
        print(table_text(loops))
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
