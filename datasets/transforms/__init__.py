"""Transforms: what happens to images between the data set and the network.

The names are torchvision's, of version 1 and 2, on PIL images and tensors. A data set here gives whole batches to
those that take them (``Compose``, ``RandomCrop``, ``RandomHorizontalFlip``, ``ToTensor``, ``ToImage``,
``ToDtype(float32, scale=True)``, ``Normalize``, ``ToUnitRange``, ``AlternatingFlip``, and your own functions
``(images, rng)``), and PIL images one by one to all others. Tensors are (H, W, C), or (C, H, W) under
``alpha.set_image_layout("NCHW")``.
"""

from __future__ import annotations

from alpha.datasets.transforms import functional
from alpha.datasets.transforms.arguments import PADDING_MODES, InterpolationMode
from alpha.datasets.transforms.augmentation import AugMix, AutoAugment, RandAugment, TrivialAugmentWide
from alpha.datasets.transforms.base import Images, ImageTransform, Transform
from alpha.datasets.transforms.batches import (
    AlternatingFlip,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    ToUnitRange,
)
from alpha.datasets.transforms.colour import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from alpha.datasets.transforms.composition import Compose, Lambda, RandomApply, RandomChoice, RandomOrder
from alpha.datasets.transforms.conversion import (
    ConvertImageDtype,
    PILToTensor,
    ToDtype,
    ToImage,
    ToPILImage,
    ToTensor,
)
from alpha.datasets.transforms.geometry import (
    CenterCrop,
    FiveCrop,
    Pad,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    TenCrop,
)
from alpha.datasets.transforms.policies import AutoAugmentPolicy
from alpha.datasets.transforms.warping import ElasticTransform, RandomAffine, RandomPerspective
from alpha.datasets.transforms.whitening import LinearTransformation

__all__ = [
    "PADDING_MODES",
    "AlternatingFlip",
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "ElasticTransform",
    "FiveCrop",
    "GaussianBlur",
    "Grayscale",
    "ImageTransform",
    "Images",
    "InterpolationMode",
    "Lambda",
    "LinearTransformation",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "TenCrop",
    "ToDtype",
    "ToImage",
    "ToPILImage",
    "ToTensor",
    "ToUnitRange",
    "Transform",
    "TrivialAugmentWide",
    "functional",
]
