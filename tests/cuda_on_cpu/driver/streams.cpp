#include "streams.h"

#include <chrono>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "api.h"
#include "settings.h"

namespace alpha_emulator {
namespace {

typedef std::vector<Work> Graph;

struct Stream {
    bool blocking = true;  // waits for the legacy stream, and it for this
    std::deque<Work> queue;
    Graph* capture = nullptr;
    bool spoiled = false;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id owner;
};

struct Event {
    bool timing = true;
    bool recorded = false, passed = false;
    unsigned long long record = 0;  // which of its records is the latest
    CUstream stream = nullptr;
    double milliseconds = 0;
};

std::recursive_mutex lock;
Stream legacy;
std::set<Stream*> streams;
std::set<Event*> events;
std::set<Graph*> graphs, executables;

typedef std::lock_guard<std::recursive_mutex> Hold;

double now() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Null for a handle that is no stream. 1 and 2 are the names of the default streams.
Stream* stream_of(CUstream handle) {
    if (uintptr_t(handle) <= 2) return &legacy;
    auto* stream = (Stream*)handle;
    return streams.count(stream) ? stream : nullptr;
}

CUresult no_stream(const char* function) { return fail(CUDA_ERROR_INVALID_HANDLE, format("%s: no stream", function)); }

CUresult run_queue(Stream& stream) {
    CUresult first = CUDA_SUCCESS;
    while (!stream.queue.empty()) {
        Work work = std::move(stream.queue.front());
        stream.queue.pop_front();
        CUresult result = work();
        if (first == CUDA_SUCCESS) first = result;
    }
    return first;
}

CUresult refuse_while_capturing(Stream& stream, const char* function) {
    if (!stream.capture) return CUDA_SUCCESS;
    stream.spoiled = true;
    return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, format("%s while the stream is captured", function));
}

Event* event_of(CUevent handle) {
    auto* event = (Event*)handle;
    return events.count(event) ? event : nullptr;
}

CUresult no_event(const char* function) { return fail(CUDA_ERROR_INVALID_HANDLE, format("%s: no event", function)); }

}  // namespace

CUresult refuse_in_capture(const char* function) {
    Hold hold(lock);
    for (Stream* stream : streams) {
        if (!stream->capture || stream->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (stream->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && stream->owner != std::this_thread::get_id()) continue;
        stream->spoiled = true;
        return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, format("%s while a stream is captured", function));
    }
    return CUDA_SUCCESS;
}

CUresult submit(CUstream handle, const char* function, Work work) {
    Hold hold(lock);
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream(function);
    if (stream->capture) {
        if (stream->spoiled) return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, function);
        stream->capture->push_back(std::move(work));
        return CUDA_SUCCESS;
    }
    if (stream == &legacy)
        for (Stream* other : streams)
            if (other->blocking && other->capture) {
                other->spoiled = true;
                return fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, format("%s in the default stream", function));
            }
    if (!settings().deferred) return work();
    // The legacy stream and blocking streams wait for each other.
    if (stream == &legacy) {
        for (Stream* other : streams)
            if (other->blocking)
                if (CUresult error = run_queue(*other)) return error;
    } else if (stream->blocking) {
        if (CUresult error = run_queue(legacy)) return error;
    }
    stream->queue.push_back(std::move(work));
    return CUDA_SUCCESS;
}

CUresult finish_all() {
    Hold hold(lock);
    CUresult first = run_queue(legacy);
    for (Stream* stream : streams) {
        CUresult result = run_queue(*stream);
        if (first == CUDA_SUCCESS) first = result;
    }
    return first;
}

bool runs_later(CUstream handle) {
    Hold hold(lock);
    Stream* stream = stream_of(handle);
    return settings().deferred || (stream && stream->capture);
}

}  // namespace alpha_emulator

using namespace alpha_emulator;

// -- Streams ------------------------------------------------------------------------------------------------------------

API cuStreamCreate(CUstream* out, unsigned flags) {
    NEED_CONTEXT();
    Hold hold(lock);
    auto* stream = new Stream;
    stream->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    streams.insert(stream);
    *out = (CUstream)stream;
    return CUDA_SUCCESS;
}

API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int) { return cuStreamCreate(out, flags); }

API cuStreamDestroy_v2(CUstream handle) {
    Hold hold(lock);
    Stream* stream = stream_of(handle);
    if (!stream || stream == &legacy) return no_stream("cuStreamDestroy");
    CUresult result = run_queue(*stream);
    streams.erase(stream);
    delete stream->capture;
    delete stream;
    return result;
}

API cuStreamSynchronize(CUstream handle) {
    NEED_CONTEXT();
    Hold hold(lock);
    ++counters.synchronisations;
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream("cuStreamSynchronize");
    if (CUresult error = refuse_while_capturing(*stream, "cuStreamSynchronize")) return error;
    return run_queue(*stream);
}

// Of deferred work each query does one piece, so that who polls does get through.
API cuStreamQuery(CUstream handle) {
    Hold hold(lock);
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream("cuStreamQuery");
    if (CUresult error = refuse_while_capturing(*stream, "cuStreamQuery")) return error;
    if (stream->queue.empty()) return CUDA_SUCCESS;
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (CUresult error = work()) return error;
    return CUDA_ERROR_NOT_READY;
}

API cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
    Hold hold(lock);
    Stream* stream = stream_of(handle);
    Event* event = event_of(event_handle);
    if (!stream) return no_stream("cuStreamWaitEvent");
    if (!event) return no_event("cuStreamWaitEvent");
    if (!event->recorded || stream == stream_of(event->stream)) return CUDA_SUCCESS;
    Stream* other = stream_of(event->stream);
    if (stream->capture || (other && other->capture))
        return fail(CUDA_ERROR_NOT_SUPPORTED, "the test driver captures one stream at a time");
    return submit(handle, "cuStreamWaitEvent", [event_handle] { return cuEventSynchronize(event_handle); });
}

API cuStreamAttachMemAsync(CUstream, CUdeviceptr, size_t, unsigned) { return CUDA_SUCCESS; }

API cuCtxSynchronize() {
    NEED_CONTEXT();
    ++counters.synchronisations;
    REFUSE_IN_CAPTURE("cuCtxSynchronize");
    return finish_all();
}

// -- Events -------------------------------------------------------------------------------------------------------------

API cuEventCreate(CUevent* out, unsigned flags) {
    NEED_CONTEXT();
    Hold hold(lock);
    auto* event = new Event;
    event->timing = !(flags & CU_EVENT_DISABLE_TIMING);
    events.insert(event);
    *out = (CUevent)event;
    return CUDA_SUCCESS;
}

API cuEventDestroy_v2(CUevent handle) {
    Hold hold(lock);
    Event* event = event_of(handle);
    if (!event) return no_event("cuEventDestroy");
    events.erase(event);
    delete event;
    return CUDA_SUCCESS;
}

API cuEventRecord(CUevent handle, CUstream stream) {
    Hold hold(lock);
    Event* event = event_of(handle);
    if (!event) return no_event("cuEventRecord");
    event->recorded = true;
    event->passed = false;
    event->stream = stream;
    unsigned long long record = ++event->record;
    return submit(stream, "cuEventRecord", [handle, record] {
        Event* event = event_of(handle);  // it may be gone by then
        if (event && event->record == record) {
            event->passed = true;
            event->milliseconds = now();
        }
        return CUDA_SUCCESS;
    });
}

API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) { return cuEventRecord(event, stream); }

API cuEventQuery(CUevent handle) {
    Hold hold(lock);
    Event* event = event_of(handle);
    if (!event) return no_event("cuEventQuery");
    if (!event->recorded || event->passed) return CUDA_SUCCESS;
    CUresult result = cuStreamQuery(event->stream);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
    return event->passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API cuEventSynchronize(CUevent handle) {
    Hold hold(lock);
    ++counters.synchronisations;
    Event* event = event_of(handle);
    if (!event) return no_event("cuEventSynchronize");
    if (!event->recorded || event->passed) return CUDA_SUCCESS;
    Stream* stream = stream_of(event->stream);
    if (!stream) return CUDA_SUCCESS;
    if (CUresult error = refuse_while_capturing(*stream, "cuEventSynchronize")) return error;
    while (!event->passed && !stream->queue.empty()) {
        Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        if (CUresult error = work()) return error;
    }
    return CUDA_SUCCESS;
}

API cuEventElapsedTime_v2(float* milliseconds, CUevent first, CUevent second) {
    Hold hold(lock);
    Event *a = event_of(first), *b = event_of(second);
    if (!a || !b) return no_event("cuEventElapsedTime");
    if (!a->timing || !b->timing || !a->recorded || !b->recorded)
        return fail(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime of an event that was not recorded or keeps no time");
    if (!a->passed || !b->passed) return CUDA_ERROR_NOT_READY;
    *milliseconds = float(b->milliseconds - a->milliseconds);
    return CUDA_SUCCESS;
}

#undef cuEventElapsedTime  // the header's name for the second version; PyCUDA of older toolkits asks for the first
API cuEventElapsedTime(float* milliseconds, CUevent first, CUevent second) {
    return cuEventElapsedTime_v2(milliseconds, first, second);
}

// -- Graphs -------------------------------------------------------------------------------------------------------------

API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    NEED_CONTEXT();
    Hold hold(lock);
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream("cuStreamBeginCapture");
    if (stream == &legacy) return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot be captured");
    if (stream->capture) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is captured already");
    if (CUresult error = run_queue(*stream)) return error;
    stream->capture = new Graph;
    stream->spoiled = false;
    stream->mode = mode;
    stream->owner = std::this_thread::get_id();
    return CUDA_SUCCESS;
}

API cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    Hold hold(lock);
    *graph = nullptr;
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream("cuStreamEndCapture");
    if (!stream->capture) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is not captured");
    Graph* captured = stream->capture;
    stream->capture = nullptr;
    if (stream->spoiled) {
        delete captured;
        return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, reason_of(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    }
    graphs.insert(captured);
    *graph = (CUgraph)captured;
    return CUDA_SUCCESS;
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
    Hold hold(lock);
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream("cuStreamIsCapturing");
    *status = !stream->capture ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->spoiled ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

API cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    Hold hold(lock);
    auto* graph = (Graph*)handle;
    if (!graphs.count(graph)) return fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphGetNodes: no graph");
    if (nodes) return fail(CUDA_ERROR_NOT_SUPPORTED, "the test driver counts a graph's nodes only");
    *count = graph->size();
    return CUDA_SUCCESS;
}

API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph handle, unsigned long long) {
    Hold hold(lock);
    auto* graph = (Graph*)handle;
    if (!graphs.count(graph)) return fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphInstantiate: no graph");
    auto* executable = new Graph(*graph);
    executables.insert(executable);
    *out = (CUgraphExec)executable;
    return CUDA_SUCCESS;
}

API cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }

API cuGraphLaunch(CUgraphExec handle, CUstream stream) {
    NEED_CONTEXT();
    Hold hold(lock);
    auto* executable = (Graph*)handle;
    if (!executables.count(executable)) return fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphLaunch: no executable graph");
    ++counters.graph_launches;
    return submit(stream, "cuGraphLaunch", [executable] {
        for (Work& work : *executable)
            if (CUresult error = work()) return error;
        return CUDA_SUCCESS;
    });
}

API cuGraphExecDestroy(CUgraphExec handle) {
    Hold hold(lock);
    auto* executable = (Graph*)handle;
    if (CUresult error = finish_all()) return error;
    if (!executables.erase(executable)) return fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphExecDestroy: no executable graph");
    delete executable;
    return CUDA_SUCCESS;
}

API cuGraphDestroy(CUgraph handle) {
    Hold hold(lock);
    auto* graph = (Graph*)handle;
    if (!graphs.erase(graph)) return fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphDestroy: no graph");
    delete graph;
    return CUDA_SUCCESS;
}
