"""``python -m alpha.cu32.resources``: registers, shared memory, stack and spills of every kernel, held to a table.

The real nvcc compiles every variant and its assembler tells what each kernel needs; no GPU is asked for. The table,
``kernels/RESOURCES.md``, is of one compiler version: with that one every number must agree, with another only the
bounds hold (nothing spills; more than 128 registers only where the table says why).

What a compiler makes of a source does not change, so each row has a seal: a digest of the source, of its headers and of
the compiler, and of the numbers. Where it holds, the source is not compiled again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from tqdm import tqdm

from alpha import cache as disk
from alpha.cu32.build import sources
from alpha.cu32.compiler import KERNELS, KIND, Nvcc, Source, content_key, nvccs
from alpha.cu32.cubins import parameter_bytes
from alpha.errors import AlphaError, EngineError

TABLE = KERNELS / "RESOURCES.md"
ARCHITECTURES = ("sm_80", "sm_90")
PINNED = "13.0.88"
"""The compiler whose numbers the table holds."""
MOST_REGISTERS = 128
"""Registers per thread that leave room for two blocks of 256 threads on a multiprocessor."""


@dataclass(frozen=True)
class Usage:
    """What one kernel needs on one architecture: registers per thread, bytes of static shared memory, of stack, of
    spills (stores and loads), and of its parameters."""

    registers: int
    shared: int
    stack: int
    spills: int
    parameters: int = 0

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))


@dataclass
class Row:
    """A kernel of a variant: its needs by architecture, the reason where it takes many registers, and its seal."""

    usage: dict[str, Usage]
    why: str = ""
    seal: str = ""


Key = tuple[str, str]
"""(variant, kernel), as ``("losses.cu (REAL=float)", "cross_entropy")``."""


# -- what the compiler says ------------------------------------------------------------------------------------------

_KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def parse(messages: str, parameters: Mapping[str, int]) -> dict[str, Usage]:
    """Usage by kernel from what ptxas prints with ``-v``, and the bytes of kernels' parameters."""
    found = {}
    for match in _KERNEL.finditer(messages):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        spills = int(match["stores"]) + int(match["loads"])
        found[match["name"]] = Usage(
            int(match["registers"]),
            int(shared[1]) if shared else 0,
            int(match["stack"]),
            spills,
            parameters.get(match["name"], 0),
        )
    return found


def find_nvcc() -> Nvcc:
    """The pinned nvcc where there is one, else any; EngineError where there is none that could work."""
    if shutil.which("g++") is None and shutil.which("cl") is None:
        raise EngineError("[cu32] expected a C++ compiler for nvcc to preprocess with, got none: install g++")
    found = [Nvcc(command) for command in dict.fromkeys(nvccs())]
    if not found:
        raise EngineError(
            "[cu32] expected nvcc, got none: install the CUDA toolkit, or from PyPI nvidia-cuda-nvcc, nvidia-cuda-crt "
            f"and nvidia-nvvm of version {PINNED} with nvidia-cuda-runtime 13.0.96"
        )
    return next((one for one in found if is_pinned(one)), found[0])


def is_pinned(nvcc: Nvcc) -> bool:
    """Whether the table's numbers are this compiler's."""
    return f"V{PINNED}" in nvcc.version


def usage(nvcc: Nvcc, source: Source, architecture: str, anew: bool = False) -> dict[str, Usage]:
    """Usage by kernel of one source, from disk where this version of it was compiled before, unless ``anew``."""
    file = f"{content_key(source, architecture, nvcc.version)}.needs"
    kept = None if anew else disk.load(KIND, file)
    if kept is not None:
        return {name: Usage(*numbers) for name, numbers in json.loads(kept).items()}
    image, messages = nvcc.run(source, architecture, "-Xptxas", "-v")
    found = parse(messages, parameter_bytes(image))
    if not found:
        raise EngineError(f"[cu32] expected kernels in {source}, got none for {architecture}")
    disk.keep(KIND, file, json.dumps({name: astuple(one) for name, one in found.items()}).encode())
    return found


def measure(nvcc: Nvcc, variants: Iterable[Source], jobs: int, anew: bool = False) -> dict[Key, Row]:
    """Compiles what this machine has not compiled before, or all of it ``anew``; the rows in the table's order."""
    rows: dict[Key, Row] = {}

    def needs(source: Source) -> tuple[Source, list[dict[str, Usage]]]:
        return source, [usage(nvcc, source, architecture, anew) for architecture in ARCHITECTURES]

    work = list(variants)
    with ThreadPoolExecutor(jobs) as threads, tqdm(total=len(work), unit="file", disable=None) as bar:
        for source, found in threads.map(needs, work):
            origin = _origin(nvcc, source)
            for name in found[0]:
                row = Row({architecture: one[name] for architecture, one in zip(ARCHITECTURES, found, strict=True)})
                row.seal = _seal(origin, len(found[0]), name, row)
                rows[str(source), name] = row
            bar.update()
    return dict(sorted(rows.items()))


# -- what need not be compiled again -----------------------------------------------------------------------------------

_ORIGIN = 12


def origin_of(*keys: str) -> str:
    """A digest of all that decides what becomes of a source: see ``content_key``."""
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:_ORIGIN]


def sealed(origin: str, kernels: int, *row: str) -> str:
    """The seal of a row, of a source with so many kernels: its origin, and a digest of the origin and the row."""
    return origin + hashlib.sha256(json.dumps([origin, kernels, *row]).encode()).hexdigest()[:8]


def _origin(nvcc: Nvcc, source: Source) -> str:
    return origin_of(*[content_key(source, architecture, nvcc.version) for architecture in ARCHITECTURES])


def _seal(origin: str, kernels: int, kernel: str, row: Row) -> str:
    return sealed(origin, kernels, kernel, *map(str, row.usage.values()))


class Sealed(Protocol):
    """A row of a table."""

    @property
    def seal(self) -> str:
        """As ``sealed`` gives it."""


SealedT = TypeVar("SealedT", bound=Sealed)


def known_rows(
    table: Mapping[Key, SealedT], origins: Mapping[Source, str], seal: Callable[[str, int, str, SealedT], str]
) -> tuple[dict[Key, SealedT], list[Source]]:
    """The rows whose seals hold, and the sources, by their origins, of which there are none.

    ``seal``: that of a row, from its source's origin and number of rows, and the kernel's name.
    """
    by_origin: dict[str, dict[Key, SealedT]] = {}
    for key, row in table.items():
        by_origin.setdefault(row.seal[:_ORIGIN], {})[key] = row
    known: dict[Key, SealedT] = {}
    others = []
    for source, origin in origins.items():
        rows = by_origin.get(origin, {})
        holds = [
            key[0] == str(source) and row.seal == seal(origin, len(rows), key[1], row) for key, row in rows.items()
        ]
        if holds and all(holds):
            known |= rows
        else:
            others.append(source)
    return known, others


# -- the table -------------------------------------------------------------------------------------------------------

_HEAD = f"""# What each kernel needs

Written by `python -m alpha.cu32.resources --update` with nvcc {PINNED}; `tests/cu32/test_resources.py` holds the
kernels to it. Per architecture five numbers: registers per thread, bytes of static shared memory per block, bytes of
stack and bytes of spills per thread, bytes of the kernel's parameters. No kernel spills; the column "why", written by
hand and kept by `--update`, says why one takes more than {MOST_REGISTERS} registers. The seal is a digest of the
source, the compiler and the numbers: where it holds, the numbers need not be found again.

"""


def table_text(rows: Mapping[Key, Row]) -> str:
    """The table's file."""
    lines = [["variant", "kernel", *ARCHITECTURES, "why", "seal"], ["---"] * (len(ARCHITECTURES) + 4)]
    for (variant, kernel), row in rows.items():
        numbers = [str(row.usage[architecture]) for architecture in ARCHITECTURES]
        lines.append([variant, kernel, *numbers, row.why, row.seal])
    return _HEAD + "".join("| " + " | ".join(line).rstrip() + " |\n" for line in lines)


def read_table(path: Path = TABLE) -> dict[Key, Row]:
    """The rows of a table's file; none where it is not there."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != len(ARCHITECTURES) + 4 or cells[0] in ("variant", "---"):
            continue
        variant, kernel, *numbers, why, seal = cells
        usages = {
            architecture: Usage(*map(int, cell.split()))
            for architecture, cell in zip(ARCHITECTURES, numbers, strict=True)
        }
        rows[variant, kernel] = Row(usages, why, seal)
    return rows


def broken_bounds(rows: Mapping[Key, Row], reasons: Mapping[Key, Row]) -> list[str]:
    """What no compiler's numbers may do: a line for each spill, and for each kernel of many registers and no reason."""
    problems = []
    for key, row in rows.items():
        known = reasons.get(key)
        for architecture, one in row.usage.items():
            if one.spills:
                problems.append(f"{key[1]} of {key[0]} spills {one.spills} bytes on {architecture}")
            if one.registers > MOST_REGISTERS and not (known and known.why):
                problems.append(
                    f"{key[1]} of {key[0]} takes {one.registers} registers on {architecture}: the table must say why"
                )
    return problems


def differences(rows: Mapping[Key, Row], table: Mapping[Key, Row]) -> list[str]:
    """A line for each kernel whose numbers are not the table's."""
    lines = []
    for key in sorted({*rows, *table}):
        now, held = rows.get(key), table.get(key)
        if now is None or held is None:
            lines.append(f"{key[1]} of {key[0]} is {'not in the table' if held is None else 'no longer there'}")
        elif now.usage != held.usage:
            changes = ", ".join(
                f"{architecture}: {held.usage[architecture]} in the table, {now.usage[architecture]} now"
                for architecture in ARCHITECTURES
                if now.usage[architecture] != held.usage[architecture]
            )
            lines.append(f"{key[1]} of {key[0]}: {changes}")
    old = sum(key in table and row.seal != table[key].seal for key, row in rows.items())
    return [*lines, f"seals that do not hold: {old}"] if old else lines


# -- the command -----------------------------------------------------------------------------------------------------


def check(nvcc: Nvcc, jobs: int, again: Iterable[Source] = ()) -> tuple[dict[Key, Row], list[str]]:
    """The rows as they are now, reasons filled in from the table, and what is wrong with them.

    ``again``: sources that are compiled whatever is known of them.
    """
    table = read_table()
    known, others = known_rows(table, {source: _origin(nvcc, source) for source in sources()}, _seal)
    rows = dict(sorted({**known, **measure(nvcc, others, jobs), **measure(nvcc, again, jobs, True)}.items()))
    for key, row in rows.items():
        row.why = table[key].why if key in table else ""
    problems = broken_bounds(rows, table)
    if is_pinned(nvcc):
        problems += differences(rows, table)
    return rows, problems


def main() -> int:
    """The command; exit status 1 where something is out of bounds or not as the table has it."""
    parser = argparse.ArgumentParser(prog="python -m alpha.cu32.resources", description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the table anew")
    parser.add_argument("--again", action="store_true", help="compile what is known, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="files compiled at a time (%(default)s)")
    options = parser.parse_args()
    try:
        nvcc = find_nvcc()
        if options.update and not is_pinned(nvcc):
            raise EngineError(f"[cu32] expected nvcc {PINNED} to write its table, got {nvcc.version.splitlines()[-1]}")
        rows, problems = check(nvcc, max(1, options.jobs), sources() if options.again else ())
        if options.update:
            TABLE.write_text(table_text(rows), encoding="utf-8")
            problems = broken_bounds(rows, rows)
    except AlphaError as error:
        print(error, file=sys.stderr)
        return 1
    if not options.update:
        print(table_text(rows))
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
