// Lines of the JSON report that the page contains as well.
#pragma once

#include <fmt/format.h>

#include <string>

#include "capture/report/report.h"

namespace weft::capture {

void write_connection_json(fmt::memory_buffer& out, const Connection& connection,
                           const Results& results);
void write_capture_json(fmt::memory_buffer& out, const Results& results);
// `name` is that of the input.
void write_trace_json(fmt::memory_buffer& out, const std::string& name, const Results& results);

}  // namespace weft::capture
