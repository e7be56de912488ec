"""Storms: the campaign's other kinds of faults (interrupts, forks, kills, full disks, damaged files), by name.

A storm is ``name -> function(count, seed) -> counts``: it makes about ``count`` attempts that follow from the seed, and
returns how many it made and how many fell, such as ``{"interrupts": 500, "fallen": 0}``. A count whose name begins with
"fallen" and is not 0 makes ``python -m tests.robustness`` fail. Modules are imported when one of their storms runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

Storm = Callable[[int, int], dict[str, int]]

STORMS: dict[str, str] = {}
"""Where each storm is: "module:function"."""


def find(name: str) -> Storm:
    """The storm of a name."""
    module, _, function = STORMS[name].partition(":")
    storm: Storm = getattr(importlib.import_module(module), function)
    return storm
