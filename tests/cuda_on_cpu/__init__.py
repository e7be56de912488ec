"""The proof of the CUDA engine without a GPU: a driver of our own that runs the real kernel files on the CPU."""
