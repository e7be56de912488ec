"""Winograd's algorithm for one axis, as matrices B, G and A for a tile's inputs d, a filter's taps g and the results.

The results are A' ((G g) * (B d)), and for two axes with the same matrices A' [(G g G') * (B d B')] A.

A filter is cut into runs of taps that read neighbouring inputs: the taps of each remainder of the stride, and of five
neighbouring taps the first three and the last two. A run of r taps takes F(2, r), which makes two results from r + 1
products. In a convolution all runs add to the same results; in an input gradient each remainder has separate results,
as KS-deconv-V2 splits it. A and B hold only 0, 1 and -1, and G also halves: float32 loses about a bit.

Three taps at stride 1 may take F(4, 3) instead: four results from six products; or F(3, 3), three from five, whose
tiles fit maps of 3, 5, 6 and 9. Their factors are powers of the points at which polynomials are compared. At 0, +-5/8,
+-3/2 and infinity the sums' error is five times that of F(2, 3), a third of what the usual +-1 and +-2 lead to; that of
F(3, 3), at +-3/8, +-5/4 and infinity, is less than twice it. Points found by experiment, see
tests/engine/test_cpu_algorithms.py.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308, for F(2, 3) and F(4, 3);
that the choice of points matters: Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd Convolution
for Deep Neural Networks", arXiv 1803.10986; that strides are cut into runs is ours, from the splitting of Zhang et al.,
arXiv 2306.15951.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Matrix = tuple[tuple[float, ...], ...]


def transposed(matrix: Matrix) -> Matrix:
    """The matrix with its columns as rows."""
    return tuple(zip(*matrix, strict=True))


def _polynomial(roots: list[float]) -> list[float]:
    """The coefficients, the constant first, of the product of all (x - root)."""
    made = [1.0]
    for root in roots:
        made = [low - root * high for low, high in zip([0.0, *made], [*made, 0.0], strict=True)]
    return made


def _toom_cook(made: int, taps: int, points: list[float]) -> tuple[Matrix, Matrix, Matrix]:
    """The matrices of F(made, taps) from the points and infinity: one point fewer than there are products."""
    b, g = [], []
    for x in points:
        others = [other for other in points if other != x]
        weight = 1 / math.prod(x - other for other in others)
        b.append((*_polynomial(others), 0.0))
        g.append(tuple(weight * x**power for power in range(taps)))
    b.append(tuple(_polynomial(points)))
    g.append((*[0.0] * (taps - 1), 1.0))
    a = tuple((*(x**power for x in points), float(power == made - 1)) for power in range(made))
    return tuple(b), tuple(g), a


_RUNS: dict[tuple[int, int], tuple[Matrix, Matrix, Matrix]] = {
    (2, 1): (((1, 0), (0, 1)), ((1,), (1,)), ((1, 0), (0, 1))),
    (2, 2): (((1, -1, 0), (0, 1, 0), (0, -1, 1)), ((1, 0), (1, 1), (0, 1)), ((1, 1, 0), (0, 1, 1))),
    (2, 3): (
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    (3, 3): _toom_cook(3, 3, [0.375, -0.375, 1.25, -1.25]),
    (4, 3): _toom_cook(4, 3, [0.0, 0.625, -0.625, 1.5, -1.5]),
}
"""B, G and A' of a run, by the numbers of its results and taps."""


@dataclass(frozen=True, eq=False)
class Form:
    """The matrices of an axis, and where its tiles lie.

    Tile t reads elements from ``first_input + input_step * t`` on: minus the padding for a convolution, plus the
    padding's whole strides for an input gradient. It writes elements from ``result_step * t`` on.
    """

    name: str
    taps: int
    b: Matrix
    g: Matrix
    a: Matrix
    first_input: int
    input_step: int
    result_step: int

    @property
    def inputs(self) -> int:
        """Input elements of a tile."""
        return len(self.b[0])

    @property
    def results(self) -> int:
        """Results of a tile."""
        return len(self.a)

    @property
    def places(self) -> int:
        """Products of a tile over two axes."""
        return len(self.b) ** 2


@dataclass(frozen=True)
class Feedback:
    """How the errors of rounding some places along an axis are made up for at others, which are rounded after them.

    An error of ``shares[i][j]`` at place i for each of place j leaves no more, or least, of it in the results.

    Attributes:
        of_inputs, of_filters: the shares, by place and place, of transformed inputs and of transformed filters.
    """

    of_inputs: Matrix
    of_filters: Matrix


_HALF_SUM, _NOTHING = (0, 0.5, 0.5, 0), (0, 0, 0, 0)

FEEDBACK_OF_TWO = Feedback(
    ((0, -0.5, -0.5, 0), _NOTHING, _NOTHING, (0, 0.5, -0.5, 0)), (_HALF_SUM, _NOTHING, _NOTHING, _HALF_SUM)
)
"""The feedback of F(2, 3), whose results are m0 + m1 + m2 and m1 - m2 - m3.

Errors e of transformed inputs multiply (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2): the first result has
e0 + (e1 + e2) / 2 times g0, the second e3 - (e1 - e2) / 2 times -g2, and these are the only ones with e0 and e3, which
can make them 0. Errors of transformed filters multiply (d0 - d2, d1 + d2, d2 - d1, d1 - d3): the first result has e0
times d0 and e1 + e2 - e0 times d2, whose squares' sum is least where e0 is half of e1 + e2; likewise e3. For two axes
the shares of both are taken one after the other. Of random factors the results' error is four fifths of what it is
without.
"""


@dataclass(frozen=True)
class _Run:
    """Taps of a filter that read neighbouring inputs; the first input and first result, and their steps."""

    taps: tuple[int, ...]
    input: int
    input_step: int
    result: int
    result_step: int


def _make(name: str, taps: int, runs: list[_Run], made: int, steps: tuple[int, int]) -> Form:
    """The form made of runs, each of which makes ``made`` results."""
    first = min(run.input for run in runs)
    inputs = 1 + max(run.input + run.input_step * (len(run.taps) + made - 2) for run in runs) - first
    results = 1 + max(run.result + run.result_step * (made - 1) for run in runs)
    b: list[list[float]] = []
    g: list[list[float]] = []
    columns: list[list[float]] = []  # of A'
    for run in runs:
        b_run, g_run, a_run = _RUNS[made, len(run.taps)]
        for place in range(len(b_run)):
            reads, weighs, adds = [0.0] * inputs, [0.0] * taps, [0.0] * results
            for j, factor in enumerate(b_run[place]):
                reads[run.input - first + run.input_step * j] = factor
            for tap, factor in zip(run.taps, g_run[place], strict=True):
                weighs[tap] = factor
            for k in range(made):
                adds[run.result + run.result_step * k] = a_run[k][place]
            b.append(reads)
            g.append(weighs)
            columns.append(adds)
    a = transposed(tuple(map(tuple, columns)))
    return Form(name, taps, tuple(map(tuple, b)), tuple(map(tuple, g)), a, first, *steps)


def _convolution(taps: int, stride: int, made: int = 2) -> Form:
    """The form of a convolution, ``made`` results per tile; five taps of stride 1 are a run of three and one of two."""
    cut = [range(i, taps, stride) for i in range(stride)] if stride > 1 else [range(min(3, taps)), range(3, taps)]
    runs = [_Run(tuple(run), run.start, stride, 0, 1) for run in cut if run]
    return _make(f"conv_{taps}_{stride}_{made}", taps, runs, made, (made * stride, made))


def _input_gradient(taps: int, stride: int, odd: int, made: int = 2) -> Form:
    """The form of an input gradient, ``made`` results per remainder and tile, with the taps in reverse order.

    ``odd``: the padding's remainder of the stride. Result s k + r - p, of tap remainder r, reads outputs k, k - 1, ...
    Where r is below ``odd`` the first result lies one stride further, so that tiles begin at element 0.
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
    return _make(f"deconv_{taps}_{stride}_{odd}_{made}", taps, runs, made, (made, made * stride))


Key = tuple[bool, int, int, int]
"""Whether a convolution, taps, stride and, for an input gradient, the padding's remainder of the stride."""

_OF_TWO: dict[Key, Form] = {
    **{(True, taps, stride, 0): _convolution(taps, stride) for taps in (3, 5) for stride in (1, 2)},
    **{
        (False, taps, stride, odd): _input_gradient(taps, stride, odd)
        for taps in (3, 5)
        for stride in (1, 2)
        for odd in range(stride)
    },
}

FORMS: dict[int, dict[Key, Form]] = {
    2: _OF_TWO,
    **{
        made: {(True, 3, 1, 0): _convolution(3, 1, made), (False, 3, 1, 0): _input_gradient(3, 1, 0, made)}
        for made in (3, 4)
    },
}
"""Forms by the number of results per run."""
