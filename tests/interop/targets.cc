// Targets of one-sided operations that make almost no calls, and the program that operates on them.
//
//   targets idle HOST PORT    accepts, waits in read(2) for a line, and prints its memory
//   targets ready HOST PORT   leaves its queue pair in RTR; prints the message and its memory
//   targets drive HOST PORT   writes over the target's region, reads it back, and sends a message

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "interop/endpoint.h"

namespace {

using interop::Endpoint;
using interop::Maker;
using interop::must;
using interop::Region;

constexpr std::size_t kMemory = 4 << 20;
constexpr std::size_t kMessage = 4096;
constexpr std::size_t kPiece = 256 << 10;
constexpr int kPatienceMs = 30'000;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

std::uint8_t pattern(std::size_t index) {
  return static_cast<std::uint8_t>(index * 7 + index / 251);
}

// True if the bytes from `first` on are the pattern from its beginning.
bool is_pattern(Endpoint& endpoint, std::size_t first, std::size_t bytes) {
  for (std::size_t index = 0; index < bytes; ++index) {
    if (endpoint.memory()[first + index] != pattern(index)) return false;
  }
  return true;
}

void await_success(const Endpoint& endpoint, const char* what) {
  ibv_wc found{};
  if (!endpoint.wait_for_completion(found, kPatienceMs)) {
    std::printf("failed: %s does not complete\n", what);
    std::exit(1);
  }
  if (found.status != IBV_WC_SUCCESS) {
    std::printf("failed: %s: %s\n", what, ibv_wc_status_str(found.status));
    std::exit(1);
  }
}

struct Request {
  rdma_event_channel* channel;
  rdma_cm_id* listener;
  rdma_cm_id* id;
};

Request await_request(const char* host, const char* port) {
  rdma_event_channel* channel = must(rdma_create_event_channel(), "rdma_create_event_channel");
  rdma_cm_id* listener = interop::listen(channel, host, port);
  rdma_cm_event* event = interop::expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* id = event->id;
  rdma_ack_cm_event(event);
  return {channel, listener, id};
}

void end(const Request& request, Endpoint& endpoint) {
  rdma_ack_cm_event(interop::expect(request.channel, RDMA_CM_EVENT_DISCONNECTED));
  endpoint.destroy();
  must(rdma_destroy_id(request.listener), "rdma_destroy_id");
  rdma_destroy_event_channel(request.channel);
}

void show_region(Endpoint& endpoint) {
  const bool whole = is_pattern(endpoint, endpoint.quarter(), 2 * endpoint.quarter());
  std::printf("region %s\n", whole ? "written" : "not as it was written");
}

void idle(const char* host, const char* port) {
  const Request request = await_request(host, port);
  Endpoint endpoint(request.id, kMemory, kAccess);
  must(endpoint.receive(1, endpoint.slice(0, kMessage)), "ibv_post_recv");
  must(interop::accept(request.id, endpoint.shared(), 8), "rdma_accept");
  rdma_ack_cm_event(interop::expect(request.channel, RDMA_CM_EVENT_ESTABLISHED));
  std::printf("idle\n");
  char line[16];
  if (std::fgets(line, sizeof line, stdin) == nullptr) std::printf("failed: no line\n");
  show_region(endpoint);
  await_success(endpoint, "the receive");
  end(request, endpoint);
}

void move(rdma_cm_id* id, ibv_qp* qp, ibv_qp_state state, const char* what) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  int mask = 0;
  must(rdma_init_qp_attr(id, &attributes, &mask), "rdma_init_qp_attr");
  must(ibv_modify_qp(qp, &attributes, mask), what);
}

// The program creates and modifies its queue pair itself, and never changes it to RTS.
void ready(const char* host, const char* port) {
  const Request request = await_request(host, port);
  Endpoint endpoint(request.id, kMemory, kAccess, {}, Maker::program);
  move(request.id, endpoint.qp, IBV_QPS_INIT, "ibv_modify_qp to INIT");
  move(request.id, endpoint.qp, IBV_QPS_RTR, "ibv_modify_qp to RTR");
  must(endpoint.receive(1, endpoint.slice(0, kMessage)), "ibv_post_recv");
  must(interop::accept(request.id, endpoint.shared(), 8, endpoint.qp->qp_num), "rdma_accept");
  rdma_ack_cm_event(interop::expect(request.channel, RDMA_CM_EVENT_ESTABLISHED));
  await_success(endpoint, "the receive");
  std::printf("message %s\n", is_pattern(endpoint, 0, kMessage) ? "received" : "is another one");
  show_region(endpoint);
  end(request, endpoint);
}

// Writes the remote region in pieces from the last quarter, and reads it back into the first.
void write_and_read(Endpoint& endpoint, const Region& target) {
  const std::size_t upper = 3 * endpoint.quarter();
  for (std::size_t done = 0; done < target.bytes; done += kPiece) {
    for (std::size_t index = 0; index < kPiece; ++index) {
      endpoint.memory()[upper + index] = pattern(done + index);
    }
    must(endpoint.write(1, endpoint.slice(upper, kPiece), target, done), "ibv_post_send");
    await_success(endpoint, "the write");
    must(endpoint.read(2, endpoint.slice(0, kPiece), target, done), "ibv_post_send");
    await_success(endpoint, "the read");
    const auto written = endpoint.memory().begin() + static_cast<std::ptrdiff_t>(upper);
    if (!std::equal(written, written + kPiece, endpoint.memory().begin())) {
      std::printf("failed: what was read at %zu is not what was written\n", done);
      std::exit(1);
    }
  }
}

void drive(const char* host, const char* port) {
  rdma_event_channel* channel = must(rdma_create_event_channel(), "rdma_create_event_channel");
  rdma_cm_id* id = interop::resolve(channel, host, port);
  Endpoint endpoint(id, kMemory, kAccess);
  must(interop::connect(id, endpoint.shared(), 8), "rdma_connect");
  rdma_cm_event* event = interop::expect(channel, RDMA_CM_EVENT_ESTABLISHED);
  const Region target = interop::region_of(event->param.conn);
  rdma_ack_cm_event(event);

  write_and_read(endpoint, target);
  std::printf("written and read\n");
  for (std::size_t index = 0; index < kMessage; ++index) endpoint.memory()[index] = pattern(index);
  must(endpoint.send(3, endpoint.slice(0, kMessage)), "ibv_post_send");
  await_success(endpoint, "the send");
  char line[16];
  if (std::fgets(line, sizeof line, stdin) == nullptr) std::printf("failed: no line\n");
  must(rdma_disconnect(id), "rdma_disconnect");
  rdma_ack_cm_event(interop::expect(channel, RDMA_CM_EVENT_DISCONNECTED));
  endpoint.destroy();
  rdma_destroy_event_channel(channel);
  std::printf("done\n");
}

}  // namespace

int main(int argc, char** argv) {
  // line by line, for tests that read while the program runs
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc == 4 && std::strcmp(argv[1], "idle") == 0) {
    idle(argv[2], argv[3]);
  } else if (argc == 4 && std::strcmp(argv[1], "ready") == 0) {
    ready(argv[2], argv[3]);
  } else if (argc == 4 && std::strcmp(argv[1], "drive") == 0) {
    drive(argv[2], argv[3]);
  } else {
    std::printf("usage: targets idle|ready|drive HOST PORT\n");
    return 2;
  }
  return 0;
}
