#include "provider/traced_calls.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "provider/process.h"

namespace weft::provider {
namespace {

Table& originals() {
  static Table table{};
  return table;
}

// A name that can be an argument of a template.
template <std::size_t size>
struct Name {
  constexpr Name(const char (&literal)[size]) { std::copy_n(literal, size, text); }  // NOLINT
  char text[size]{};                                                                 // NOLINT
};

// `member`: of Table, a pointer to a function.
template <Name name, auto member>
struct Traced;

template <Name name, typename Result, typename... Arguments, Result (*Table::*member)(Arguments...)>
struct Traced<name, member> {
  // The frame needs no destructor, because a thread may be cancelled in a call that waits.
  static Result call(Arguments... arguments) {
    device::TraceFile* const trace = Process::trace();
    if (!trace) return (originals().*member)(arguments...);
    trace->begin(name.text);
    const Result result = (originals().*member)(arguments...);
    const int error = errno;
    trace->end(name.text);
    errno = error;
    return result;
  }
  static void replace(Table& table) {
    originals().*member = table.*member;
    table.*member = call;
  }
};

}  // namespace

void mark_trace(std::string_view category, std::string_view text) {
  if (device::TraceFile* const trace = Process::trace()) trace->mark(category, text);
}

void trace_calls(Table& table) {
  Traced<"ibv_get_cq_event", &Table::get_cq_event>::replace(table);
  Traced<"ibv_get_async_event", &Table::get_async_event>::replace(table);
  Traced<"wait for events", &Table::wait>::replace(table);
  Traced<"ibv_modify_qp", &Table::modify_qp>::replace(table);
  Traced<"rdma_get_cm_event", &Table::get_cm_event>::replace(table);
  Traced<"rdma_create_id", &Table::create_id>::replace(table);
  Traced<"rdma_destroy_id", &Table::destroy_id>::replace(table);
  Traced<"rdma_create_ep", &Table::create_ep>::replace(table);
  Traced<"rdma_bind_addr", &Table::bind_addr>::replace(table);
  Traced<"rdma_resolve_addr", &Table::resolve_addr>::replace(table);
  Traced<"rdma_resolve_route", &Table::resolve_route>::replace(table);
  Traced<"rdma_create_qp", &Table::id_create_qp>::replace(table);
  Traced<"rdma_connect", &Table::connect>::replace(table);
  Traced<"rdma_establish", &Table::establish>::replace(table);
  Traced<"rdma_listen", &Table::listen>::replace(table);
  Traced<"rdma_get_request", &Table::get_request>::replace(table);
  Traced<"rdma_accept", &Table::accept>::replace(table);
  Traced<"rdma_reject", &Table::reject>::replace(table);
  Traced<"rdma_disconnect", &Table::disconnect>::replace(table);
  Traced<"rdma_join_multicast", &Table::join_multicast>::replace(table);
}

}  // namespace weft::provider
