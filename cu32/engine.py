"""CUDAEngine: the engine of one NVIDIA GPU, gathered from its families of operations."""

from __future__ import annotations

from cu32.arrays import ArrayOperations
from cu32.convolution import ConvolutionOperations
from cu32.dropout import DropoutOperations
from cu32.graphs import GraphOperations
from cu32.images import ImageOperations
from cu32.indexing import IndexingOperations
from cu32.losses import LossOperations
from cu32.matrix import MatrixOperations
from cu32.normalisation import NormalisationOperations
from cu32.optimizers import OptimizerOperations
from cu32.pooling import PoolingOperations
from cu32.random import RandomOperations
from cu32.reductions import ReductionOperations


class CUDAEngine(
    ArrayOperations,
    ReductionOperations,
    IndexingOperations,
    MatrixOperations,
    ConvolutionOperations,
    NormalisationOperations,
    PoolingOperations,
    LossOperations,
    DropoutOperations,
    OptimizerOperations,
    RandomOperations,
    ImageOperations,
    GraphOperations,
):
    """An NVIDIA GPU: our own kernels, launched through PyCUDA."""
