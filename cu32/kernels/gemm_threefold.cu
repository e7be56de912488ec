// Matrix products in float32, of three products in TF32 each.
#define KERNEL gemm_threefold
#define PRODUCTS 3
#include "gemm_tensor.cuh"
