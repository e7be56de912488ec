"""Random numbers: Philox4x32-10, counter-based, so that every engine and thread count draws the same.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A draw is a function of (seed, offset, element):
counter = offset + element // 4, word = element % 4, key = seed.
"""
