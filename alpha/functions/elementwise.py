"""The element-wise functions of all families, for modules that need several."""

from __future__ import annotations

from alpha.functions import arithmetic as _arithmetic
from alpha.functions import bits as _bits
from alpha.functions import casting as _casting
from alpha.functions import comparison as _comparison
from alpha.functions import rounding as _rounding
from alpha.functions import special as _special
from alpha.functions import transcendental as _transcendental
from alpha.functions.arithmetic import *  # noqa: F403
from alpha.functions.bits import *  # noqa: F403
from alpha.functions.casting import *  # noqa: F403
from alpha.functions.comparison import *  # noqa: F403
from alpha.functions.rounding import *  # noqa: F403
from alpha.functions.special import *  # noqa: F403
from alpha.functions.transcendental import *  # noqa: F403

__all__: list[str] = []
__all__ += _arithmetic.__all__
__all__ += _bits.__all__
__all__ += _casting.__all__
__all__ += _comparison.__all__
__all__ += _rounding.__all__
__all__ += _special.__all__
__all__ += _transcendental.__all__
