"""The CUDA engine's place. The engine itself is not written yet: ``alpha.engine("cu32")`` says so."""
