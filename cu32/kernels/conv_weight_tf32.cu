// Sk-dilated-V2 in TF32.
#define KERNEL conv_weight_tf32
#define PRODUCTS 1
#include "conv_weight_tensor.cuh"
