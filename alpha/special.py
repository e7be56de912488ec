"""alpha.special: special functions, and others of NumPy's and SciPy's kind, under the names of ``torch.special``."""

from __future__ import annotations

from alpha.functions.activation import log_softmax, softmax
from alpha.functions.rounding import round
from alpha.functions.special import (
    digamma,
    entr,
    erfcx,
    i0,
    i0e,
    i1,
    i1e,
    lgamma,
    log_ndtr,
    logit,
    mvlgamma,
    ndtr,
    ndtri,
    polygamma,
    xlog1py,
    xlogy,
    zeta,
)
from alpha.functions.transcendental import erf, erfc, erfinv, exp2, expm1, log1p, sigmoid, sinc
from alpha.functions.vector_norms import logsumexp

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammaln", "i0", "i0e", "i1", "i1e",
    "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "polygamma", "psi",
    "round", "sinc", "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

# The names that these have in this namespace alone.
expit, gammaln, multigammaln, psi = sigmoid, lgamma, mvlgamma, digamma
