// ConvV2 and KS-deconv-V2 in TF32, from patches.
#define KERNEL conv_patch_tf32
#define PRODUCTS 1
#include "conv_patch.cuh"
