"""Figures: what a processor's core was measured to take, by which the cost models of convolutions rank algorithms.

``python -m alpha.cpu.calibrate`` measures them. Those of some processors come with the package, in ``figures.json``;
those that a user has measured are kept in the cache and go before them.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from alpha import cache
from alpha.cpu.isa import ISA
from alpha.errors import ArgumentError

KIND = "processors"
"""The folder in the cache."""

SHIPPED = Path(__file__).with_name("figures.json")
"""The file of the package: an object for each processor's core, in it one for each instruction path."""

COMMAND = "python -m alpha.cpu.calibrate"


@dataclass(frozen=True)
class Figures:
    """What one core reaches on one instruction path. A cycle is one of its clock.

    Attributes:
        fmas_per_cycle: vectors of multiply-adds in a tile of the micro-kernel whose rows lie a step apart.
        scattered_fmas_per_cycle: the same where each row lies somewhere else.
        outer_fmas_per_cycle: the same where rows lie side by side, as in filter gradients' sums of outer products.
        tile_cycles: to begin and end a tile: its pointers, the start of its loop, reading and writing its sums.
        scattered_row_cycles: to find where a scattered row lies.
        sum_cycles_per_vector: to read and write a vector of sums that many tiles add to.
        pack_cycles_per_number: to put a number of the filters into a panel.
        copy_cycles_per_vector: to copy a vector of images to where a filter gradient reads it.
        gather_cycles_per_vector: to copy a vector from short pieces that overlap.
        transpose_cycles_per_vector: to transpose a vector of images.
        scatter_cycles_per_number: to add a number to a result that lies elsewhere.
        transform_cycles_per_operation: a load, addition or store of a vector in Winograd's transforms.
        launch_cycles: to begin and end a launch after another, of all cores together.
        l3_bytes_per_cycle: what a core reads of filters that the L3 cache holds.
        dram_bytes_per_cycle: what it reads of larger filters.
        l2_bytes: of the core's L2 cache.
        l3_bytes: bytes of filters that the L3 cache holds beside everything else.
    """

    fmas_per_cycle: float
    scattered_fmas_per_cycle: float
    outer_fmas_per_cycle: float
    tile_cycles: float
    scattered_row_cycles: float
    sum_cycles_per_vector: float
    pack_cycles_per_number: float
    copy_cycles_per_vector: float
    gather_cycles_per_vector: float
    transpose_cycles_per_vector: float
    scatter_cycles_per_number: float
    transform_cycles_per_operation: float
    launch_cycles: float
    l3_bytes_per_cycle: float
    dram_bytes_per_cycle: float
    l2_bytes: float
    l3_bytes: float

    def check(self) -> None:
        """ArgumentError where a figure cannot be a processor's."""
        for name, (least, most) in PLAUSIBLE.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ArgumentError(f"[figures] expected {name} as a number, got {value!r}: measure again")
            if not least <= value <= most:
                raise ArgumentError(
                    f"[figures] expected {name} of {least:g} to {most:g}, got {value:.4g}: measure again while less "
                    "else runs on this machine"
                )


PLAUSIBLE = {
    "fmas_per_cycle": (0.05, 8.0),
    "scattered_fmas_per_cycle": (0.05, 8.0),
    "outer_fmas_per_cycle": (0.05, 8.0),
    "tile_cycles": (1.0, 2000.0),
    "scattered_row_cycles": (0.1, 500.0),
    "sum_cycles_per_vector": (0.05, 200.0),
    "pack_cycles_per_number": (0.01, 50.0),
    "copy_cycles_per_vector": (0.1, 500.0),
    "gather_cycles_per_vector": (0.5, 2000.0),
    "transpose_cycles_per_vector": (0.1, 500.0),
    "scatter_cycles_per_number": (0.05, 100.0),
    "transform_cycles_per_operation": (0.05, 50.0),
    "launch_cycles": (0.0, 1e9),
    "l3_bytes_per_cycle": (0.2, 256.0),
    "dram_bytes_per_cycle": (0.05, 128.0),
    "l2_bytes": (float(1 << 15), float(1 << 30)),
    "l3_bytes": (float(1 << 16), float(1 << 34)),
}
"""Least and most of each figure: what lies outside was measured wrong."""


class Processor(NamedTuple):
    """Which processor this is.

    Attributes:
        core: LLVM's name of its core, such as "znver4": what most figures depend on.
        model: as the system names it.
    """

    core: str
    model: str


class Known(NamedTuple):
    """The figures of this process, and where they are from.

    Attributes:
        figures: what the models take.
        core: whose they are.
        path: the file that they were read from.
        matches: whether they are this processor's, and not those of the nearest one that was measured.
    """

    figures: Figures
    core: str
    path: Path
    matches: bool

    @property
    def note(self) -> str | None:
        """What a user should know where they are another processor's."""
        if self.matches:
            return None
        here = processor()
        return (
            f"no figures of this processor ({here.model}, {here.core}) on its {ISA.name} path: those of {self.core} "
            f"rank the algorithms; {COMMAND} measures its own in a minute"
        )


@once
def processor() -> Processor:
    """This machine's."""
    return Processor(llvm.get_host_cpu_name(), _model())


def _model() -> str:
    """As Linux names it, else as Python does."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            head = file.read(4096)  # of many processors this is the first
    except OSError:
        head = ""
    found = re.search(r"^model name\s*:\s*(.+)$", head, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine() or "unknown"


def name_of(here: Processor, path: str) -> str:
    """The name of the file in the cache for a processor and an instruction path."""
    digest = hashlib.sha256("\0".join((*here, path)).encode()).hexdigest()
    return f"{re.sub(r'[^0-9A-Za-z]', '_', here.core)}-{path}-{digest[:16]}.json"


@once
def known() -> Known:
    """This process's: those that the user has measured here, else the package's."""
    found = _measured(processor(), ISA.name)
    return found if found is not None else shipped(processor().core, ISA.name)


def digest() -> str:
    """A short name of the figures in force, by which processes see whether they have the same."""
    return hashlib.sha256(json.dumps(asdict(known().figures), sort_keys=True).encode()).hexdigest()[:12]


def _measured(here: Processor, path: str) -> Known | None:
    """What the user has measured on this machine; None where that is nothing, or, with a warning, cannot be used."""
    try:
        file = cache.directory(KIND) / name_of(here, path)
        content = json.loads(cache.read(file))
        if (content["model"], content["core"], content["path"]) != (*reversed(here), path):
            raise ValueError(f"those of {content['model']}, {content['core']}, {content['path']}")
        return Known(parsed(content["figures"]), here.core, file, True)
    except FileNotFoundError:
        return None
    except (OSError, cache.DamagedFile, ValueError, KeyError, TypeError, ArgumentError) as error:
        cache.warn(
            f"[figures] expected the figures of {here.model} in the cache, got: {error!r}: those of the package rank "
            f"the algorithms; {COMMAND} measures them again"
        )
        return None


def keep(here: Processor, path: str, figures: Figures, **more: Any) -> Path:
    """Keeps figures for later processes, and returns their file; ``more`` tells a reader of it where they are from.

    Raises:
        ArgumentError: for figures that no processor has.
        OSError: where the file cannot be written.
    """
    figures.check()
    name = name_of(here, path)
    file = cache.directory(KIND) / name
    content = {**here._asdict(), "path": path, **more, "figures": asdict(figures)}
    cache.write_atomically(file, cache.sealed(name, json.dumps(content, indent=1).encode() + b"\n"))
    return file


def parsed(content: Mapping[str, Any]) -> Figures:
    """Figures from what a file holds; KeyError, TypeError or ArgumentError where it holds others."""
    figures = Figures(**{field.name: content[field.name] for field in fields(Figures)})
    figures.check()
    return figures


def shipped(core: str, path: str) -> Known:
    """The package's figures for a core, or for the nearest one that was measured on this instruction path."""
    cores = {name: paths[path] for name, paths in json.loads(SHIPPED.read_bytes()).items() if path in paths}
    nearest = core if core in cores else _nearest(core, list(cores))
    return Known(parsed(cores[nearest]), nearest, SHIPPED, nearest == core)


def _nearest(core: str, cores: list[str]) -> str:
    """The core of the same family whose generation is nearest, else the first one: "znver4" for a "znver3"."""
    family, generation = _generation(core)
    alike = [name for name in cores if _generation(name)[0] == family]
    return min(alike or cores[:1], key=lambda name: abs(_generation(name)[1] - generation))


def _generation(core: str) -> tuple[str, int]:
    """A name's letters before its number, and the number."""
    found = re.fullmatch(r"(\D*)(\d*).*", core)
    return (found[1], int(found[2] or 0)) if found else (core, 0)
