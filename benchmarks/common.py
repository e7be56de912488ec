"""Shared by the benchmarks: options, tables, result files, and the description of machine and software."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from alpha.errors import AlphaError, ArgumentError

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20


# -- what is measured ------------------------------------------------------------------------------------------------


PRECISIONS = ("highest", "high")
"""Those of every benchmark; "high" needs a GPU."""
HALVES = ("medium", "bf16")
"""Those of training, and the second of inference, on the CPU: their products are of bfloat16."""


@dataclass(frozen=True)
class Setup:
    """How both sides compute.

    Args:
        engine: Dragon-Alpha's engine; PyTorch uses the same processor or GPU.
        threads: of the host.
        precision: ``"highest"`` is float32; on a GPU ``"high"`` is TF32 on both sides; on the CPU ``"bf16"`` is
            autocast to bfloat16 on both, ``"medium"`` Dragon-Alpha's own beside PyTorch's autocast.
        graph: whether what is timed is captured once and replayed.
    """

    engine: str
    threads: int
    precision: str = "highest"
    graph: bool = False

    @property
    def cuda(self) -> bool:
        """Whether a GPU is measured."""
        return self.engine.startswith("cu32")

    @property
    def float32_precision(self) -> str:
        """What ``alpha.set_float32_precision`` is given."""
        return "highest" if self.precision == "bf16" else self.precision

    @property
    def torch_autocasts(self) -> bool:
        """Whether PyTorch computes within autocast to bfloat16."""
        return self.precision in HALVES

    @property
    def ordinal(self) -> int:
        """Which GPU."""
        return int(self.engine.partition(":")[2] or 0)


# -- the command line ------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line; exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help lists the options)\n")


def make_parser(
    module: str,
    description: str,
    against: Sequence[str] = ("torch", "none"),
    default: str | None = "torch",
    precisions: Sequence[str] = PRECISIONS,
) -> Parser:
    """A parser with the options that every benchmark has; ``default`` None where it depends on another option."""
    parser = Parser(prog=f"python -m {module}", description=description, allow_abbrev=False)
    parser.add_argument("--engine", default="cpu", type=engine_name, help="cpu, cu32 or cu32:1 (%(default)s)")
    told = "on a GPU: float32, or TF32 on both sides"
    if "bf16" in precisions:
        told += "; on the CPU bf16: bfloat16 on both sides"
    if "medium" in precisions:
        told += ", medium: factors of bfloat16 beside PyTorch's autocast"
    parser.add_argument("--precision", default="highest", choices=tuple(precisions), help=told)
    parser.add_argument(
        "--graph",
        action="store_true",
        help="capture what is timed once, and replay it; on the CPU whole training steps alone",
    )
    usual = "the opponent (%(default)s)" if default else "the opponent (that of the suite)"
    parser.add_argument("--against", default=default, choices=tuple(against), help=usual)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here")
    parser.add_argument("--threads", type=whole(1), metavar="N", help="of either side (all that may be used)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of all that is random (%(default)s)")
    return parser


def whole(least: int) -> Callable[[str], int]:
    """The argparse type of integers that are large enough."""

    def integer(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text!r}")
        return int(text)

    return integer


def engine_name(text: str) -> str:
    """The argparse type of engines that are measured."""
    if re.fullmatch(r"cpu|cu32(:\d+)?", text) is None:
        raise argparse.ArgumentTypeError(f"expected cpu, cu32 or cu32:N, got {text!r}")
    return text


def setup(args: argparse.Namespace) -> Setup:
    """How both sides compute, by the options."""
    return Setup(args.engine, args.threads or available_threads(), args.precision, args.graph)


def available_threads() -> int:
    """Processors that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def check_setup(module: str, args: argparse.Namespace, captures_on_cpu: bool = False) -> None:
    """ArgumentError where an option needs a GPU and the engine has none; ``captures_on_cpu``: --graph needs none."""
    needing = (("--precision", args.precision == "high"), ("--graph", args.graph and not captures_on_cpu))
    for option, given in needing:
        if given and args.engine == "cpu":
            raise ArgumentError(f"[{module}] expected {option} with --engine cu32, got engine cpu: leave it out")
    if args.precision in HALVES and args.engine != "cpu":
        raise ArgumentError(
            f"[{module}] expected --precision {args.precision} with --engine cpu, got engine {args.engine}: take high"
        )


def run_command(main: Callable[[], None]) -> int:
    """Runs a benchmark, with errors as one line; returns the exit status."""
    try:
        main()
    except (AlphaError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return 130
    return 0


def require_opponent(module: str, against: str) -> None:
    """ArgumentError where an opponent is asked for and not installed."""
    needed = [("torch", "PyTorch", "compare")] if against in ("torch", "all") else []
    if against in ("onnxruntime", "all"):
        needed += [("onnxruntime", "ONNX Runtime", "onnx"), ("onnx", "onnx", "onnx")]
    if against in ("openvino", "all"):
        needed += [("openvino", "OpenVINO", "onnx"), ("onnx", "onnx", "onnx")]
    for package, name, extra in needed:
        if importlib.util.find_spec(package) is None:
            raise ArgumentError(
                f"[{module}] expected {name} for --against {against}, got none installed: pip install "
                f'"dragon-alpha[{extra}]", or measure Dragon-Alpha alone with --against none'
            )


def require_pictures(module: str) -> None:
    """ArgumentError where Matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ArgumentError(
            f'[{module}] expected Matplotlib to draw with, got none installed: pip install "dragon-alpha[plot]"'
        )


# -- result files ----------------------------------------------------------------------------------------------------


def check_writable(module: str, path: Path | None) -> None:
    """Raises ArgumentError unless a file can be written at the path: checked before a run of minutes, not after it."""
    if path is None:
        return
    try:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ArgumentError(
            f"[{module}] expected --json to name a file that can be written, got {str(path)!r} ({error}): name one in "
            "an existing folder of yours"
        ) from error


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Writes the file completely or not at all: to a temporary file in the same folder, which is then renamed."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_json(result, 2) + "\n")
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _json(value: Any, depth: int, indent: str = "") -> str:
    """JSON that is broken into lines down to a depth, so that a row is a line."""
    if depth == 0 or not value or not isinstance(value, dict | list):
        return json.dumps(value, allow_nan=False)
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_json(one, depth - 1, inner)}" for key, one in value.items()]
    else:
        parts = [_json(one, depth - 1, inner) for one in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}{last}"


# -- machine and software --------------------------------------------------------------------------------------------


def description(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The head of every result: benchmark, command, date, machine and versions."""
    return {
        "benchmark": module,
        "command": shlex.join(["python", "-m", module, *arguments]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
    }


def machine() -> dict[str, Any]:
    """Processor, instruction path, cores, caches, memory and system; the load when the run starts."""
    return {
        "cpu": _cpu_model(),
        **_cpu_target(),
        "cores": available_threads(),
        "caches": _caches(),
        "memory_gib": round(_memory() / (1 << 30), 1),
        "huge_pages": _first_line(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "system": platform.platform(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _cpu_target() -> dict[str, str]:
    """The processor that the CPU engine compiles for; empty without Numba, which a GPU does not need."""
    try:
        import llvmlite.binding

        from alpha.cpu.isa import ISA
    except ImportError:
        return {}
    return {"cpu_target": llvmlite.binding.get_host_cpu_name(), "instruction_path": ISA.name}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter, and the revision of this checkout."""
    found = {"python": platform.python_version()}
    for name in ("dragon-alpha", "numpy", "numba", "llvmlite", "pycuda", "torch", "onnxruntime", "openvino"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if "dragon-alpha" not in found:
        import alpha

        found["dragon-alpha"] = alpha.__version__
    revision = _revision()
    return {**found, "revision": revision} if revision else found


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _caches() -> dict[str, str]:
    """Sizes of the first processor's caches, such as ``{"L1 data": "32K", "L2 unified": "512K"}``."""
    found = {}
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_first_line(cache / name) for name in ("level", "type", "size"))
        if level and kind and size and kind != "Instruction":
            found[f"L{level} {kind.lower()}"] = size
    return found


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return None


def _revision() -> str | None:
    """The commit checked out, with ``+`` behind it where files differ; None outside a repository."""
    if not (ROOT / ".git").exists():
        return None
    try:
        commit, status = (
            subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True, timeout=10)
            for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("+" if status.stdout.strip() else "")


# -- figures ---------------------------------------------------------------------------------------------------------


def median(values: Iterable[float]) -> float:
    """The median as a float."""
    return float(statistics.median(values))


def geometric_mean(values: Sequence[float]) -> float:
    """exp(mean(log(values)))."""
    return math.exp(sum(math.log(v) for v in values) / len(values))


def spread(values: Sequence[float]) -> float:
    """How much timings vary: the third quartile over the first; 1 for a single one."""
    if len(values) < 2:
        return 1.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third / first


def unit_of(seconds: float) -> tuple[str, float, int]:
    """The unit that times about so long are told in, how many make a second, and the digits behind the point."""
    return ("s", 1.0, 3) if seconds >= 0.02 else ("ms", 1e3, 3)


def told(seconds: float) -> str:
    """A time with its unit."""
    unit, scale, digits = unit_of(seconds)
    return f"{scale * seconds:.{digits}f} {unit}"


CALM = 1.25
"""Largest spread of a quiet machine's timings."""


def difference(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> float:
    """The largest difference of two results over the largest element; infinite where their shapes differ."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max()) if ours.shape == theirs.shape else math.inf


def warn_of_noise(largest: float) -> None:
    """Warns if timings vary by more than a quiet machine's do."""
    if largest > CALM:
        print(f"note: repeated timings vary by a factor of {largest:.2f}: other processes were using this machine")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints columns, the first flush left and the others flush right; None as a dash."""
    cells = [list(titles), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
    for row in cells:
        head, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join([head.strip().ljust(widths[0]), *rest]))
