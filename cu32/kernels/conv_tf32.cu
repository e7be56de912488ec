// ConvV2 and KS-deconv-V2 in TF32.
#define KERNEL conv_tf32
#define PRODUCTS 1
#include "conv_tensor.cuh"
