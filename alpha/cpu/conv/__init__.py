"""The convolutions of the CPU engine: a problem as a value, and one file for each algorithm that computes some.

``algorithms.ALGORITHMS`` lists them, in order of preference; dispatch, ``planner.use``, ``explain``, tests and
benchmarks know an algorithm by what it says of itself (``algorithm.Algorithm``) and by nothing else.
"""
