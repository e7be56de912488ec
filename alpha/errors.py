"""The errors that Dragon-Alpha raises.

Each subclasses the built-in that a NumPy or PyTorch user would catch, so ``except ValueError`` keeps working.
Every message has one form: ``[function] expected ..., got ...: what to do``.
"""

from __future__ import annotations

_LONGEST = 200
"""Characters of a value that a message shows."""


def described(value: object) -> str:
    """A value as a message shows it: its ``repr`` cut short, or its type where that fails."""
    try:
        text = repr(value)
    except Exception:  # an int of more digits than Python prints, nesting without end, an error of the value's own
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


class AlphaError(Exception):
    """Base of every error raised on purpose by Dragon-Alpha."""


class ShapeError(AlphaError, ValueError):
    """Shapes (or an axis, or an index) do not fit the function."""


class IndexingError(ShapeError, IndexError):
    """An index outside its axis, or of a kind that does not index."""


class ScalarError(ShapeError, TypeError):
    """A tensor without axes where one with axes is needed, or the reverse: ``len``, ``format``, an index."""


class DtypeError(AlphaError, TypeError):
    """A dtype that the function does not take, or two that do not go together."""


class EngineError(AlphaError, RuntimeError):
    """Tensors of two engines met, or an engine cannot be had on this machine."""


class GraphError(AlphaError, RuntimeError):
    """Misuse of the autograd graph: a second backward, a saved tensor overwritten, an in-place write to a leaf."""


class OutOfMemoryError(AlphaError, MemoryError):
    """An allocation would exceed the pool's cap. Freeing tensors makes the pool usable again."""


class ArgumentError(AlphaError, ValueError):
    """A value outside what the function takes (an unknown option, a negative size)."""


class PartError(AlphaError, AttributeError):
    """A module has no part, parameter or buffer of a name."""


class DataError(AlphaError, RuntimeError):
    """A data set's file is missing, corrupt or cannot be had."""


class CheckpointError(AlphaError, RuntimeError):
    """A checkpoint or weight file is missing, corrupt, or of another model."""


class NumericsError(AlphaError, ArithmeticError):
    """A loss or gradient stopped being finite."""


class CheckError(AlphaError, AssertionError):
    """A comparison or a check of gradients failed."""


class DistributedError(AlphaError, RuntimeError):
    """Ranks of a distributed program do not go together, or one of them is gone."""
