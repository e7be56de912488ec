#include "streams.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "api.h"
#include "settings.h"

namespace alpha_emulator {
namespace {

// How many of each lane's nodes come before something. A lane is what one stream has given to a graph.
typedef std::vector<size_t> Clock;

struct Node {
    size_t lane;
    Clock needs;
    Work work;
};

typedef std::vector<Node> Graph;

struct Stream;

// What becomes a graph: the work of the stream whose capture began, and of streams that came to wait for it.
struct Capture {
    Stream* origin;
    CUstreamCaptureMode mode;
    std::thread::id owner;
    bool spoiled = false;
    Graph graph;
    Clock counts;  // nodes of each lane
};

typedef std::shared_ptr<Capture> Capturing;

struct Stream {
    bool blocking = true;  // waits for the legacy stream, and it for this
    std::deque<Work> queue;
    Capturing capture;
    size_t lane = 0;
    Clock clock;  // what comes before its next node
};

// A point in a stream. Who waits for an event waits for the point that it had then, whatever it is recorded to later.
struct Mark {
    CUstream stream;
    bool passed = false;
    double milliseconds = 0;
};

struct Event {
    bool timing = true;
    std::shared_ptr<Mark> mark;  // of the latest record
    Capturing capture;           // where it was recorded in one
    Clock clock;
};

std::recursive_mutex lock;
thread_local int holds = 0;
Stream legacy;
std::set<Stream*> streams;
std::set<Event*> events;
std::set<Graph*> graphs, executables;

struct Hold {
    Hold() { lock.lock(), ++holds; }
    ~Hold() { --holds, lock.unlock(); }
};

// Lets other threads go on for as long as a function of the program's runs.
struct Release {
    int held = holds;
    Release() {
        for (int i = 0; i < held; ++i) lock.unlock();
        holds = 0;
    }
    ~Release() {
        for (int i = 0; i < held; ++i) lock.lock();
        holds = held;
    }
};

void merge(Clock& clock, const Clock& other) {
    clock.resize(std::max(clock.size(), other.size()));
    for (size_t lane = 0; lane < other.size(); ++lane) clock[lane] = std::max(clock[lane], other[lane]);
}

void record(Stream& stream, Work work) {
    Capture& capture = *stream.capture;
    capture.graph.push_back({stream.lane, stream.clock, std::move(work)});
    stream.clock.resize(capture.counts.size());
    stream.clock[stream.lane] = ++capture.counts[stream.lane];
}

// Runs a graph: the first lane's nodes, and others' when one that comes next needs them, so as late as may be.
CUresult run_graph(const Graph& graph) {
    std::vector<std::vector<const Node*>> lanes;
    for (const Node& node : graph) {
        if (node.lane >= lanes.size()) lanes.resize(node.lane + 1);
        lanes[node.lane].push_back(&node);
    }
    Clock done(lanes.size());
    std::function<CUresult(size_t, size_t)> go_on = [&](size_t lane, size_t count) {
        while (done[lane] < count) {
            const Node& node = *lanes[lane][done[lane]];
            for (size_t other = 0; other < node.needs.size(); ++other)
                if (other != lane)
                    if (CUresult error = go_on(other, node.needs[other])) return error;
            if (CUresult error = node.work()) return error;
            ++done[lane];
        }
        return CUDA_SUCCESS;
    };
    for (size_t lane = 0; lane < lanes.size(); ++lane)
        if (CUresult error = go_on(lane, lanes[lane].size())) return error;
    return CUDA_SUCCESS;
}

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
    stream.capture->spoiled = true;
    return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, format("%s while the stream is captured", function));
}

Event* event_of(CUevent handle) {
    auto* event = (Event*)handle;
    return events.count(event) ? event : nullptr;
}

// Does the work before a mark.
CUresult run_until(const Mark& mark) {
    Stream* stream = stream_of(mark.stream);
    if (!stream) return CUDA_SUCCESS;
    if (CUresult error = refuse_while_capturing(*stream, "cuEventSynchronize")) return error;
    while (!mark.passed && !stream->queue.empty()) {
        Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        if (CUresult error = work()) return error;
    }
    return CUDA_SUCCESS;
}

CUresult no_event(const char* function) { return fail(CUDA_ERROR_INVALID_HANDLE, format("%s: no event", function)); }

}  // namespace

CUresult refuse_in_capture(const char* function) {
    Hold hold;
    for (Stream* stream : streams) {
        if (!stream->capture || stream->capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (stream->capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && stream->capture->owner != std::this_thread::get_id())
            continue;
        stream->capture->spoiled = true;
        return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, format("%s while a stream is captured", function));
    }
    return CUDA_SUCCESS;
}

CUresult submit(CUstream handle, const char* function, Work work) {
    Hold hold;
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream(function);
    if (stream->capture) {
        if (stream->capture->spoiled) return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, function);
        record(*stream, std::move(work));
        return CUDA_SUCCESS;
    }
    if (stream == &legacy)
        for (Stream* other : streams)
            if (other->blocking && other->capture) {
                other->capture->spoiled = true;
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
    Hold hold;
    CUresult first = run_queue(legacy);
    for (Stream* stream : streams) {
        CUresult result = run_queue(*stream);
        if (first == CUDA_SUCCESS) first = result;
    }
    return first;
}

bool runs_later(CUstream handle) {
    Hold hold;
    Stream* stream = stream_of(handle);
    return settings().deferred || (stream && stream->capture);
}

}  // namespace alpha_emulator

using namespace alpha_emulator;

// -- Streams ------------------------------------------------------------------------------------------------------------

API cuStreamCreate(CUstream* out, unsigned flags) {
    NEED_CONTEXT();
    Hold hold;
    auto* stream = new Stream;
    stream->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    streams.insert(stream);
    *out = (CUstream)stream;
    return CUDA_SUCCESS;
}

API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int) { return cuStreamCreate(out, flags); }

API cuStreamDestroy_v2(CUstream handle) {
    Hold hold;
    Stream* stream = stream_of(handle);
    if (!stream || stream == &legacy) return no_stream("cuStreamDestroy");
    CUresult result = run_queue(*stream);
    streams.erase(stream);
    delete stream;
    return result;
}

API cuStreamSynchronize(CUstream handle) {
    NEED_CONTEXT();
    Hold hold;
    ++counters.synchronisations;
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream("cuStreamSynchronize");
    if (CUresult error = refuse_while_capturing(*stream, "cuStreamSynchronize")) return error;
    return run_queue(*stream);
}

// Of deferred work each query does one piece, so that who polls does get through.
API cuStreamQuery(CUstream handle) {
    Hold hold;
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
    Hold hold;
    Stream* stream = stream_of(handle);
    Event* event = event_of(event_handle);
    if (!stream) return no_stream("cuStreamWaitEvent");
    if (!event) return no_event("cuStreamWaitEvent");
    if (!event->mark || stream == stream_of(event->mark->stream)) return CUDA_SUCCESS;
    if (event->capture) {
        Capture& capture = *event->capture;
        if (!capture.origin) return fail(CUDA_ERROR_INVALID_VALUE, "cuStreamWaitEvent: the event's capture is over");
        if (!stream->capture) {  // from now on this stream's work becomes part of the graph too
            stream->capture = event->capture;
            stream->lane = capture.counts.size();
            stream->clock.clear();
            capture.counts.push_back(0);
        }
        if (stream->capture != event->capture) {
            capture.spoiled = stream->capture->spoiled = true;
            return fail(CUDA_ERROR_STREAM_CAPTURE_MERGE, "cuStreamWaitEvent between two captures");
        }
        merge(stream->clock, event->clock);
        return CUDA_SUCCESS;
    }
    if (stream->capture) {
        stream->capture->spoiled = true;
        return fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "cuStreamWaitEvent: a captured stream waits for work that is not");
    }
    return submit(handle, "cuStreamWaitEvent", [mark = event->mark] { return mark->passed ? CUDA_SUCCESS : run_until(*mark); });
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
    Hold hold;
    auto* event = new Event;
    event->timing = !(flags & CU_EVENT_DISABLE_TIMING);
    events.insert(event);
    *out = (CUevent)event;
    return CUDA_SUCCESS;
}

API cuEventDestroy_v2(CUevent handle) {
    Hold hold;
    Event* event = event_of(handle);
    if (!event) return no_event("cuEventDestroy");
    events.erase(event);
    delete event;
    return CUDA_SUCCESS;
}

API cuEventRecord(CUevent handle, CUstream stream) {
    Hold hold;
    Event* event = event_of(handle);
    if (!event) return no_event("cuEventRecord");
    const auto mark = event->mark = std::make_shared<Mark>(Mark{stream});
    Stream* recorded = stream_of(stream);
    event->capture = recorded ? recorded->capture : nullptr;
    if (event->capture) {
        event->clock = recorded->clock;
        return CUDA_SUCCESS;
    }
    return submit(stream, "cuEventRecord", [mark] {
        mark->passed = true;
        mark->milliseconds = now();
        return CUDA_SUCCESS;
    });
}

API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) { return cuEventRecord(event, stream); }

API cuEventQuery(CUevent handle) {
    Hold hold;
    Event* event = event_of(handle);
    if (!event) return no_event("cuEventQuery");
    if (event->capture) return fail(CUDA_ERROR_CAPTURED_EVENT, "cuEventQuery");
    const auto mark = event->mark;
    if (!mark || mark->passed) return CUDA_SUCCESS;
    CUresult result = cuStreamQuery(mark->stream);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
    return mark->passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API cuEventSynchronize(CUevent handle) {
    Hold hold;
    ++counters.synchronisations;
    Event* event = event_of(handle);
    if (!event) return no_event("cuEventSynchronize");
    if (event->capture) {
        event->capture->spoiled = true;
        return fail(CUDA_ERROR_CAPTURED_EVENT, "cuEventSynchronize");
    }
    const auto mark = event->mark;
    return !mark || mark->passed ? CUDA_SUCCESS : run_until(*mark);
}

API cuEventElapsedTime_v2(float* milliseconds, CUevent first, CUevent second) {
    Hold hold;
    Event *a = event_of(first), *b = event_of(second);
    if (!a || !b) return no_event("cuEventElapsedTime");
    if (!a->timing || !b->timing || !a->mark || !b->mark)
        return fail(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime of an event that was not recorded or keeps no time");
    if (!a->mark->passed || !b->mark->passed) return CUDA_ERROR_NOT_READY;
    *milliseconds = float(b->mark->milliseconds - a->mark->milliseconds);
    return CUDA_SUCCESS;
}

#undef cuEventElapsedTime  // the header's name for the second version; PyCUDA of older toolkits asks for the first
API cuEventElapsedTime(float* milliseconds, CUevent first, CUevent second) {
    return cuEventElapsedTime_v2(milliseconds, first, second);
}

// -- Functions of the host ----------------------------------------------------------------------------------------------

API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
    NEED_CONTEXT();
    return submit(stream, "cuLaunchHostFunc", [function, data] {
        Release release;  // it may wait for what other threads submit
        function(data);
        return CUDA_SUCCESS;
    });
}

// -- Graphs -------------------------------------------------------------------------------------------------------------

API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    NEED_CONTEXT();
    Hold hold;
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream("cuStreamBeginCapture");
    if (stream == &legacy) return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot be captured");
    if (stream->capture) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is captured already");
    if (CUresult error = run_queue(*stream)) return error;
    stream->capture = std::make_shared<Capture>(Capture{stream, mode, std::this_thread::get_id()});
    stream->capture->counts.push_back(0);
    stream->lane = 0;
    stream->clock.clear();
    return CUDA_SUCCESS;
}

API cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    Hold hold;
    *graph = nullptr;
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream("cuStreamEndCapture");
    if (!stream->capture) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is not captured");
    Capturing capture = stream->capture;
    if (capture->origin != stream) return fail(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "cuStreamEndCapture");
    Clock seen = stream->clock;
    for (Stream* other : streams)
        if (other->capture == capture) other->capture = nullptr;
    capture->origin = nullptr;
    if (capture->spoiled) return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, reason_of(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    for (size_t lane = 1; lane < capture->counts.size(); ++lane)
        if (lane >= seen.size() || seen[lane] < capture->counts[lane])
            return fail(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "cuStreamEndCapture: the stream did not wait for another one");
    auto* captured = new Graph(std::move(capture->graph));
    graphs.insert(captured);
    *graph = (CUgraph)captured;
    return CUDA_SUCCESS;
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
    Hold hold;
    Stream* stream = stream_of(handle);
    if (!stream) return no_stream("cuStreamIsCapturing");
    *status = !stream->capture ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->spoiled ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

API cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    Hold hold;
    auto* graph = (Graph*)handle;
    if (!graphs.count(graph)) return fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphGetNodes: no graph");
    if (nodes) return fail(CUDA_ERROR_NOT_SUPPORTED, "the test driver counts a graph's nodes only");
    *count = graph->size();
    return CUDA_SUCCESS;
}

API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph handle, unsigned long long) {
    Hold hold;
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
    Hold hold;
    auto* executable = (Graph*)handle;
    if (!executables.count(executable)) return fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphLaunch: no executable graph");
    ++counters.graph_launches;
    return submit(stream, "cuGraphLaunch", [executable] { return run_graph(*executable); });
}

API cuGraphExecDestroy(CUgraphExec handle) {
    Hold hold;
    auto* executable = (Graph*)handle;
    if (CUresult error = finish_all()) return error;
    if (!executables.erase(executable)) return fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphExecDestroy: no executable graph");
    delete executable;
    return CUDA_SUCCESS;
}

API cuGraphDestroy(CUgraph handle) {
    Hold hold;
    auto* graph = (Graph*)handle;
    if (!graphs.erase(graph)) return fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphDestroy: no graph");
    delete graph;
    return CUDA_SUCCESS;
}
