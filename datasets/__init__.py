"""Data sets, transforms and the loader that makes batches of them: ``from alpha import datasets``."""

from __future__ import annotations

from alpha.datasets import transforms
from alpha.datasets.cifar import CIFAR10, CIFAR100
from alpha.datasets.collate import default_collate, default_convert
from alpha.datasets.composed import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from alpha.datasets.dataset import ArrayDataset, BatchedDataset, Indexed
from alpha.datasets.digits import Digits
from alpha.datasets.emnist import EMNIST
from alpha.datasets.faces import ORLFaces
from alpha.datasets.fake import FakeData
from alpha.datasets.folder import ImageFolder
from alpha.datasets.generator import BatchGenerator
from alpha.datasets.labelled_files import DatasetFolder
from alpha.datasets.loader import DataLoader
from alpha.datasets.mnist import MNIST, FashionMNIST
from alpha.datasets.samplers import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from alpha.datasets.scenes import DigitScenes
from alpha.datasets.shared_sampler import DistributedSampler
from alpha.datasets.stl import STL10
from alpha.datasets.svhn import SVHN
from alpha.datasets.vision import VisionDataset
from alpha.datasets.worker_info import WorkerInfo, get_worker_info

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "EMNIST",
    "MNIST",
    "STL10",
    "SVHN",
    "ArrayDataset",
    "BatchGenerator",
    "BatchSampler",
    "BatchedDataset",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DatasetFolder",
    "DigitScenes",
    "Digits",
    "DistributedSampler",
    "FakeData",
    "FashionMNIST",
    "ImageFolder",
    "Indexed",
    "IterableDataset",
    "ORLFaces",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "VisionDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
    "transforms",
]
