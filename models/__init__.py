"""torchvision's networks under its names: ``from alpha import models`` replaces torchvision's import.

``models.resnet50(num_classes=10)`` takes torchvision's arguments, and its state dict has torchvision's names. Made with
``layout="NCHW"``, or under ``alpha.set_image_layout("NCHW")``, its images and state dict are PyTorch's as they are.
Otherwise images are (N, H, W, C), and ``nn.models.from_torch(state, net)`` converts a state dict. Weights are not
downloaded. The networks of the paper are in ``alpha.nn.models``.
"""

from __future__ import annotations

from alpha.models.alexnet import (
    AlexNet,
    alexnet,
)
from alpha.models.convnext import (
    ConvNeXt,
    convnext_base,
    convnext_large,
    convnext_small,
    convnext_tiny,
)
from alpha.models.densenet import (
    DenseNet,
    densenet121,
    densenet161,
    densenet169,
    densenet201,
)
from alpha.models.efficientnet import (
    EfficientNet,
    efficientnet_b0,
    efficientnet_b1,
    efficientnet_b2,
    efficientnet_b3,
    efficientnet_b4,
    efficientnet_b5,
    efficientnet_b6,
    efficientnet_b7,
    efficientnet_v2_l,
    efficientnet_v2_m,
    efficientnet_v2_s,
)
from alpha.models.googlenet import (
    GoogLeNet,
    GoogLeNetOutputs,
    googlenet,
)
from alpha.models.inception import (
    Inception3,
    InceptionOutputs,
    inception_v3,
)
from alpha.models.mnasnet import (
    MNASNet,
    mnasnet0_5,
    mnasnet0_75,
    mnasnet1_0,
    mnasnet1_3,
)
from alpha.models.mobilenetv2 import (
    MobileNetV2,
    mobilenet_v2,
)
from alpha.models.mobilenetv3 import (
    MobileNetV3,
    mobilenet_v3_large,
    mobilenet_v3_small,
)
from alpha.models.registry import (
    get_model,
    get_model_builder,
    list_models,
)
from alpha.models.resnet import (
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    resnext50_32x4d,
    resnext101_32x8d,
    resnext101_64x4d,
    wide_resnet50_2,
    wide_resnet101_2,
)
from alpha.models.shufflenetv2 import (
    ShuffleNetV2,
    shufflenet_v2_x0_5,
    shufflenet_v2_x1_0,
    shufflenet_v2_x1_5,
    shufflenet_v2_x2_0,
)
from alpha.models.squeezenet import (
    SqueezeNet,
    squeezenet1_0,
    squeezenet1_1,
)
from alpha.models.vgg import (
    VGG,
    vgg11,
    vgg11_bn,
    vgg13,
    vgg13_bn,
    vgg16,
    vgg16_bn,
    vgg19,
    vgg19_bn,
)
from alpha.models.vision_transformer import (
    VisionTransformer,
    vit_b_16,
    vit_b_32,
    vit_h_14,
    vit_l_16,
    vit_l_32,
)

__all__ = [
    "VGG",
    "AlexNet",
    "ConvNeXt",
    "DenseNet",
    "EfficientNet",
    "GoogLeNet",
    "GoogLeNetOutputs",
    "Inception3",
    "InceptionOutputs",
    "MNASNet",
    "MobileNetV2",
    "MobileNetV3",
    "ResNet",
    "ShuffleNetV2",
    "SqueezeNet",
    "VisionTransformer",
    "alexnet",
    "convnext_base",
    "convnext_large",
    "convnext_small",
    "convnext_tiny",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "efficientnet_b0",
    "efficientnet_b1",
    "efficientnet_b2",
    "efficientnet_b3",
    "efficientnet_b4",
    "efficientnet_b5",
    "efficientnet_b6",
    "efficientnet_b7",
    "efficientnet_v2_l",
    "efficientnet_v2_m",
    "efficientnet_v2_s",
    "get_model",
    "get_model_builder",
    "googlenet",
    "inception_v3",
    "list_models",
    "mnasnet0_5",
    "mnasnet0_75",
    "mnasnet1_0",
    "mnasnet1_3",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "resnext101_64x4d",
    "shufflenet_v2_x0_5",
    "shufflenet_v2_x1_0",
    "shufflenet_v2_x1_5",
    "shufflenet_v2_x2_0",
    "squeezenet1_0",
    "squeezenet1_1",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
    "vit_b_16",
    "vit_b_32",
    "vit_h_14",
    "vit_l_16",
    "vit_l_32",
    "wide_resnet50_2",
    "wide_resnet101_2",
]
