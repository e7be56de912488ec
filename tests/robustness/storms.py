"""Storms: the campaign's other kinds of faults (interrupts, forks, kills, full disks, damaged files), by name.

A storm is ``name -> function(count, seed) -> counts``: it makes about ``count`` attempts that follow from the seed, and
returns how many it made and how many fell, such as ``{"interrupts": 500, "fallen": 0}``. A count whose name begins with
"fallen" and is not 0 makes ``python -m tests.robustness`` fail. Modules are imported when one of their storms runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

Storm = Callable[[int, int], dict[str, int]]

STORMS: dict[str, str] = {
    "interrupts": "tests.robustness.training_storm:interrupts",
    "forks": "tests.robustness.training_storm:forks",
    "memory": "tests.robustness.training_storm:memory",
    "checkpoint bits": "tests.robustness.file_storm:checkpoint_bits",
    "cache bits": "tests.robustness.file_storm:cache_bits",
    "kills": "tests.robustness.file_storm:kills",
    "full disks": "tests.robustness.file_storm:full_disks",
}
"""Where each storm is: "module:function". The interrupts at every line are tests: ``test_interrupts.py`` and others."""


def find(name: str) -> Storm:
    """The storm of a name."""
    module, _, function = STORMS[name].partition(":")
    storm: Storm = getattr(importlib.import_module(module), function)
    return storm
