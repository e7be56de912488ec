"""The first seconds of a training: ``python -m benchmarks.first_seconds --json FILE``.

ResNet18 (batch 128) and a small GPT, each in new processes: cold, with no compiled kernel kept on the machine, and
warm, with those that the cold one kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alpha.errors import EngineError
from benchmarks import common

MODULE = "benchmarks.first_seconds"
_WORKER = Path(__file__).with_name("first_seconds_worker.py")

NETWORKS = {"resnet18": 128, "gpt": 16}
"""Networks and their batches."""

PHASES = ("import", "first step", "second step", "until first step")
"""What is timed; the last from the start of the process on."""


def first_seconds(source: Path, network: str, cache: str, threads: int) -> dict[str, float]:
    """Seconds by phase of one process; EngineError where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(source), "ALPHA_CACHE": cache}
    command = [sys.executable, str(_WORKER), network, str(NETWORKS[network]), repr(time.time()), str(threads)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EngineError(f"[{MODULE}] expected a training of {network}, got an error:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {phase: found[phase] for phase in PHASES}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    threads = args.threads or common.available_threads()
    rows = []
    for network, batch in NETWORKS.items():
        times: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
        for _ in range(args.repeats):
            with tempfile.TemporaryDirectory() as cache:
                times["cold"].append(first_seconds(args.source, network, cache, threads))
                for _ in range(2):
                    times["warm"].append(first_seconds(args.source, network, cache, threads))
        for state, found in times.items():
            seconds = {phase: [one[phase] for one in found] for phase in PHASES}
            medians = {phase: common.median(values) for phase, values in seconds.items()}
            rows.append(
                {"network": network, "batch": batch, "state": state, "median_s": medians}
                | {"times_ms": {phase: [1e3 * value for value in seconds[phase]] for phase in PHASES}}
            )
    settings = {"suite": "first seconds", "engine": "cpu", "threads": threads, "repeats": args.repeats}
    return {"settings": {**settings, "revision": _revision(args.source)}, "rows": rows}


def _revision(source: Path) -> str:
    """The commit of a checkout, "" where it has none."""
    command = ["git", "-C", str(source), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows, in seconds."""
    rows = [
        [
            f"{row['network']}, batch {row['batch']}",
            row["state"],
            *(f"{row['median_s'][phase]:.2f}" for phase in PHASES),
        ]
        for row in result["rows"]
    ]
    return ["", "kernels", *(f"{phase}, s" for phase in PHASES)], rows


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    description = (__doc__ or "").splitlines()[0]
    parser = common.Parser(prog=f"python -m {MODULE}", description=description, allow_abbrev=False)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here")
    parser.add_argument("--threads", type=common.whole(1), metavar="N", help="all that may be used")
    parser.add_argument("--repeats", type=common.whole(1), default=3, metavar="N", help="cold starts (%(default)s)")
    parser.add_argument(
        "--source", type=Path, default=common.ROOT, metavar="DIR", help="the checkout that is measured (this one)"
    )
    args = parser.parse_args(given)

    def measure() -> None:
        common.check_writable(MODULE, args.json)
        head = common.description(MODULE, given)
        result = run(args)
        titles, rows = table(result)
        common.print_table(titles, rows)
        if args.json is not None:
            common.write_json(args.json, {**head, **result})

    return common.run_command(measure)


if __name__ == "__main__":
    sys.exit(main())
