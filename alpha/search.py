"""Whether engines time their kernels to choose among them: a setting of the process that engines read."""

from __future__ import annotations

import os

from alpha.errors import ArgumentError, described

_on = os.environ.get("ALPHA_SEARCH", "0") not in ("", "0")


def set_search(on: bool = True) -> None:
    """Whether the CUDA engine times kernels on the first call of a new problem, from the next call on; off at first.

    On, a convolution or matrix product of shapes not met before on this kind of device runs several times with each of
    its likeliest kernels, tiles and splits, onto memory of its own (a second result, and 64 MiB), and the fastest is
    taken from then on. What was found is kept in the cache folder (``$ALPHA_CACHE``, else ``~/.cache/alpha``), so that
    later runs and other processes on such a device take the same plans and so give the same bits. A machine that has
    nothing kept searches for itself and may choose others: sums are then in another order. Off, a model chooses, the
    same everywhere. While ``alpha.graph`` captures a step nothing is timed; its first calls, which run the step as it
    is, are.

    Like PyTorch's ``torch.backends.cudnn.benchmark = True``. The environment's ``ALPHA_SEARCH=1`` turns it on from the
    start. The CPU engine has nothing to choose and takes no notice. ArgumentError where ``on`` is no bool.
    """
    global _on
    if not isinstance(on, bool):
        raise ArgumentError(f"[set_search] expected True or False, got {described(on)}")
    _on = on


def get_search() -> bool:
    """What ``set_search`` set."""
    return _on
