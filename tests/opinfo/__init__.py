"""PyTorch's own samples of its functions, tried on ours."""
