"""Winograd's algorithm for one axis, as three matrices: of a tile's inputs d, a filter's taps g and the tile's results.

The results are A' ((G g) * (B d)); of two axes, with the same matrices on either, A' [(G g G') * (B d B')] A.

A filter is cut into runs of taps that read the input side by side: those of each remainder of the stride, and of five
taps in a row the first three and the last two. A run of r taps takes F(2, r), which makes two results from r + 1
products. Of a convolution all runs add to the same results; of an input gradient each remainder has results of its own,
as KS-deconv-V2 splits it. There are only differences and sums in A and B, and halves in G: float32 loses about a bit.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308, for F(2, 3); that strides
are cut into runs is ours, from the splitting of Zhang et al., arXiv 2306.15951.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

Matrix = tuple[tuple[float, ...], ...]

_RUNS: dict[int, tuple[Matrix, Matrix, Matrix]] = {
    1: (((1, 0), (0, 1)), ((1,), (1,)), ((1, 0), (0, 1))),
    2: (((1, -1, 0), (0, 1, 0), (0, -1, 1)), ((1, 0), (1, 1), (0, 1)), ((1, 1, 0), (0, 1, 1))),
    3: (
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
}
"""F(2, r): B, G and A', by the number of taps."""

# Each form has a type of its own, by which the kernels are compiled for it; its values are what the loops count to.
Conv3 = namedtuple("Conv3", ["inputs", "results", "places"])
Conv5 = namedtuple("Conv5", ["inputs", "results", "places"])
StridedConv3 = namedtuple("StridedConv3", ["inputs", "results", "places"])
StridedConv5 = namedtuple("StridedConv5", ["inputs", "results", "places"])
Deconv3 = namedtuple("Deconv3", ["inputs", "results", "places"])
Deconv5 = namedtuple("Deconv5", ["inputs", "results", "places"])
EvenDeconv3 = namedtuple("EvenDeconv3", ["inputs", "results", "places"])
EvenDeconv5 = namedtuple("EvenDeconv5", ["inputs", "results", "places"])
OddDeconv3 = namedtuple("OddDeconv3", ["inputs", "results", "places"])
OddDeconv5 = namedtuple("OddDeconv5", ["inputs", "results", "places"])


@dataclass(frozen=True)
class Form:
    """The matrices of an axis, and where its tiles lie.

    Tile t reads elements from ``first_input + input_step * t`` on, less the padding for a convolution, and on top whole
    strides of the padding for an input gradient. It writes from ``result_step * t`` on.
    """

    counts: Any
    taps: int
    b: Matrix
    g: Matrix
    a: Matrix
    first_input: int
    input_step: int
    result_step: int

    @property
    def places(self) -> int:
        """Products of a tile of two axes."""
        return len(self.b) ** 2


@dataclass(frozen=True)
class _Run:
    """Taps of a filter that read side by side, where their first input lies, and where their two results."""

    taps: tuple[int, ...]
    input: int
    input_step: int
    result: int
    result_step: int


def _make(kind: Any, taps: int, runs: list[_Run], steps: tuple[int, int]) -> Form:
    first = min(run.input for run in runs)
    inputs = 1 + max(run.input + run.input_step * len(run.taps) for run in runs) - first
    results = 1 + max(run.result + run.result_step for run in runs)
    b: list[list[float]] = []
    g: list[list[float]] = []
    columns: list[list[float]] = []  # of A'
    for run in runs:
        b_run, g_run, a_run = _RUNS[len(run.taps)]
        for place in range(len(b_run)):
            reads, weighs, adds = [0.0] * inputs, [0.0] * taps, [0.0] * results
            for j, factor in enumerate(b_run[place]):
                reads[run.input - first + run.input_step * j] = factor
            for tap, factor in zip(run.taps, g_run[place], strict=True):
                weighs[tap] = factor
            for k in range(2):
                adds[run.result + run.result_step * k] = a_run[k][place]
            b.append(reads)
            g.append(weighs)
            columns.append(adds)
    a = tuple(zip(*columns, strict=True))
    counts = kind(inputs, results, len(b))
    return Form(counts, taps, tuple(map(tuple, b)), tuple(map(tuple, g)), a, first, *steps)


def _convolution(kind: Any, taps: int, stride: int) -> Form:
    """A tile of two results; five taps of stride 1 are a run of three and one of two."""
    cut = [range(i, taps, stride) for i in range(stride)] if stride > 1 else [range(min(3, taps)), range(3, taps)]
    runs = [_Run(tuple(run), run.start, stride, 0, 1) for run in cut if run]
    return _make(kind, taps, runs, (2 * stride, 2))


def _input_gradient(kind: Any, taps: int, stride: int, odd: int) -> Form:
    """A tile of two results of each remainder; ``odd`` is the padding's. Taps are turned round.

    Result s k + r - p, of tap remainder r, reads outputs k, k - 1, ...: those whose r is below the padding's remainder
    have their first result one stride further on, so that tiles begin at element 0.
    """
    runs = []
    for remainder in range(stride):
        chosen = tuple(reversed(range(remainder, taps, stride)))
        later = int(remainder < odd)
        pieces = [(chosen, later - len(chosen) + 1)]
        if len(chosen) > 3:
            pieces = [(chosen[:3], pieces[0][1]), (chosen[3:], pieces[0][1] + 3)]
        for part, start in pieces:
            runs.append(_Run(part, start, 1, stride * later + remainder - odd, stride))
    return _make(kind, taps, runs, (2, 2 * stride))


FORMS = {
    (True, 3, 1, 0): _convolution(Conv3, 3, 1),
    (True, 5, 1, 0): _convolution(Conv5, 5, 1),
    (True, 3, 2, 0): _convolution(StridedConv3, 3, 2),
    (True, 5, 2, 0): _convolution(StridedConv5, 5, 2),
    (False, 3, 1, 0): _input_gradient(Deconv3, 3, 1, 0),
    (False, 5, 1, 0): _input_gradient(Deconv5, 5, 1, 0),
    (False, 3, 2, 0): _input_gradient(EvenDeconv3, 3, 2, 0),
    (False, 5, 2, 0): _input_gradient(EvenDeconv5, 5, 2, 0),
    (False, 3, 2, 1): _input_gradient(OddDeconv3, 3, 2, 1),
    (False, 5, 2, 1): _input_gradient(OddDeconv5, 5, 2, 1),
}
"""By operator (whether a convolution), taps, stride, and of input gradients the padding's remainder of the stride."""

_BY_TYPE = {type(form.counts): form for form in FORMS.values()}


def form_of(kind: Any) -> Form:
    """The form whose counts have this Numba type."""
    return _BY_TYPE[kind.instance_class]
