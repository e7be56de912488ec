// Sk-dilated-V2 by sliding windows, in TF32.
#define KERNEL conv_window_tf32
#define PRODUCTS 1
#include "conv_window.cuh"
