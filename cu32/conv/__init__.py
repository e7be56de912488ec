"""The CUDA engine's convolution algorithms: the problem as a value, one file per algorithm, and the list of them."""
