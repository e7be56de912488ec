// Numbers of a captured step that change from replay to replay: they come as a launch's arguments and are stored where
// the captured kernels read them. No host buffer has to outlive the call.
#include "common.cuh"

struct Piece {
    uint32 words[256];
};

extern "C" __global__ void store(Piece piece, uint32* out) { out[threadIdx.x] = piece.words[threadIdx.x]; }
