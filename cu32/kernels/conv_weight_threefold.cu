// Sk-dilated-V2 in float32, of three products in TF32 each.
#define KERNEL conv_weight_threefold
#define PRODUCTS 3
#include "conv_weight_tensor.cuh"
