// Matrix products in TF32.
#define KERNEL gemm_tf32
#define PRODUCTS 1
#include "gemm_tensor.cuh"
