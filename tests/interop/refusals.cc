// Sends requests that a peer must reject, and prints what both ends report.
//
//   refusals serve HOST PORT CASE
//   refusals ask HOST PORT CASE
//
// Both print their completions, and whether a protected byte has changed.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "interop/endpoint.h"

namespace {

using interop::Endpoint;
using interop::must;
using interop::Region;

constexpr std::size_t kMemory = 64 << 10;
constexpr std::size_t kMessage = 512;
constexpr std::uint8_t kData = 0x11;  // the bytes of the asking side's writes and sends
constexpr int kPatienceMs = 10'000;
constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
constexpr int kBoth = kLocal | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

enum class Request { write, read, send };

struct Case {
  std::string_view name;
  Request request;
  int access = kBoth;          // what the server's region allows
  bool foreign = false;        // the region belongs to another protection domain
  std::uint32_t rkey_xor = 0;  // makes the key invalid
  bool beyond = false;         // one byte beyond the end
  bool wraps = false;          // beyond the end of the address space
  std::uint64_t receives = 2;
  std::size_t receive_bytes = kMessage;
};

constexpr Case kCases[] = {
    {.name = "write_wrong_key", .request = Request::write, .rkey_xor = 0x5a5a5a00},
    {.name = "write_out_of_bounds", .request = Request::write, .beyond = true},
    {.name = "write_wraps", .request = Request::write, .wraps = true},
    {.name = "write_without_right",
     .request = Request::write,
     .access = kLocal | IBV_ACCESS_REMOTE_READ},
    {.name = "write_foreign_domain", .request = Request::write, .foreign = true},
    {.name = "read_wrong_key", .request = Request::read, .rkey_xor = 0x5a5a5a00},
    {.name = "read_out_of_bounds", .request = Request::read, .beyond = true},
    {.name = "read_wraps", .request = Request::read, .wraps = true},
    {.name = "read_without_right",
     .request = Request::read,
     .access = kLocal | IBV_ACCESS_REMOTE_WRITE},
    {.name = "read_foreign_domain", .request = Request::read, .foreign = true},
    {.name = "send_too_long", .request = Request::send, .receive_bytes = 64},
    {.name = "send_without_receive", .request = Request::send, .receives = 0},
};

void show(const Endpoint& endpoint, std::uint64_t count) {
  for (ibv_wc found{}; count > 0; --count) {
    if (!endpoint.wait_for_completion(found, kPatienceMs)) {
      std::printf("failed: %llu completions are missing\n", static_cast<unsigned long long>(count));
      return;
    }
    std::printf("completion wr_id=%llu status=%d (%s)\n",
                static_cast<unsigned long long>(found.wr_id), found.status,
                ibv_wc_status_str(found.status));
  }
}

// Prints whether the bytes [first, last) are unchanged.
void show_memory(Endpoint& endpoint, std::size_t first, std::size_t last) {
  const auto begin = endpoint.memory().begin();
  const auto changed = std::find_if(begin + static_cast<std::ptrdiff_t>(first),
                                    begin + static_cast<std::ptrdiff_t>(last),
                                    [](std::uint8_t byte) { return byte != interop::kFill; });
  if (changed == begin + static_cast<std::ptrdiff_t>(last)) {
    std::printf("memory untouched\n");
  } else {
    std::printf("memory changed at %td\n", changed - begin);
  }
}

void serve(const char* host, const char* port, const Case& what) {
  rdma_event_channel* channel = must(rdma_create_event_channel(), "rdma_create_event_channel");
  rdma_cm_id* listener = interop::listen(channel, host, port);
  rdma_cm_event* event = interop::expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* id = event->id;
  rdma_ack_cm_event(event);

  Endpoint endpoint(id, kMemory, what.access);
  Region shared = endpoint.shared();
  ibv_pd* domain = must(ibv_alloc_pd(id->verbs), "ibv_alloc_pd");
  ibv_mr* foreign = must(ibv_reg_mr(domain, endpoint.middle->addr, endpoint.middle->length,
                                    static_cast<unsigned>(what.access)),
                         "ibv_reg_mr");
  if (what.foreign) shared.rkey = foreign->rkey;
  for (std::uint64_t index = 0; index < what.receives; ++index) {
    must(endpoint.receive(index, endpoint.slice(index * kMessage, what.receive_bytes)),
         "ibv_post_recv");
  }
  must(interop::accept(id, shared, 4), "rdma_accept");
  rdma_ack_cm_event(interop::expect(channel, RDMA_CM_EVENT_ESTABLISHED));
  rdma_ack_cm_event(interop::expect(channel, RDMA_CM_EVENT_DISCONNECTED));
  show(endpoint, what.receives);
  // The first receive may hold the beginning of a message that did not fit.
  show_memory(endpoint, what.receive_bytes, kMemory);

  endpoint.destroy();
  must(ibv_dereg_mr(foreign), "ibv_dereg_mr");
  must(ibv_dealloc_pd(domain), "ibv_dealloc_pd");
  must(rdma_destroy_id(listener), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
}

int post(const Endpoint& endpoint, const Case& what, const Region& target, std::uint64_t wr_id) {
  const ibv_sge source = endpoint.slice(3 * endpoint.quarter(), kMessage);
  const ibv_sge sink = endpoint.slice(0, kMessage);
  Region spoilt = target;
  spoilt.rkey ^= what.rkey_xor;
  std::size_t offset = what.beyond ? target.bytes - kMessage + 1 : 0;
  if (what.wraps) offset = ~spoilt.address - kMessage / 2;
  switch (what.request) {
    case Request::write:
      return endpoint.write(wr_id, source, spoilt, offset);
    case Request::read:
      return endpoint.read(wr_id, sink, spoilt, offset);
    case Request::send:
      break;
  }
  return endpoint.send(wr_id, source);
}

void ask(const char* host, const char* port, const Case& what) {
  rdma_event_channel* channel = must(rdma_create_event_channel(), "rdma_create_event_channel");
  rdma_cm_id* id = interop::resolve(channel, host, port);
  Endpoint endpoint(id, kMemory, kBoth);
  std::fill(endpoint.memory().end() - static_cast<std::ptrdiff_t>(endpoint.quarter()),
            endpoint.memory().end(), kData);
  must(interop::connect(id, endpoint.shared(), 4), "rdma_connect");
  rdma_cm_event* event = interop::expect(channel, RDMA_CM_EVENT_ESTABLISHED);
  const Region target = interop::region_of(event->param.conn);
  rdma_ack_cm_event(event);

  must(post(endpoint, what, target, 1), "ibv_post_send");
  // The device may have noticed the end of the connection and reject the second request at once.
  const bool second = post(endpoint, what, target, 2) == 0;
  show(endpoint, second ? 2 : 1);
  rdma_ack_cm_event(interop::expect(channel, RDMA_CM_EVENT_DISCONNECTED));
  show_memory(endpoint, 0, 3 * endpoint.quarter());
  endpoint.destroy();
  rdma_destroy_event_channel(channel);
}

}  // namespace

int main(int argc, char** argv) {
  // line by line, for tests that read while the program runs
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto* what = argc == 5 ? std::find_if(std::begin(kCases), std::end(kCases),
                                              [&](const Case& c) { return c.name == argv[4]; })
                               : std::end(kCases);
  if (what == std::end(kCases)) {
    std::printf("usage: refusals serve|ask HOST PORT CASE\n");
    return 2;
  }
  if (std::strcmp(argv[1], "serve") == 0) {
    serve(argv[2], argv[3], *what);
  } else {
    ask(argv[2], argv[3], *what);
  }
  return 0;
}
