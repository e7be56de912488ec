"""Packages that learn of tensors once they are imported, whether before ``alpha`` or after it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULES = {"einops._backends": "alpha.utils.einops"}
"""Other packages' modules, and those of ours to import after them."""


class _Finder(MetaPathFinder):
    """Finds these modules as Python does, and lets ours follow their loading."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        ours = MODULES.get(name)
        spec = None if ours is None else PathFinder.find_spec(name, path, target)
        if ours is None or spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        load = loader.exec_module

        def load_both(module: ModuleType) -> None:
            load(module)
            importlib.import_module(ours)

        loader.exec_module = load_both
        return spec


def watch() -> None:
    """Imports ours for what is loaded already, and watches for the rest."""
    for theirs, ours in MODULES.items():
        if theirs in sys.modules:
            importlib.import_module(ours)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
