"""Data sets, transforms and the loader that makes batches of them: ``from alpha import datasets``."""

from __future__ import annotations

from alpha.datasets import transforms
from alpha.datasets.cifar import CIFAR10, CIFAR100
from alpha.datasets.dataset import ArrayDataset, BatchedDataset, Dataset
from alpha.datasets.digits import Digits
from alpha.datasets.faces import ORLFaces
from alpha.datasets.folder import ImageFolder
from alpha.datasets.generator import BatchGenerator
from alpha.datasets.loader import DataLoader
from alpha.datasets.mnist import MNIST, FashionMNIST
from alpha.datasets.scenes import DigitScenes

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "ArrayDataset",
    "BatchGenerator",
    "BatchedDataset",
    "DataLoader",
    "Dataset",
    "DigitScenes",
    "Digits",
    "FashionMNIST",
    "ImageFolder",
    "ORLFaces",
    "transforms",
]
