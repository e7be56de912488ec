// Streams, and what is submitted to them: run at once, kept until waited for, or recorded in a graph.
#pragma once
#include <cuda.h>

#include <functional>

namespace alpha_emulator {

typedef std::function<CUresult()> Work;

// Runs, queues or records the work of one asynchronous call.
CUresult submit(CUstream stream, const char* function, Work work);
// Runs what waits in all streams: before a synchronous call.
CUresult finish_all();
// Whether submitted work is recorded, so that what it reads must be copied when it is submitted.
bool runs_later(CUstream stream);

}  // namespace alpha_emulator
