"""Functions of one image, a PIL image or a tensor (H, W, C), or (C, H, W) under ``set_image_layout("NCHW")``.

Tensors may have more axes in front, so that a batch is turned at once. The names and arguments are torchvision's.
"""

from __future__ import annotations

from alpha.datasets.transforms.arguments import InterpolationMode, get_dimensions, get_image_size
from alpha.datasets.transforms.functional_colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    equalize,
    gaussian_blur,
    invert,
    posterize,
    rgb_to_grayscale,
    solarize,
    to_grayscale,
)
from alpha.datasets.transforms.functional_conversion import (
    normalize,
    pil_to_tensor,
    to_dtype,
    to_image,
    to_pil_image,
    to_tensor,
)
from alpha.datasets.transforms.functional_geometry import (
    center_crop,
    crop,
    erase,
    five_crop,
    hflip,
    horizontal_flip,
    pad,
    resize,
    resized_crop,
    rotate,
    ten_crop,
    vertical_flip,
    vflip,
)
from alpha.datasets.transforms.functional_warping import affine, elastic, elastic_transform, perspective

__all__ = [
    "InterpolationMode",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "affine",
    "autocontrast",
    "center_crop",
    "crop",
    "elastic",
    "elastic_transform",
    "equalize",
    "erase",
    "five_crop",
    "gaussian_blur",
    "get_dimensions",
    "get_image_size",
    "hflip",
    "horizontal_flip",
    "invert",
    "normalize",
    "pad",
    "perspective",
    "pil_to_tensor",
    "posterize",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rotate",
    "solarize",
    "ten_crop",
    "to_dtype",
    "to_grayscale",
    "to_image",
    "to_pil_image",
    "to_tensor",
    "vertical_flip",
    "vflip",
]
