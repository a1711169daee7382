// A client disconnects as soon as it knows, in another way than by its completion, that its peer
// has received its message. The completion that follows must be a success: an adapter has the
// acknowledgement by then. The program forks; the child is the server.
//
//   last_send COUNT      of connections, one after the other
//
// Prints "outcome: SUCCEEDED of COUNT".
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "interop/endpoint.h"

namespace {

using interop::Endpoint;
using interop::fail;
using interop::must;

constexpr const char* host = "127.0.0.1";
constexpr int limit_ms = 20'000;
constexpr int earlier = 100;  // messages before the last one, by which the device learns of polling

struct Channel {
  rdma_event_channel* events = must(rdma_create_event_channel(), "rdma_create_event_channel");

  void await(rdma_cm_event_type type) const { rdma_ack_cm_event(interop::expect(events, type)); }
};

template <typename T>
void tell(int pipe, const T& value) {
  if (::write(pipe, &value, sizeof value) != sizeof value) fail("write to the other process");
}

template <typename T>
T hear(int pipe) {
  T value{};
  if (::read(pipe, &value, sizeof value) != sizeof value) fail("read from the other process");
  return value;
}

// Polls without a pause, as programs do that want the lowest latency: the device may then answer
// later than it shows the completion.
void await_success(ibv_cq* cq) {
  ibv_wc completion{};
  while (ibv_poll_cq(cq, 1, &completion) == 0) {
  }
  if (completion.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(completion.status));
}

void serve(int to_client, int count) {
  const Channel channel;
  rdma_cm_id* const listener = interop::listen(channel.events, host, "0");
  tell(to_client, ntohs(rdma_get_src_port(listener)));
  for (int i = 0; i < count; ++i) {
    rdma_cm_event* const request = interop::expect(channel.events, RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* const id = request->id;
    rdma_ack_cm_event(request);
    Endpoint end(id, 4096, 0, {.receives = earlier + 1});
    for (int k = 0; k <= earlier; ++k) must(end.receive(1, end.slice(0, 64)), "ibv_post_recv");
    must(interop::accept(id, {}, 1), "rdma_accept");
    channel.await(RDMA_CM_EVENT_ESTABLISHED);
    for (int k = 0; k <= earlier; ++k) await_success(end.cq);
    tell(to_client, 'm');
    channel.await(RDMA_CM_EVENT_DISCONNECTED);
    tell(to_client, 'd');
  }
}

bool send_and_disconnect(const Channel& channel, const std::string& port, int from_server) {
  rdma_cm_id* const id = interop::resolve(channel.events, host, port.c_str());
  Endpoint end(id, 4096, 0);
  must(interop::connect(id, {}, 1), "rdma_connect");
  channel.await(RDMA_CM_EVENT_ESTABLISHED);
  for (int k = 0; k < earlier; ++k) {
    must(end.send(1, end.slice(0, 64)), "ibv_post_send");
    await_success(end.cq);
  }
  must(end.send(1, end.slice(0, 64)), "ibv_post_send");
  (void)hear<char>(from_server);
  must(rdma_disconnect(id), "rdma_disconnect");
  ibv_wc completion{};
  if (!end.wait_for_completion(completion, limit_ms)) fail("no completion");
  channel.await(RDMA_CM_EVENT_DISCONNECTED);
  (void)hear<char>(from_server);  // before the next request
  return completion.status == IBV_WC_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 2 ? std::atoi(argv[1]) : 0;
  if (count < 1) {
    std::fprintf(stderr, "usage: last_send COUNT\n");
    return 2;
  }
  int words[2];
  must(::pipe(words), "pipe");
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    ::close(words[0]);
    serve(words[1], count);
    return 0;
  }
  ::close(words[1]);
  const Channel channel;
  const std::string port = std::to_string(hear<std::uint16_t>(words[0]));
  int succeeded = 0;
  for (int i = 0; i < count; ++i) succeeded += send_and_disconnect(channel, port, words[0]);
  std::printf("outcome: %d of %d\n", succeeded, count);
  return 0;
}
