// A server that answers one request, and its client, over rdma_cm.
//
//   rdma_cm_objects serve PORT [ADDRESS]
//   rdma_cm_objects ask HOST PORT TEXT
#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <weft/verbs.hpp>

namespace {

using namespace weft::verbs;  // NOLINT(google-build-using-namespace)

constexpr std::chrono::seconds timeout{30};
constexpr std::size_t most_bytes = 256;

ConnectionEvent expect(const EventChannel& events, rdma_cm_event_type type) {
  auto event = events.next(timeout);
  if (!event) throw std::runtime_error("nothing has happened for 30 s");
  if (event->type() != type) throw std::runtime_error(std::string(event->name()));
  return std::move(*event);
}

// The objects of each side: a queue pair, a completion queue and a buffer.
struct Side {
  explicit Side(Id&& identifier)
      : id(std::move(identifier)),
        context(id.context()),
        domain(context.create_domain()),
        queue(context.create_completion_queue(4)),
        region(domain.allocate<char>(2 * most_bytes)),
        queue_pair(id.create_queue_pair(domain, queue, queue,
                                        {.max_send_wr = 1,
                                         .max_recv_wr = 1,
                                         .max_send_sge = 1,
                                         .max_recv_sge = 1,
                                         .max_inline_data = 0})) {}

  // Waits until both the send and the receive are complete; returns the length of the received
  // message.
  [[nodiscard]] std::uint32_t await_both() const {
    std::uint32_t bytes = 0;
    for (int done = 0; done < 2; ++done) {
      const Completion completion = await();
      if (completion.is_receive()) bytes = completion.size_bytes();
    }
    return bytes;
  }
  [[nodiscard]] Completion await() const {
    std::array<Completion, 1> one;
    const auto got = queue.wait(one, timeout);
    if (got.empty()) throw std::runtime_error("no completion");
    if (!got[0].ok()) throw std::runtime_error(std::string(got[0].status_name()));
    return got[0];
  }
  // The first half is the send buffer, the second half the receive buffer.
  [[nodiscard]] std::span<char> outgoing() const { return region.elements().first(most_bytes); }
  [[nodiscard]] std::span<char> incoming() const { return region.elements().last(most_bytes); }
  void receive() const { need(queue_pair.post_receive(region.slice(most_bytes, most_bytes), 1)); }
  void send(std::size_t bytes) const { need(queue_pair.post_send(region.slice(0, bytes), 2)); }
  static void need(int failed) {
    if (failed) throw weft::Error(failed, "cannot post");
  }

  Id id;
  Context context;
  ProtectionDomain domain;
  CompletionQueue queue;
  TypedRegion<char> region;
  QueuePair queue_pair;
};

void serve(const Address& address) {
  const EventChannel events;
  const Id listener(events);
  listener.bind(address);
  listener.listen();
  std::printf("listening on port %u\n", static_cast<unsigned>(listener.local_port()));
  std::fflush(stdout);

  auto request = events.next(weft::Deadline::never());
  const Side side(request->take_request());
  side.receive();  // before the client can send
  side.id.accept();
  (void)expect(events, RDMA_CM_EVENT_ESTABLISHED);
  const std::uint32_t bytes = side.await().size_bytes();
  std::ranges::transform(side.incoming().first(bytes), side.outgoing().begin(), [](char letter) {
    return static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  });
  side.send(bytes);
  (void)side.await();
  (void)expect(events, RDMA_CM_EVENT_DISCONNECTED);
}

void ask(const Address& address, std::string_view text) {
  const EventChannel events;
  Id id(events);
  id.resolve_address(address, timeout);
  (void)expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
  id.resolve_route(timeout);
  (void)expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
  const Side side(std::move(id));
  side.id.connect();
  (void)expect(events, RDMA_CM_EVENT_ESTABLISHED);
  side.receive();  // before the server can answer
  text = text.substr(0, most_bytes);
  std::ranges::copy(text, side.outgoing().begin());
  side.send(text.size());
  const std::uint32_t bytes = side.await_both();
  std::printf("%.*s\n", static_cast<int>(bytes), side.incoming().data());
  side.id.disconnect();
}

std::uint16_t port_of(const char* text) {
  return static_cast<std::uint16_t>(std::stoul(text));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const std::string_view what = count > 2 ? arguments[1] : "";
    if (what == "serve") {
      serve({count > 3 ? arguments[3] : "", port_of(arguments[2])});
    } else if (what == "ask" && count == 5) {
      ask({arguments[2], port_of(arguments[3])}, arguments[4]);
    } else {
      throw std::runtime_error("serve PORT [ADDRESS], or ask HOST PORT TEXT");
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rdma_cm_objects: %s\n", error.what());
    return 1;
  }
}
