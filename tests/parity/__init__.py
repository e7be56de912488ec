"""The table of PyTorch's names in docs/from-pytorch.md, made from both packages."""
