// A librdmacm program that sends a text as private data when it connects or accepts, and 16 bytes
// in each direction once it is connected, as rdma_client and rdma_server do.
//
//   plain_peer serve HOST PORT TEXT
//   plain_peer ask HOST PORT TEXT
//
// Prints what the peer has sent.

#include <cstdio>
#include <cstring>
#include <string_view>

#include "interop/endpoint.h"

namespace {

using interop::Endpoint;
using interop::expect;
using interop::must;

constexpr std::size_t kMemory = 4096;
constexpr std::size_t kMessage = 16;
constexpr int kPatienceMs = 30'000;

rdma_conn_param with(std::string_view text) {
  rdma_conn_param parameters{};
  parameters.private_data = text.data();
  parameters.private_data_len = static_cast<std::uint8_t>(text.size());
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;
  return parameters;
}

void show_private_data(const rdma_cm_event& event) {
  const rdma_conn_param& came = event.param.conn;
  std::printf("private data of %d bytes: [%.*s]\n", came.private_data_len, came.private_data_len,
              static_cast<const char*>(came.private_data));
}

void await_success(const Endpoint& end) {
  ibv_wc completion{};
  if (!end.wait_for_completion(completion, kPatienceMs)) interop::fail("no completion");
  if (completion.status != IBV_WC_SUCCESS) interop::fail(ibv_wc_status_str(completion.status));
}

void send_message(Endpoint& end, std::string_view text) {
  std::memset(end.memory().data() + kMessage, 0, kMessage);
  std::memcpy(end.memory().data() + kMessage, text.data(), text.size());
  must(end.send(2, end.slice(kMessage, kMessage)), "ibv_post_send");
}

void show_message(Endpoint& end) {
  std::printf("message: %.16s\n", reinterpret_cast<const char*>(end.memory().data()));
}

void serve(rdma_event_channel* channel, const char* host, const char* port, const char* text) {
  rdma_cm_id* listener = interop::listen(channel, host, port);
  rdma_cm_event* request = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* id = request->id;
  show_private_data(*request);
  must(rdma_ack_cm_event(request), "rdma_ack_cm_event");
  Endpoint end(id, kMemory, IBV_ACCESS_LOCAL_WRITE);
  must(end.receive(1, end.slice(0, kMessage)), "ibv_post_recv");
  rdma_conn_param parameters = with(text);
  must(rdma_accept(id, &parameters), "rdma_accept");
  must(rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ESTABLISHED)), "rdma_ack_cm_event");
  await_success(end);
  show_message(end);
  send_message(end, "from a server");
  await_success(end);
  must(rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_DISCONNECTED)), "rdma_ack_cm_event");
  end.destroy();
  must(rdma_destroy_id(listener), "rdma_destroy_id");
}

void ask(rdma_event_channel* channel, const char* host, const char* port, const char* text) {
  rdma_cm_id* id = interop::resolve(channel, host, port);
  Endpoint end(id, kMemory, IBV_ACCESS_LOCAL_WRITE);
  must(end.receive(1, end.slice(0, kMessage)), "ibv_post_recv");
  rdma_conn_param parameters = with(text);
  must(rdma_connect(id, &parameters), "rdma_connect");
  rdma_cm_event* established = expect(channel, RDMA_CM_EVENT_ESTABLISHED);
  show_private_data(*established);
  must(rdma_ack_cm_event(established), "rdma_ack_cm_event");
  send_message(end, "from a client");
  await_success(end);
  await_success(end);
  show_message(end);
  must(rdma_disconnect(id), "rdma_disconnect");
  must(rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_DISCONNECTED)), "rdma_ack_cm_event");
  end.destroy();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: plain_peer serve|ask HOST PORT TEXT\n");
    return 2;
  }
  rdma_event_channel* channel = must(rdma_create_event_channel(), "rdma_create_event_channel");
  const bool serves = std::string_view(argv[1]) == "serve";
  (serves ? serve : ask)(channel, argv[2], argv[3], argv[4]);
  rdma_destroy_event_channel(channel);
  std::printf("end\n");
}
