// Uses weft::connection and plain verbs on the same queue pair: every object gives access to its C
// object. Here ibv_post_send(3) posts a chain of two requests between two requests of
// weft::connection.
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <thread>
#include <weft/connection.hpp>

namespace {

using namespace std::chrono_literals;
using namespace weft::connection;  // NOLINT(google-build-using-namespace)

void be_written_to(std::uint16_t port, const Options& options) {
  auto peer = connect({"127.0.0.1", port}, 10s, options);
  const auto memory = peer.allocate(4, Access::remote_write);
  peer.advertise(memory.remote());
  (void)peer.await_disconnect(10s);
  std::printf("in my memory: %.4s\n", reinterpret_cast<const char*>(memory.bytes().data()));
}

ibv_send_wr write_of(ibv_sge& piece, const RemoteBuffer& to, std::uint64_t offset,
                     std::uint64_t id) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = to.address() + offset;
  request.wr.rdma.rkey = to.rkey();
  return request;
}

}  // namespace

int main() {
  try {
    const Options options{.advertisements = true};
    Listener listener({"127.0.0.1", 0}, options);
    const std::jthread other(be_written_to, listener.port(), options);
    auto peer = listener.accept(10s);
    const auto remote = peer.await_advertisement(10s);
    if (!remote) throw std::runtime_error("nothing was advertised");
    const auto text = peer.allocate(4);
    for (std::size_t i = 0; i < 4; ++i) text[i] = static_cast<std::byte>("weft"[i]);

    if (peer.post_write(text.slice(0, 1), remote->buffer, 0, 1) != 0) return 1;
    std::array<ibv_sge, 2> pieces{text.slice(1, 1).raw(), text.slice(2, 1).raw()};
    ibv_send_wr second = write_of(pieces[1], remote->buffer, 2, 3);
    ibv_send_wr first = write_of(pieces[0], remote->buffer, 1, 2);
    first.next = &second;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(peer.queue_pair().raw(), &first, &bad) != 0) return 1;
    if (peer.post_write(text.slice(3, 1), remote->buffer, 3, 4) != 0) return 1;

    // Outcomes come in the order of posting, for both kinds of requests.
    for (const Outcome& outcome : peer.await(Queue::send, 4, 10s)) {
      std::printf("request %llu: %s\n", static_cast<unsigned long long>(outcome.id),
                  std::string(outcome.status_name()).c_str());
    }
    peer.disconnect();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mixed: %s\n", error.what());
    return 1;
  }
}
