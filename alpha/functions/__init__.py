"""Differentiable functions, one file per family; ``__all__`` gathers the public ones."""

from __future__ import annotations

from alpha.functions import activation as _activation
from alpha.functions import activation_in_place as _activation_in_place
from alpha.functions import arithmetic as _arithmetic
from alpha.functions import attention as _attention
from alpha.functions import bits as _bits
from alpha.functions import casting as _casting
from alpha.functions import class_loss as _class_loss
from alpha.functions import comparison as _comparison
from alpha.functions import complex_numbers as _complex_numbers
from alpha.functions import contraction as _contraction
from alpha.functions import control as _control
from alpha.functions import conv as _conv
from alpha.functions import conv_nd as _conv_nd
from alpha.functions import creation as _creation
from alpha.functions import ctc as _ctc
from alpha.functions import diagonals as _diagonals
from alpha.functions import distance as _distance
from alpha.functions import distributions as _distributions
from alpha.functions import drawing as _drawing
from alpha.functions import drawn_activation as _drawn_activation
from alpha.functions import dropouts as _dropouts
from alpha.functions import embeddings as _embeddings
from alpha.functions import exchange as _exchange
from alpha.functions import extremes as _extremes
from alpha.functions import factorisations as _factorisations
from alpha.functions import facts as _facts
from alpha.functions import fractional as _fractional
from alpha.functions import grids as _grids
from alpha.functions import histograms as _histograms
from alpha.functions import householder as _householder
from alpha.functions import indexing as _indexing
from alpha.functions import inplace as _inplace
from alpha.functions import joining as _joining
from alpha.functions import layouts as _layouts
from alpha.functions import likelihood as _likelihood
from alpha.functions import linalg as _linalg
from alpha.functions import lookups as _lookups
from alpha.functions import loss as _loss
from alpha.functions import low_rank as _low_rank
from alpha.functions import lu_factors as _lu_factors
from alpha.functions import margin_loss as _margin_loss
from alpha.functions import matrices as _matrices
from alpha.functions import max_pooling as _max_pooling
from alpha.functions import mean_pooling as _mean_pooling
from alpha.functions import norm as _norm
from alpha.functions import normalise as _normalise
from alpha.functions import padding as _padding
from alpha.functions import piecewise as _piecewise
from alpha.functions import products as _products
from alpha.functions import pseudo_inverse as _pseudo_inverse
from alpha.functions import rearranging as _rearranging
from alpha.functions import reduction as _reduction
from alpha.functions import resizing as _resizing
from alpha.functions import rounding as _rounding
from alpha.functions import running as _running
from alpha.functions import sampling as _sampling
from alpha.functions import scattering as _scattering
from alpha.functions import segments as _segments
from alpha.functions import selection as _selection
from alpha.functions import shape as _shape
from alpha.functions import short_time as _short_time
from alpha.functions import solving as _solving
from alpha.functions import sorting as _sorting
from alpha.functions import special as _special
from alpha.functions import special_gamma as _special_gamma
from alpha.functions import splitting as _splitting
from alpha.functions import statistics as _statistics
from alpha.functions import time_first as _time_first
from alpha.functions import transcendental as _transcendental
from alpha.functions import triangular as _triangular
from alpha.functions import unpooling as _unpooling
from alpha.functions import vector_norms as _vector_norms
from alpha.functions import views as _views
from alpha.functions import windows as _windows

# After every module of the package: some of them, such as norm and dropout, have the names of functions.
from alpha.functions.activation import *  # noqa: F403
from alpha.functions.activation_in_place import *  # noqa: F403
from alpha.functions.arithmetic import *  # noqa: F403
from alpha.functions.attention import *  # noqa: F403
from alpha.functions.bits import *  # noqa: F403
from alpha.functions.casting import *  # noqa: F403
from alpha.functions.class_loss import *  # noqa: F403
from alpha.functions.comparison import *  # noqa: F403
from alpha.functions.complex_numbers import *  # noqa: F403
from alpha.functions.contraction import *  # noqa: F403
from alpha.functions.control import *  # noqa: F403
from alpha.functions.conv import *  # noqa: F403
from alpha.functions.conv_nd import *  # noqa: F403
from alpha.functions.creation import *  # noqa: F403
from alpha.functions.ctc import *  # noqa: F403
from alpha.functions.diagonals import *  # noqa: F403
from alpha.functions.distance import *  # noqa: F403
from alpha.functions.distributions import *  # noqa: F403
from alpha.functions.drawing import *  # noqa: F403
from alpha.functions.drawn_activation import *  # noqa: F403
from alpha.functions.dropouts import *  # noqa: F403
from alpha.functions.embeddings import *  # noqa: F403
from alpha.functions.exchange import *  # noqa: F403
from alpha.functions.extremes import *  # noqa: F403
from alpha.functions.factorisations import *  # noqa: F403
from alpha.functions.facts import *  # noqa: F403
from alpha.functions.fractional import *  # noqa: F403
from alpha.functions.grids import *  # noqa: F403
from alpha.functions.histograms import *  # noqa: F403
from alpha.functions.householder import *  # noqa: F403
from alpha.functions.indexing import *  # noqa: F403
from alpha.functions.inplace import *  # noqa: F403
from alpha.functions.joining import *  # noqa: F403
from alpha.functions.layouts import *  # noqa: F403
from alpha.functions.likelihood import *  # noqa: F403
from alpha.functions.linalg import *  # noqa: F403
from alpha.functions.lookups import *  # noqa: F403
from alpha.functions.loss import *  # noqa: F403
from alpha.functions.low_rank import *  # noqa: F403
from alpha.functions.lu_factors import *  # noqa: F403
from alpha.functions.margin_loss import *  # noqa: F403
from alpha.functions.matrices import *  # noqa: F403
from alpha.functions.max_pooling import *  # noqa: F403
from alpha.functions.mean_pooling import *  # noqa: F403
from alpha.functions.norm import *  # noqa: F403
from alpha.functions.normalise import *  # noqa: F403
from alpha.functions.padding import *  # noqa: F403
from alpha.functions.piecewise import *  # noqa: F403
from alpha.functions.products import *  # noqa: F403
from alpha.functions.pseudo_inverse import *  # noqa: F403
from alpha.functions.rearranging import *  # noqa: F403
from alpha.functions.reduction import *  # noqa: F403
from alpha.functions.resizing import *  # noqa: F403
from alpha.functions.rounding import *  # noqa: F403
from alpha.functions.running import *  # noqa: F403
from alpha.functions.sampling import *  # noqa: F403
from alpha.functions.scattering import *  # noqa: F403
from alpha.functions.segments import *  # noqa: F403
from alpha.functions.selection import *  # noqa: F403
from alpha.functions.shape import *  # noqa: F403
from alpha.functions.short_time import *  # noqa: F403
from alpha.functions.solving import *  # noqa: F403
from alpha.functions.sorting import *  # noqa: F403
from alpha.functions.special import *  # noqa: F403
from alpha.functions.special_gamma import *  # noqa: F403
from alpha.functions.splitting import *  # noqa: F403
from alpha.functions.statistics import *  # noqa: F403
from alpha.functions.time_first import *  # noqa: F403
from alpha.functions.transcendental import *  # noqa: F403
from alpha.functions.triangular import *  # noqa: F403
from alpha.functions.unpooling import *  # noqa: F403
from alpha.functions.vector_norms import *  # noqa: F403
from alpha.functions.views import *  # noqa: F403
from alpha.functions.windows import *  # noqa: F403

__all__: list[str] = []
__all__ += _activation.__all__
__all__ += _activation_in_place.__all__
__all__ += _arithmetic.__all__
__all__ += _attention.__all__
__all__ += _bits.__all__
__all__ += _casting.__all__
__all__ += _class_loss.__all__
__all__ += _comparison.__all__
__all__ += _complex_numbers.__all__
__all__ += _contraction.__all__
__all__ += _control.__all__
__all__ += _conv.__all__
__all__ += _conv_nd.__all__
__all__ += _creation.__all__
__all__ += _ctc.__all__
__all__ += _diagonals.__all__
__all__ += _distance.__all__
__all__ += _distributions.__all__
__all__ += _drawing.__all__
__all__ += _drawn_activation.__all__
__all__ += _dropouts.__all__
__all__ += _embeddings.__all__
__all__ += _exchange.__all__
__all__ += _extremes.__all__
__all__ += _facts.__all__
__all__ += _factorisations.__all__
__all__ += _fractional.__all__
__all__ += _grids.__all__
__all__ += _histograms.__all__
__all__ += _householder.__all__
__all__ += _indexing.__all__
__all__ += _inplace.__all__
__all__ += _joining.__all__
__all__ += _layouts.__all__
__all__ += _likelihood.__all__
__all__ += _linalg.__all__
__all__ += _lookups.__all__
__all__ += _loss.__all__
__all__ += _low_rank.__all__
__all__ += _lu_factors.__all__
__all__ += _margin_loss.__all__
__all__ += _matrices.__all__
__all__ += _max_pooling.__all__
__all__ += _mean_pooling.__all__
__all__ += _norm.__all__
__all__ += _normalise.__all__
__all__ += _padding.__all__
__all__ += _piecewise.__all__
__all__ += _products.__all__
__all__ += _pseudo_inverse.__all__
__all__ += _rearranging.__all__
__all__ += _reduction.__all__
__all__ += _resizing.__all__
__all__ += _rounding.__all__
__all__ += _running.__all__
__all__ += _sampling.__all__
__all__ += _scattering.__all__
__all__ += _segments.__all__
__all__ += _selection.__all__
__all__ += _shape.__all__
__all__ += _short_time.__all__
__all__ += _solving.__all__
__all__ += _sorting.__all__
__all__ += _special.__all__
__all__ += _special_gamma.__all__
__all__ += _splitting.__all__
__all__ += _statistics.__all__
__all__ += _time_first.__all__
__all__ += _transcendental.__all__
__all__ += _triangular.__all__
__all__ += _unpooling.__all__
__all__ += _vector_norms.__all__
__all__ += _views.__all__
__all__ += _windows.__all__
