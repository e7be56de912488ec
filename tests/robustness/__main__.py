"""``python -m tests.robustness --calls 1000000 --seed 1``: the campaign; it fails where anything fell.

``--only N`` makes call number N of the seed alone, in this process, and prints its source first. ``--storm NAME`` runs
one of the storms, ``--storm all`` all of them, ``--count`` attempts each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings

from tests.robustness.campaign import Campaign
from tests.robustness.storms import STORMS, find


def main() -> int:
    """Reads the arguments and runs what they ask for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000, help="calls to make")
    parser.add_argument("--seed", type=int, default=0, help="what all calls follow from")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds that one call may take")
    parser.add_argument("--seconds", type=float, default=0.0, help="end after so many seconds")
    parser.add_argument("--record", action="append", help="draw from this record only; may be repeated")
    parser.add_argument("--no-torch", action="store_true", help="compare with NumPy alone")
    parser.add_argument("--only", type=int, help="make one call in this process")
    parser.add_argument("--storm", help="run a storm instead, or all")
    parser.add_argument("--count", type=int, default=1000, help="attempts of a storm")
    given = parser.parse_args()
    if given.storm is not None:
        if given.storm != "all" and given.storm not in STORMS:
            parser.error(f"expected a storm among {', '.join(sorted(STORMS)) or 'none'}, or all, got {given.storm!r}")
        return _storms(given.storm, given.count, given.seed)
    if given.only is not None:
        return _only(given.seed, given.only, given.record, not given.no_torch)
    campaign = Campaign(
        given.calls,
        given.seed,
        given.workers,
        given.deadline,
        given.seconds,
        records=given.record,
        torch=not given.no_torch,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    with contextlib.suppress(KeyboardInterrupt):
        campaign.run()
    print(campaign.report)
    return 1 if campaign.report.found else 0


def _storms(name: str, count: int, seed: int) -> int:
    fallen = 0
    names = sorted(STORMS) if name == "all" else [name]
    for storm in names:
        counts = find(storm)(count, seed)
        print(f"{storm}: {', '.join(f'{n} {what}' for what, n in counts.items())}", flush=True)
        fallen += sum(n for what, n in counts.items() if what.startswith("fallen"))
    return 1 if fallen else 0


def _only(seed: int, index: int, records: list[str] | None, torch: bool) -> int:
    """One call in this process, so that a debugger sees it."""
    from tests.robustness.cases import source
    from tests.robustness.records import RECORDS
    from tests.robustness.run import Runner
    from tests.robustness.worker import pytorch

    chosen = [record for record in RECORDS if not records or record.name in records]
    runner = Runner(chosen, seed, pytorch() if torch else None)
    record, case, _ = runner.case(index)
    print(f"# {record.name}\n{source(record.name, case)}", flush=True)
    with warnings.catch_warnings(action="ignore"):
        fault = runner(index)
    print("right" if fault is None else f"{fault.kind} [{fault.what}]: {fault.detail}")
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
