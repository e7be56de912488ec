"""The differentiable functions that layers call, under PyTorch's names; channels are the last axis.

Those of whole families come from ``alpha/functions`` by themselves, a new one too.
"""

from __future__ import annotations

from alpha.functions import activation as _activation
from alpha.functions import activation_in_place as _activation_in_place
from alpha.functions import attention as _attention
from alpha.functions import batch_norm, bilinear, linear, one_hot, sigmoid, tanh
from alpha.functions import class_loss as _class_loss
from alpha.functions import conv as _conv
from alpha.functions import conv_nd as _conv_nd
from alpha.functions import ctc as _ctc
from alpha.functions import distance as _distance
from alpha.functions import drawn_activation as _drawn_activation
from alpha.functions import dropouts as _dropouts
from alpha.functions import embeddings as _embeddings
from alpha.functions import folding as _folding
from alpha.functions import fractional as _fractional
from alpha.functions import likelihood as _likelihood
from alpha.functions import loss as _loss
from alpha.functions import margin_loss as _margin_loss
from alpha.functions import max_pooling as _max_pooling
from alpha.functions import mean_pooling as _mean_pooling
from alpha.functions import multi_head as _multi_head
from alpha.functions import normalise as _normalise
from alpha.functions import padding as _padding
from alpha.functions import piecewise as _piecewise
from alpha.functions import rearranging as _rearranging
from alpha.functions import resizing as _resizing
from alpha.functions import sampling as _sampling
from alpha.functions import time_first as _time_first
from alpha.functions import unpooling as _unpooling
from alpha.functions import with_indices as _with_indices
from alpha.functions.activation import *  # noqa: F403
from alpha.functions.activation_in_place import *  # noqa: F403
from alpha.functions.attention import *  # noqa: F403
from alpha.functions.class_loss import *  # noqa: F403
from alpha.functions.conv import *  # noqa: F403
from alpha.functions.conv_nd import *  # noqa: F403
from alpha.functions.ctc import *  # noqa: F403
from alpha.functions.distance import *  # noqa: F403
from alpha.functions.drawn_activation import *  # noqa: F403
from alpha.functions.dropouts import *  # noqa: F403
from alpha.functions.embeddings import *  # noqa: F403
from alpha.functions.folding import *  # noqa: F403
from alpha.functions.fractional import *  # noqa: F403
from alpha.functions.likelihood import *  # noqa: F403
from alpha.functions.loss import *  # noqa: F403
from alpha.functions.margin_loss import *  # noqa: F403
from alpha.functions.max_pooling import *  # noqa: F403
from alpha.functions.mean_pooling import *  # noqa: F403
from alpha.functions.multi_head import *  # noqa: F403
from alpha.functions.normalise import *  # noqa: F403
from alpha.functions.padding import *  # noqa: F403
from alpha.functions.piecewise import *  # noqa: F403
from alpha.functions.rearranging import *  # noqa: F403
from alpha.functions.resizing import *  # noqa: F403
from alpha.functions.sampling import *  # noqa: F403
from alpha.functions.time_first import *  # noqa: F403
from alpha.functions.unpooling import *  # noqa: F403
from alpha.functions.with_indices import *  # noqa: F403

__all__ = ["batch_norm", "bilinear", "linear", "one_hot", "sigmoid", "tanh"]
__all__ += _activation.__all__
__all__ += _activation_in_place.__all__
__all__ += _attention.__all__
__all__ += _class_loss.__all__
__all__ += _conv.__all__
__all__ += _conv_nd.__all__
__all__ += _drawn_activation.__all__
__all__ += _ctc.__all__
__all__ += _distance.__all__
__all__ += _dropouts.__all__
__all__ += _embeddings.__all__
__all__ += _folding.__all__
__all__ += _fractional.__all__
__all__ += _likelihood.__all__
__all__ += _loss.__all__
__all__ += _margin_loss.__all__
__all__ += _max_pooling.__all__
__all__ += _mean_pooling.__all__
__all__ += _multi_head.__all__
__all__ += _normalise.__all__
__all__ += _padding.__all__
__all__ += _piecewise.__all__
__all__ += _rearranging.__all__
__all__ += _resizing.__all__
__all__ += _sampling.__all__
__all__ += _time_first.__all__
__all__ += _unpooling.__all__
__all__ += _with_indices.__all__
