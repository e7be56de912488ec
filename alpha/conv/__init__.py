"""What the engines' convolution algorithms have in common: the problem as a value, what an algorithm is, the list.

An engine adds its own: ``alpha/cpu/conv`` and ``cu32/conv`` hold one file per algorithm; the engine's planner chooses.
"""
