"""``python -m alpha.cu32.build``: compiles every kernel ahead, for the devices of this machine or those named.

``python -m alpha.cu32.build sm_90 --out DIR`` needs no GPU and leaves the cubins in a folder. Another machine finds
them there with ``ALPHA_CUBINS=DIR``: it then compiles nothing, and needs no compiler, as long as its sources of the
kernels are the same (see ``alpha.cu32.compiler``).
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from alpha import cache as disk
from alpha import cu32
from alpha.cu32.compiler import Source, compiler, cubin, cubin_name, cubin_path
from alpha.errors import AlphaError, EngineError


def sources() -> tuple[Source, ...]:
    """Every variant of every kernel file that the engine launches."""
    found: dict[Source, None] = {}
    for module in pkgutil.walk_packages(cu32.__path__, f"{cu32.__name__}."):
        found.update(dict.fromkeys(getattr(importlib.import_module(module.name), "SOURCES", ())))
    return tuple(found)


def build(architectures: list[str], jobs: int, out: Path | None = None, variants: Sequence[Source] = ()) -> int:
    """Compiles what the folder ``out``, by default the cache, does not hold yet; how many files that makes.

    EngineError where one does not compile, or cannot be kept.
    """
    work = [(source, architecture) for architecture in architectures for source in variants or sources()]
    with ThreadPoolExecutor(jobs) as threads, tqdm(total=len(work), unit="file", desc=compiler().version[:40]) as bar:
        for _ in threads.map(lambda item: _build_one(item[0], item[1], out), work):
            bar.update()
    return len(work)


def _build_one(source: Source, architecture: str, out: Path | None) -> None:
    """Leaves a cubin in a folder, or in the cache, unless it is there whole."""
    content = cubin(source, architecture)  # which the cache keeps, if it can
    try:
        path = cubin_path(source, architecture) if out is None else out / cubin_name(source, architecture)
        if out is not None and not _holds(path, content):
            disk.write_atomically(path, disk.sealed(path.name, content))
        disk.read(path)
    except (OSError, disk.DamagedFile) as error:
        raise EngineError(
            f"[cu32] expected to keep cubins in {out or 'the cache'}, got: {error}: name a folder that can be written "
            "with --out, or by ALPHA_CACHE"
        ) from error


def _holds(path: Path, content: bytes) -> bool:
    try:
        return disk.read(path) == content
    except (OSError, disk.DamagedFile):
        return False


def _local_architectures() -> list[str]:
    from alpha.cu32.driver import architectures

    return architectures()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m alpha.cu32.build", description=__doc__)
    parser.add_argument(
        "architectures", nargs="*", metavar="sm_NN", help="sm_75 and newer; by default those of this machine's devices"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="files compiled at a time")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="leave the cubins there, for machines that name it in ALPHA_CUBINS"
    )
    options = parser.parse_args()
    try:
        count = build(options.architectures or _local_architectures(), max(1, options.jobs or 1), options.out)
    except (AlphaError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.out is not None:
        print(f"{count} cubins are in {options.out}: set ALPHA_CUBINS={options.out.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
