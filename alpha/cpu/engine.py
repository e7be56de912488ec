"""CPUEngine: the embedded engine, gathered from its families of operations."""

from __future__ import annotations

from alpha import graphs
from alpha.composed.stored import with_stored_dtypes
from alpha.cpu.along_axis import AxisOperations
from alpha.cpu.attention import AttentionOperations
from alpha.cpu.convolution import ConvolutionOperations
from alpha.cpu.dropout import DropoutOperations
from alpha.cpu.figures import digest
from alpha.cpu.fills import FillOperations
from alpha.cpu.group_norm import GroupNormOperations
from alpha.cpu.isa import ISA
from alpha.cpu.losses import LossOperations
from alpha.cpu.normalisation import NormalisationOperations
from alpha.cpu.one_hot import OneHotOperations
from alpha.cpu.optimizers import OptimizerOperations
from alpha.cpu.padding import PaddingOperations
from alpha.cpu.pooling import PoolingOperations
from alpha.cpu.products import ProductOperations
from alpha.cpu.random import RandomOperations
from alpha.cpu.reductions import ReductionOperations
from alpha.cpu.resampling import ResamplingOperations
from alpha.cpu.row_norms import RowNormOperations
from alpha.cpu.sums import SumOperations


@with_stored_dtypes
class CPUEngine(
    ReductionOperations,
    AxisOperations,
    ProductOperations,
    ConvolutionOperations,
    NormalisationOperations,
    RowNormOperations,
    PaddingOperations,
    GroupNormOperations,
    AttentionOperations,
    PoolingOperations,
    ResamplingOperations,
    LossOperations,
    OneHotOperations,
    DropoutOperations,
    RandomOperations,
    FillOperations,
    SumOperations,
    OptimizerOperations,
):
    """Computes on the host: NumPy for general operations, compiled kernels where training spends its time."""

    def recorder(self) -> graphs.Recorder:
        from alpha.cpu.graphs import Recorder  # here: its engine during a step is one of these

        return Recorder(self)

    @property
    def numerics(self) -> str:
        """The instruction path, and the figures by which algorithms of convolutions are chosen."""
        return f"{ISA.name}, figures {digest()}"
