// The two ways an operand of a matrix product lies in memory, seen from a tile of the result.
#pragma once
#include "common.cuh"

// ALONG: neighbours along the tile's edge (rows of a left operand, columns of a right one) are neighbours in memory, the
// depth, which the product sums over, lies a leading dimension apart. ACROSS: the other way round.
enum Layout { ALONG, ACROSS };
