"""Binds nn, optim and datasets under alpha's root, when first used, as the very same modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

NAMES = ("datasets", "nn", "optim")
LAZY = ("cpu", "testing")
"""Packages and modules of alpha itself that are loaded when first used."""

_ROOT = Path(__file__).resolve().parent.parent


def get(name: str) -> ModuleType:
    """The package that ``alpha.<name>`` stands for; AttributeError for any other name."""
    if name in NAMES:
        return importlib.import_module(f"alpha.{name}")
    if name in LAZY:
        return importlib.import_module(f"alpha.{name}")
    raise AttributeError(f"module 'alpha' has no attribute {name!r}")


class _Alias(MetaPathFinder, Loader):
    """Finds ``alpha.nn.functional`` as ``nn.functional``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root != "alpha" or rest.partition(".")[0] not in NAMES:
            return None
        return ModuleSpec(fullname, self, loader_state=rest)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        real = importlib.import_module(spec.loader_state)
        _check_ours(real, spec.loader_state)
        spec.loader_state = real.__spec__
        return real

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the alias's spec over the module's own.
        alias = module.__spec__
        if alias is not None and isinstance(alias.loader_state, ModuleSpec):
            module.__spec__ = alias.loader_state


def _check_ours(module: ModuleType, name: str) -> None:
    """ImportError where another distribution's package of the same name comes first on the path."""
    found = Path(module.__file__ or "").resolve()
    expected = _ROOT / name.partition(".")[0]
    if not found.is_relative_to(expected):
        raise ImportError(
            f"[alpha.{name}] expected our package at {expected}, got another distribution's at {found}: uninstall that "
            "one, or put ours first on sys.path"
        )


sys.meta_path.insert(0, _Alias())
