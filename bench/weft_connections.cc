// What a connection of rdma_cm between two processes of one host costs: the processor time of each
// side, without the time that it waits. Connections are made one after the other by a program in C
// as it is usual: an event channel, blocking calls, a queue pair, disconnect, destroy. One figure
// for each call, for compare.py.
#include <fmt/core.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

#include "two_processes.h"

namespace {

using weft::bench::Line;
using weft::bench::run_two_processes;

constexpr int timeout_ms = 10'000;
// The first connections between two processes use TCP, and leave it while they are used: so each of
// these carries a message.
constexpr int first_connections = 20;

void need(bool right, const char* what) {
  if (!right) throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

// Of all threads of this process, in microseconds.
double processor_us() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return us(used.ru_utime) + us(used.ru_stime);
}

struct Event {
  rdma_cm_event_type type;
  rdma_cm_id* id;
};

Event next_event(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  need(rdma_get_cm_event(channel, &event) == 0, "no event");
  const Event copy{event->event, event->id};
  rdma_ack_cm_event(event);
  return copy;
}

void expect(rdma_event_channel* channel, rdma_cm_event_type type) {
  const rdma_cm_event_type got = next_event(channel).type;
  if (got == type) return;
  throw std::runtime_error(
      fmt::format("{} in place of {}", rdma_event_str(got), rdma_event_str(type)));
}

// The completion queue serves all connections, as in programs that have many.
class Side {
 public:
  Side() : channel_(rdma_create_event_channel()) { need(channel_ != nullptr, "no channel"); }

  [[nodiscard]] rdma_event_channel* channel() { return channel_; }

  void add_queue_pair(rdma_cm_id* id) {
    if (!queue_) queue_ = ibv_create_cq(id->verbs, 64, nullptr, nullptr, 0);
    need(queue_ != nullptr, "no completion queue");
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.send_cq = attributes.recv_cq = queue_;
    attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 16;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    need(rdma_create_qp(id, nullptr, &attributes) == 0, "no queue pair");
  }

  [[nodiscard]] static rdma_conn_param parameters() {
    rdma_conn_param wanted{};
    wanted.responder_resources = wanted.initiator_depth = 4;
    wanted.retry_count = wanted.rnr_retry_count = 7;
    return wanted;
  }

  // A message without bytes needs no memory.
  static void send(rdma_cm_id* id) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    need(ibv_post_send(id->qp, &request, &bad) == 0, "cannot send");
  }
  static void post_receive(rdma_cm_id* id) {
    ibv_recv_wr request{};
    ibv_recv_wr* bad = nullptr;
    need(ibv_post_recv(id->qp, &request, &bad) == 0, "cannot receive");
  }
  void await_completion() {
    ibv_wc done{};
    while (ibv_poll_cq(queue_, 1, &done) == 0) continue;
    if (done.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(done.status));
  }

  static void destroy(rdma_cm_id* id) {
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }

 private:
  // The process ends before these do.
  rdma_event_channel* channel_;
  ibv_cq* queue_ = nullptr;
};

void connect_once(Side& side, sockaddr_in to, bool message) {
  rdma_cm_id* id = nullptr;
  need(rdma_create_id(side.channel(), &id, nullptr, RDMA_PS_TCP) == 0, "no id");
  auto* const address = reinterpret_cast<sockaddr*>(&to);
  need(rdma_resolve_addr(id, nullptr, address, timeout_ms) == 0, "no address");
  expect(side.channel(), RDMA_CM_EVENT_ADDR_RESOLVED);
  need(rdma_resolve_route(id, timeout_ms) == 0, "no route");
  expect(side.channel(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  side.add_queue_pair(id);
  if (message) Side::post_receive(id);
  rdma_conn_param wanted = Side::parameters();
  need(rdma_connect(id, &wanted) == 0, "cannot connect");
  expect(side.channel(), RDMA_CM_EVENT_ESTABLISHED);
  if (message) side.await_completion();
  expect(side.channel(), RDMA_CM_EVENT_DISCONNECTED);
  need(rdma_disconnect(id) == 0, "cannot disconnect");
  Side::destroy(id);
}

// Until one connection has ended, which this side begins once it knows that both are connected. The
// next request may come before that. No side polls.
void accept_once(Side& side, bool message) {
  while (true) {
    const auto [type, id] = next_event(side.channel());
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      side.add_queue_pair(id);
      rdma_conn_param wanted = Side::parameters();
      need(rdma_accept(id, &wanted) == 0, "cannot accept");
    } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
      if (message) {
        Side::send(id);
        side.await_completion();
      }
      need(rdma_disconnect(id) == 0, "cannot disconnect");
    } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
      return Side::destroy(id);
    } else {
      throw std::runtime_error(rdma_event_str(type));
    }
  }
}

// Microseconds for each connection.
template <typename Once>
double cost_of(const Line& line, int count, const Once& once) {
  for (int i = 0; i < first_connections; ++i) once(true);
  line.meet();
  const double before = processor_us();
  for (int i = 0; i < count; ++i) once(false);
  return (processor_us() - before) / count;
}

double connect_all(const Line& line, int count) {
  Side side;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = line.receive<in_port_t>();
  return cost_of(line, count, [&](bool message) { connect_once(side, to, message); });
}

double accept_all(const Line& line, int count) {
  Side side;
  rdma_cm_id* listener = nullptr;
  need(rdma_create_id(side.channel(), &listener, nullptr, RDMA_PS_TCP) == 0, "no id");
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  need(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&own)) == 0, "cannot bind");
  need(rdma_listen(listener, 64) == 0, "cannot listen");
  line.send(rdma_get_src_port(listener));
  return cost_of(line, count, [&](bool message) { accept_once(side, message); });
}

enum class Who : std::uint8_t { client, server };

double measure(Who who, int count) {
  return run_two_processes([=](const Line& line, bool first) {
    const double own = first ? connect_all(line, count) : accept_all(line, count);
    line.send(own);
    const auto peers = line.receive<double>();
    return who == Who::client ? own : peers;
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Measures what a connection by rdma_cm between two processes of one host costs. Prints one "
      "figure: microseconds of processor time of one side"};
  const std::map<std::string, Who> sides{{"client", Who::client}, {"server", Who::server}};
  Who who = Who::client;
  int count = 2000;
  app.add_option("SIDE", who, "whose processor time")
      ->required()
      ->transform(CLI::CheckedTransformer(sides));
  app.add_option("--count", count, "connections, one after the other")
      ->check(CLI::Range(1, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print("{:.9g}\n", measure(who, count));
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft_connections: {}\n", error.what());
    return 1;
  }
  return 0;
}
