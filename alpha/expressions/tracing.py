"""Functions run on symbols: what they cannot do is an error that names the user's line."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

from alpha.errors import AlphaError, ArgumentError
from alpha.expressions import symbols
from alpha.expressions.symbols import TraceError

_PACKAGE = str(Path(__file__).resolve().parent.parent)


def run(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The function of symbols; what it cannot do is an error that says on which of its lines."""
    try:
        return function(*args)
    except TraceError as error:
        if error.args[0].startswith("[pointwise]"):
            where = _line(error.__traceback__)
            error.args = (f"[{name}] expected {error.expected}, got {error.got}{where}: {error.advice}",)
        raise
    except AlphaError as error:
        if getattr(error, "_traced", False):
            raise
        where = _line(error.__traceback__)
        made = ArgumentError(
            f"[{name}] expected point-wise operations alone, got another{where}: use {symbols.FUNCTIONS}; do the rest "
            f"outside ({error})"
        )
        made._traced = True  # type: ignore[attr-defined]
        raise made from error


def _line(traceback: TracebackType | None) -> str:
    """The innermost line of the user's own among those of a traceback, as " in line 3 of net.py: text"."""
    found: tuple[CodeType, int] | None = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            found = code, traceback.tb_lineno
        traceback = traceback.tb_next
    if found is None:
        return ""
    code, number = found
    text = linecache.getline(code.co_filename, number).strip()
    place = f" in line {number} of {Path(code.co_filename).name}"
    return f"{place}, {text!r}" if text else place
