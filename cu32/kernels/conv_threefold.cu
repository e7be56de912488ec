// ConvV2 and KS-deconv-V2 in float32, of three products in TF32 each.
#define KERNEL conv_threefold
#define PRODUCTS 3
#include "conv_tensor.cuh"
