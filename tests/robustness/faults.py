"""What goes wrong in a call, and which errors a call may raise."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

from alpha.errors import AlphaError
from alpha.functions import autocasting, images

MESSAGE = re.compile(r"^\[[^\]\s]+\] expected .+?, got ", re.S)
"""The form of every error's message."""


@dataclass
class Fault:
    """What went wrong in one call.

    Attributes:
        kind: "crash", "hang", "unclean" (an error of the wrong class or form), "refused" (an error where there is a
            result), "value", "gradient", "shape", "overwritten" (an argument changed) or "memory".
        detail: what differs; ``what`` is the part of it that tells it from other faults of this function.
    """

    index: int
    record: str
    kind: str
    what: str
    detail: str
    size: int
    text: str

    @property
    def signature(self) -> tuple[str, str, str]:
        """Calls with the same signature count as one fault."""
        return self.record, self.kind, self.what


class Failure(Exception):
    """A call that went wrong: (kind, what, detail)."""


def check_message(error: AlphaError) -> None:
    if not MESSAGE.match(str(error)):
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise Failure("unclean", f"message at {place.name}", f"{type(error).__name__} without the form: {error}")


def unclean(error: Exception, phase: str) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if "site-packages" not in f.filename), frames[-1])
    if isinstance(error, AlphaError):
        return Failure("refused", f"{phase}{type(error).__name__}", f"{phase}{type(error).__name__}: {error}")
    what = f"{phase}{type(error).__name__} in {place.name}"
    return Failure(
        "unclean", what, f"{phase}{type(error).__name__}: {str(error)[:300]} ({place.filename}:{place.lineno})"
    )


_DECORATORS = (autocasting.__file__, images.__file__)
"""Where decorators of functions stand, which hand on what they are given."""


def is_signature(error: TypeError) -> bool:
    """Whether Python itself refused the arguments at the call, as for any function, or behind its decorators."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code.co_filename not in _DECORATORS:
            break
        trace = trace.tb_next
    return trace is not None and trace.tb_next is None
