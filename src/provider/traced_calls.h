// The calls of a program that `weft run --trace` shows: those of rdma_cm, and waits for events.
#pragma once

#include <string_view>

#include "provider/table.h"

namespace weft::provider {

// Replaces these functions of the table by ones that add a span to the trace, if there is one. All
// tables of a process must be equal: there is one original of each function.
void trace_calls(Table& table);

// A point in time with a text, in the track of the calling thread, if there is a trace.
void mark_trace(std::string_view category, std::string_view text);

}  // namespace weft::provider
