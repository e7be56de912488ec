"""The CPU engine's compiled kernels."""
