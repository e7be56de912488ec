"""Differentiable functions, one file per family; ``__all__`` gathers the public ones."""

from __future__ import annotations

from alpha.functions import activation as _activation
from alpha.functions import attention as _attention
from alpha.functions import contraction as _contraction
from alpha.functions import conv as _conv
from alpha.functions import conv_nd as _conv_nd
from alpha.functions import creation as _creation
from alpha.functions import diagonals as _diagonals
from alpha.functions import drawing as _drawing
from alpha.functions import dropout as _dropout
from alpha.functions import elementwise as _elementwise
from alpha.functions import embedding as _embedding
from alpha.functions import extremes as _extremes
from alpha.functions import grids as _grids
from alpha.functions import indexing as _indexing
from alpha.functions import inplace as _inplace
from alpha.functions import interpolate as _interpolate
from alpha.functions import joining as _joining
from alpha.functions import linalg as _linalg
from alpha.functions import lookups as _lookups
from alpha.functions import loss as _loss
from alpha.functions import norm as _norm
from alpha.functions import normalise as _normalise
from alpha.functions import padding as _padding
from alpha.functions import piecewise as _piecewise
from alpha.functions import pooling as _pooling
from alpha.functions import products as _products
from alpha.functions import reduction as _reduction
from alpha.functions import running as _running
from alpha.functions import scattering as _scattering
from alpha.functions import selection as _selection
from alpha.functions import shape as _shape
from alpha.functions import sorting as _sorting
from alpha.functions import splitting as _splitting
from alpha.functions import statistics as _statistics
from alpha.functions import vector_norms as _vector_norms
from alpha.functions import views as _views

# After every module of the package: some of them, such as norm and dropout, have the names of functions.
from alpha.functions.activation import *  # noqa: F403
from alpha.functions.attention import *  # noqa: F403
from alpha.functions.contraction import *  # noqa: F403
from alpha.functions.conv import *  # noqa: F403
from alpha.functions.conv_nd import *  # noqa: F403
from alpha.functions.creation import *  # noqa: F403
from alpha.functions.diagonals import *  # noqa: F403
from alpha.functions.drawing import *  # noqa: F403
from alpha.functions.dropout import *  # noqa: F403
from alpha.functions.elementwise import *  # noqa: F403
from alpha.functions.embedding import *  # noqa: F403
from alpha.functions.extremes import *  # noqa: F403
from alpha.functions.grids import *  # noqa: F403
from alpha.functions.indexing import *  # noqa: F403
from alpha.functions.inplace import *  # noqa: F403
from alpha.functions.interpolate import *  # noqa: F403
from alpha.functions.joining import *  # noqa: F403
from alpha.functions.linalg import *  # noqa: F403
from alpha.functions.lookups import *  # noqa: F403
from alpha.functions.loss import *  # noqa: F403
from alpha.functions.norm import *  # noqa: F403
from alpha.functions.normalise import *  # noqa: F403
from alpha.functions.padding import *  # noqa: F403
from alpha.functions.piecewise import *  # noqa: F403
from alpha.functions.pooling import *  # noqa: F403
from alpha.functions.products import *  # noqa: F403
from alpha.functions.reduction import *  # noqa: F403
from alpha.functions.running import *  # noqa: F403
from alpha.functions.scattering import *  # noqa: F403
from alpha.functions.selection import *  # noqa: F403
from alpha.functions.shape import *  # noqa: F403
from alpha.functions.sorting import *  # noqa: F403
from alpha.functions.splitting import *  # noqa: F403
from alpha.functions.statistics import *  # noqa: F403
from alpha.functions.vector_norms import *  # noqa: F403
from alpha.functions.views import *  # noqa: F403

__all__: list[str] = []
__all__ += _activation.__all__
__all__ += _attention.__all__
__all__ += _contraction.__all__
__all__ += _conv.__all__
__all__ += _conv_nd.__all__
__all__ += _creation.__all__
__all__ += _diagonals.__all__
__all__ += _drawing.__all__
__all__ += _dropout.__all__
__all__ += _elementwise.__all__
__all__ += _embedding.__all__
__all__ += _extremes.__all__
__all__ += _grids.__all__
__all__ += _indexing.__all__
__all__ += _inplace.__all__
__all__ += _interpolate.__all__
__all__ += _joining.__all__
__all__ += _linalg.__all__
__all__ += _lookups.__all__
__all__ += _loss.__all__
__all__ += _norm.__all__
__all__ += _normalise.__all__
__all__ += _padding.__all__
__all__ += _piecewise.__all__
__all__ += _pooling.__all__
__all__ += _products.__all__
__all__ += _reduction.__all__
__all__ += _running.__all__
__all__ += _scattering.__all__
__all__ += _selection.__all__
__all__ += _shape.__all__
__all__ += _sorting.__all__
__all__ += _splitting.__all__
__all__ += _statistics.__all__
__all__ += _vector_norms.__all__
__all__ += _views.__all__
