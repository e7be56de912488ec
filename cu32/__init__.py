"""The CUDA engine: ``alpha.engine("cu32")``. Nothing here is imported before it is asked for."""
