"""``python -m cu32.build``: compiles every kernel ahead, for the devices of this machine or those named."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from concurrent.futures import ThreadPoolExecutor

from tqdm import tqdm

import cu32
from alpha.errors import AlphaError
from cu32.compiler import Source, compiler, cubin


def sources() -> tuple[Source, ...]:
    """Every variant of every kernel file that the engine launches."""
    found: dict[Source, None] = {}
    for module in pkgutil.iter_modules(cu32.__path__, "cu32."):
        found.update(dict.fromkeys(getattr(importlib.import_module(module.name), "SOURCES", ())))
    return tuple(found)


def build(architectures: list[str], jobs: int) -> None:
    """Compiles what the cache does not hold yet."""
    work = [(source, architecture) for architecture in architectures for source in sources()]
    with ThreadPoolExecutor(jobs) as threads, tqdm(total=len(work), unit="file", desc=compiler().version[:40]) as bar:
        for _ in threads.map(lambda item: cubin(*item), work):
            bar.update()


def _local_architectures() -> list[str]:
    from cu32.driver import architectures

    return architectures()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m cu32.build", description=__doc__)
    parser.add_argument(
        "architectures", nargs="*", metavar="sm_NN", help="sm_75 and newer; by default those of this machine's devices"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="files compiled at a time")
    options = parser.parse_args()
    try:
        build(options.architectures or _local_architectures(), max(1, options.jobs))
    except AlphaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
