"""Data sets, transforms and the loader that makes batches of them: ``from alpha import datasets``."""

from __future__ import annotations

from datasets import transforms
from datasets.cifar import CIFAR10, CIFAR100
from datasets.dataset import ArrayDataset, BatchedDataset, Dataset
from datasets.digits import Digits
from datasets.faces import ORLFaces
from datasets.folder import ImageFolder
from datasets.loader import DataLoader
from datasets.mnist import MNIST, FashionMNIST
from datasets.scenes import DigitScenes

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "ArrayDataset",
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
