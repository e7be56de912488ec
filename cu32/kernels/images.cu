// uint8 images to float32: a window of each, mirrored or not, scaled, in the memory order of activations.
#include "common.cuh"

// out (height, width, n, channels) = (pixel - mean[c]) / divisor[c]; mean and divisor lie one behind the other in scale.
// A block owns one position (row, column) of the result for all n images of in_height x in_width pixels. The pixel of
// image n is at row places[3n] + row, column places[3n + 1] + places[3n + 2] * column, and 0 outside.
extern "C" __global__ void images_to_float(
    const uint8* x, const int* places, const float* scale, float* out, int64 n, int64 channels, int64 in_height,
    int64 in_width, int64 width
) {
    const int64 row = blockIdx.x / width, column = blockIdx.x % width;
    const int64 count = n * channels;
    out += blockIdx.x * count;
    for (int64 i = threadIdx.x; i < count; i += blockDim.x) {
        const int64 image = (uint32)i / (uint32)channels, channel = i - image * channels;
        const int* place = places + 3 * image;
        const int64 r = place[0] + row, c = place[1] + place[2] * column;
        const bool inside = r >= 0 && r < in_height && c >= 0 && c < in_width;
        const float pixel = inside ? x[((image * in_height + r) * in_width + c) * channels + channel] : 0;
        out[i] = (pixel - scale[channel]) / scale[channels + channel];
    }
}
