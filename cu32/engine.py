"""CUDAEngine: the engine of one NVIDIA GPU, gathered from its families of operations."""

from __future__ import annotations

from alpha.composed.stored import with_stored_dtypes
from alpha.cu32.dropout import DropoutOperations
from alpha.cu32.graphs import GraphOperations
from alpha.cu32.images import ImageOperations
from alpha.cu32.indexing import IndexingOperations
from alpha.cu32.losses import LossOperations
from alpha.cu32.matrix import MatrixOperations
from alpha.cu32.norm_convolutions import NormConvolutions
from alpha.cu32.optimizers import OptimizerOperations
from alpha.cu32.pooling import PoolingOperations
from alpha.cu32.random import RandomOperations
from alpha.cu32.reductions import ReductionOperations


@with_stored_dtypes
class CUDAEngine(
    DropoutOperations,
    ReductionOperations,
    IndexingOperations,
    MatrixOperations,
    NormConvolutions,
    PoolingOperations,
    LossOperations,
    OptimizerOperations,
    RandomOperations,
    ImageOperations,
    GraphOperations,
):
    """An NVIDIA GPU: our own kernels, launched through PyCUDA."""
