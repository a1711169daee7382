// Two peers of librpma, the library for remote access to persistent memory. The client writes,
// reads back, flushes and writes atomically in the memory of the server, and sends a message with
// immediate data, after which the server compares what it has.
//
//   rpma_peer serve HOST PORT
//   rpma_peer ask HOST PORT

#include <arpa/inet.h>
#include <librpma.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "interop/need.h"

namespace {

constexpr std::size_t half = 32 << 10;
constexpr std::size_t word_at = half + 64;  // of the atomic write
constexpr char word[] = "8 bytes";          // with the zero at its end
static_assert(sizeof word == RPMA_ATOMIC_WRITE_ALIGNMENT);
constexpr std::uint32_t immediate = 0x1234;
constexpr int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV |
                      RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;

char pattern(std::size_t at) {
  return static_cast<char>(at * 31 + 7);
}

// Memory with a region, and the peer object that has it.
struct Local {
  explicit Local(const char* host, rpma_util_ibv_context_type side) : bytes(2 * half) {
    ibv_context* context = nullptr;
    NEED(rpma_utils_get_ibv_context(host, side, &context) == 0);
    NEED(rpma_peer_new(context, &peer) == 0);
    NEED(rpma_mr_reg(peer, bytes.data(), bytes.size(), usage, &region) == 0);
  }
  void destroy() {
    NEED(rpma_mr_dereg(&region) == 0);
    NEED(rpma_peer_delete(&peer) == 0);
  }
  std::vector<char> bytes;
  rpma_peer* peer = nullptr;
  rpma_mr_local* region = nullptr;
};

void await_event(rpma_conn* connection, rpma_conn_event wanted) {
  rpma_conn_event event{};
  NEED(rpma_conn_next_event(connection, &event) == 0);
  NEED(event == wanted);
}

ibv_wc await_completion(rpma_conn* connection) {
  rpma_cq* queue = nullptr;
  NEED(rpma_conn_get_cq(connection, &queue) == 0);
  ibv_wc done{};
  int result = 0;
  while ((result = rpma_cq_get_wc(queue, 1, &done, nullptr)) == RPMA_E_NO_COMPLETION) {
    NEED(rpma_cq_wait(queue) == 0);
  }
  NEED(result == 0);
  NEED(done.status == IBV_WC_SUCCESS);
  return done;
}

void serve(const char* host, const char* port) {
  Local local(host, RPMA_UTIL_IBV_CONTEXT_LOCAL);
  rpma_ep* endpoint = nullptr;
  NEED(rpma_ep_listen(local.peer, host, port, &endpoint) == 0);
  std::puts("listens");
  std::vector<char> descriptor;
  std::size_t size = 0;
  NEED(rpma_mr_get_descriptor_size(local.region, &size) == 0);
  descriptor.resize(size);
  NEED(rpma_mr_get_descriptor(local.region, descriptor.data()) == 0);
  const rpma_conn_private_data offered{descriptor.data(), static_cast<std::uint8_t>(size)};
  rpma_conn_req* request = nullptr;
  NEED(rpma_ep_next_conn_req(endpoint, nullptr, &request) == 0);
  NEED(rpma_conn_req_recv(request, local.region, half, 64, nullptr) == 0);
  rpma_conn* connection = nullptr;
  NEED(rpma_conn_req_connect(&request, &offered, &connection) == 0);
  await_event(connection, RPMA_CONN_ESTABLISHED);
  const ibv_wc got = await_completion(connection);
  NEED(got.opcode == IBV_WC_RECV && (got.wc_flags & IBV_WC_WITH_IMM) != 0);
  NEED(got.imm_data == htonl(immediate));
  for (std::size_t at = 0; at < half; ++at) NEED(local.bytes[at] == pattern(at));
  NEED(std::memcmp(&local.bytes[word_at], word, sizeof word) == 0);
  await_event(connection, RPMA_CONN_CLOSED);
  NEED(rpma_conn_disconnect(connection) == 0);
  NEED(rpma_conn_delete(&connection) == 0);
  NEED(rpma_ep_shutdown(&endpoint) == 0);
  local.destroy();
}

void ask(const char* host, const char* port) {
  Local local(host, RPMA_UTIL_IBV_CONTEXT_REMOTE);
  for (std::size_t at = 0; at < half; ++at) local.bytes[at] = pattern(at);
  rpma_conn_req* request = nullptr;
  NEED(rpma_conn_req_new(local.peer, host, port, nullptr, &request) == 0);
  rpma_conn* connection = nullptr;
  NEED(rpma_conn_req_connect(&request, nullptr, &connection) == 0);
  await_event(connection, RPMA_CONN_ESTABLISHED);
  rpma_conn_private_data offered{};
  NEED(rpma_conn_get_private_data(connection, &offered) == 0);
  rpma_mr_remote* remote = nullptr;
  NEED(rpma_mr_remote_from_descriptor(offered.ptr, offered.len, &remote) == 0);
  constexpr int always = RPMA_F_COMPLETION_ALWAYS;
  NEED(rpma_write(connection, remote, 0, local.region, 0, half, always, nullptr) == 0);
  await_completion(connection);
  NEED(rpma_read(connection, local.region, half, remote, 0, half, always, nullptr) == 0);
  await_completion(connection);
  NEED(std::memcmp(local.bytes.data(), &local.bytes[half], half) == 0);
  NEED(rpma_atomic_write(connection, remote, word_at, word, always, nullptr) == 0);
  await_completion(connection);
  NEED(rpma_flush(connection, remote, 0, half, RPMA_FLUSH_TYPE_VISIBILITY, always, nullptr) == 0);
  await_completion(connection);
  NEED(rpma_send_with_imm(connection, local.region, 0, 16, always, immediate, nullptr) == 0);
  await_completion(connection);
  NEED(rpma_mr_remote_delete(&remote) == 0);
  NEED(rpma_conn_disconnect(connection) == 0);
  await_event(connection, RPMA_CONN_CLOSED);
  NEED(rpma_conn_delete(&connection) == 0);
  local.destroy();
}

}  // namespace

int main(int argc, char** argv) {
  NEED(argc == 4);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::string_view(argv[1]) == "serve" ? serve(argv[2], argv[3]) : ask(argv[2], argv[3]);
  std::puts("all data is right");
  return 0;
}
