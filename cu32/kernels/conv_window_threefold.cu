// Sk-dilated-V2 by sliding windows, in float32, of three products in TF32 each.
#define KERNEL conv_window_threefold
#define PRODUCTS 3
#include "conv_window.cuh"
