"""The CPU engine. ``explain`` and ``planner`` are bound when first used: they load the compiled kernels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alpha.cpu import planner as planner
    from alpha.cpu.explanations import explain as explain


def __getattr__(name: str) -> Any:
    if name == "explain":
        return importlib.import_module("alpha.cpu.explanations").explain
    if name == "planner":
        return importlib.import_module("alpha.cpu.planner")
    raise AttributeError(f"module 'alpha.cpu' has no attribute {name!r}")
