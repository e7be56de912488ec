"""Functions run on symbols: what they cannot do is an error that names the user's line."""

from __future__ import annotations

import linecache
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from alpha.errors import AlphaError, ArgumentError
from alpha.expressions import symbols
from alpha.expressions.symbols import TraceError

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_LIBRARIES = tuple([sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")])


def run(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The function of symbols; what it cannot do is an error that says on which of its lines."""
    try:
        return function(*args)
    except TraceError as error:
        if error.args[0].startswith("[pointwise]"):
            where = _line(error.__traceback__)
            error.args = (f"[{name}] expected {error.expected}, got {error.got}{where}: {error.advice}",)
        raise
    except AttributeError as error:
        if not isinstance(error.obj, ModuleType) or error.obj.__name__.partition(".")[0] != "alpha":
            raise
        raise _traced(
            f"[{name}] expected point-wise operations that alpha has, got {error.obj.__name__}.{error.name}"
            f"{_line(error.__traceback__)}: use {symbols.FUNCTIONS}"
        ) from error
    except RecursionError as error:
        raise _traced(
            f"[{name}] expected a function that does not call itself without end, got a recursion"
            f"{_line(error.__traceback__)}: write what repeats as a loop over range(n) of a Python number"
        ) from None
    except AlphaError as error:
        if getattr(error, "_traced", False):
            raise
        raise _traced(
            f"[{name}] expected point-wise operations alone, got another{_line(error.__traceback__)}: use "
            f"{symbols.FUNCTIONS}; do the rest outside ({error})"
        ) from error


def _traced(message: str) -> ArgumentError:
    """An error that functions around this one pass on as it is."""
    made = ArgumentError(message)
    made._traced = True  # type: ignore[attr-defined]
    return made


def _line(traceback: TracebackType | None) -> str:
    """The innermost line of the user's own among those of a traceback, as " in line 3 of net.py: text".

    A library's line counts where there is no other: the user may have called NumPy, which called the symbol.
    """
    found: list[tuple[CodeType, int]] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            found.append((code, traceback.tb_lineno))
        traceback = traceback.tb_next
    if not found:
        return ""
    outside = [(code, number) for code, number in found if not code.co_filename.startswith(_LIBRARIES)]
    code, number = (outside or found)[-1]
    text = linecache.getline(code.co_filename, number).strip()
    place = f" in line {number} of {Path(code.co_filename).name}"
    return f"{place}, {text!r}" if text else place
