"""Loops made from point-wise programs: LLVM IR of explicit vectors, compiled without Numba, and cached."""
