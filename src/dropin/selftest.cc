// The program that `weft doctor` runs to test the device: an ordinary RDMA program of two
// processes, which uses only the C interface.
//
//   selftest gids                   the device, its personality and LID, and its GID table
//   selftest serve ADDRESS PORT     prints the port it listens on, then replies until it is killed
//   selftest ask HOST PORT          connects, sends, writes and reads; one line per step
//
// ADDRESS may be "any", and PORT 0 takes a free one. Each step prints "NAME ok NANOSECONDS" or
// "NAME failed REASON". The exit status is 0 if all steps succeed. Nothing here times out: the
// caller must limit the time.
#include <endian.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

// Longer than an FPDU can be (64 KiB), so that a transfer consists of several.
constexpr std::size_t buffer_bytes = 256 * 1024;
constexpr std::size_t hello_bytes = 64;

// The memory that the other side may read and write, in the private data of the accept.
struct Offer {
  std::uint64_t address_be;
  std::uint32_t rkey_be;
  std::uint32_t bytes_be;
};

struct Failed {
  std::string reason;
};

// The caller uses this right after a call that has set errno.
void need(bool right, const char* what) {
  if (!right) throw Failed{std::string(what) + ": " + std::strerror(errno)};
}

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A connection with one queue pair, one buffer that the peer may access and one that it may not.
class Connection {
 public:
  explicit Connection(rdma_cm_id* id) : id_(id), shared_(buffer_bytes), own_(buffer_bytes) {
    // Integers, because ibv_reg_mr() is a macro that combines them with a flag of another
    // enumeration.
    constexpr unsigned own = IBV_ACCESS_LOCAL_WRITE;
    constexpr unsigned shared =
        own | unsigned{IBV_ACCESS_REMOTE_WRITE} | unsigned{IBV_ACCESS_REMOTE_READ};
    shared_mr_ = ibv_reg_mr(id->pd, shared_.data(), shared_.size(), shared);
    own_mr_ = ibv_reg_mr(id->pd, own_.data(), own_.size(), own);
    need(shared_mr_ && own_mr_, "cannot register memory");
    post_receive();
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // First the peer's accesses end, then the regions, and at last the endpoint with the protection
  // domain that they are in.
  ~Connection() {
    rdma_disconnect(id_);
    if (shared_mr_) ibv_dereg_mr(shared_mr_);
    if (own_mr_) ibv_dereg_mr(own_mr_);
    rdma_destroy_ep(id_);
  }

  [[nodiscard]] Offer offer() const {
    return {htobe64(reinterpret_cast<std::uint64_t>(shared_.data())), htobe32(shared_mr_->rkey),
            htobe32(buffer_bytes)};
  }

  // The first one is posted before the connection exists: a peer may send at once.
  void post_receive() {
    need(rdma_post_recv(id_, nullptr, shared_.data(), hello_bytes, shared_mr_) == 0,
         "cannot post a receive");
  }

  // The length of the next message; 0 if the connection has ended.
  std::uint32_t await_message() {
    ibv_wc completion{};
    if (rdma_get_recv_comp(id_, &completion) < 1) return 0;
    return completion.status == IBV_WC_SUCCESS ? completion.byte_len : 0;
  }

  void send(std::size_t bytes) {
    need(rdma_post_send(id_, nullptr, own_.data(), bytes, own_mr_, IBV_SEND_SIGNALED) == 0,
         "cannot post a send");
    await_request();
  }
  void write(const Offer& offer) {
    need(rdma_post_write(id_, nullptr, own_.data(), own_.size(), own_mr_, IBV_SEND_SIGNALED,
                         be64toh(offer.address_be), be32toh(offer.rkey_be)) == 0,
         "cannot post a write");
    await_request();
  }
  void read(const Offer& offer) {
    need(rdma_post_read(id_, nullptr, own_.data(), own_.size(), own_mr_, IBV_SEND_SIGNALED,
                        be64toh(offer.address_be), be32toh(offer.rkey_be)) == 0,
         "cannot post a read");
    await_request();
  }

  [[nodiscard]] std::vector<char>& own() { return own_; }
  [[nodiscard]] const std::vector<char>& shared() const { return shared_; }
  [[nodiscard]] rdma_cm_id* id() { return id_; }

 private:
  void await_request() {
    ibv_wc completion{};
    need(rdma_get_send_comp(id_, &completion) == 1, "no completion");
    if (completion.status != IBV_WC_SUCCESS) throw Failed{ibv_wc_status_str(completion.status)};
  }

  rdma_cm_id* id_;
  std::vector<char> shared_;
  std::vector<char> own_;
  ibv_mr* shared_mr_ = nullptr;
  ibv_mr* own_mr_ = nullptr;
};

ibv_qp_init_attr queues() {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {.max_send_wr = 4,
                    .max_recv_wr = 4,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  // Each request has a completion, for which await_request() waits.
  attributes.sq_sig_all = 1;
  return attributes;
}

rdma_cm_id* endpoint(const char* host, const char* port, bool passive) {
  rdma_addrinfo hints{};
  rdma_addrinfo* info = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = passive ? RAI_PASSIVE : 0;
  need(rdma_getaddrinfo(host, port, &hints, &info) == 0, "cannot resolve the address");
  ibv_qp_init_attr attributes = queues();
  rdma_cm_id* id = nullptr;
  const int failed = rdma_create_ep(&id, info, nullptr, &attributes);
  // rdma_freeaddrinfo() may change errno, which need() reports.
  const int reason = errno;
  rdma_freeaddrinfo(info);
  errno = reason;
  need(failed == 0, passive ? "cannot use the address" : "cannot reach the address");
  return id;
}

// Replies to each message with one of the same length until the peer disconnects.
void answer(rdma_cm_id* id) {
  Connection connection(id);
  const Offer offer = connection.offer();
  rdma_conn_param parameters{};
  parameters.private_data = &offer;
  parameters.private_data_len = sizeof offer;
  // With 0, the sides would allow no outstanding Reads.
  parameters.responder_resources = parameters.initiator_depth = 4;
  // 7 is no limit.
  parameters.rnr_retry_count = 7;
  need(rdma_accept(id, &parameters) == 0, "cannot accept");
  while (const std::uint32_t bytes = connection.await_message()) {
    std::memcpy(connection.own().data(), connection.shared().data(), bytes);
    // This precedes the reply, after which the peer may send again.
    connection.post_receive();
    connection.send(bytes);
  }
}

int serve(const char* address, const char* port) {
  rdma_cm_id* listener =
      endpoint(std::string_view(address) == "any" ? nullptr : address, port, true);
  need(rdma_listen(listener, 4) == 0, "cannot listen");
  std::printf("listening %u\n", ntohs(rdma_get_src_port(listener)));
  // Standard output is a pipe, and the caller waits for this line.
  std::fflush(stdout);
  while (true) {
    rdma_cm_id* id = nullptr;
    need(rdma_get_request(listener, &id) == 0, "no request");
    try {
      answer(id);
    } catch (const Failed& failed) {
      std::fprintf(stderr, "%s\n", failed.reason.c_str());  // go on with the next client
    }
  }
}

template <typename Action>
void step(const char* name, const Action& action) {
  const std::int64_t start = now_ns();
  try {
    action();
  } catch (const Failed& failed) {
    std::printf("%s failed %s\n", name, failed.reason.c_str());
    std::fflush(stdout);
    // Each step needs the ones before it, so that the first failure ends the program.
    throw;
  }
  std::printf("%s ok %lld\n", name, static_cast<long long>(now_ns() - start));
  std::fflush(stdout);
}

Offer connect(rdma_cm_id* id) {
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = 4;
  parameters.retry_count = parameters.rnr_retry_count = 7;
  need(rdma_connect(id, &parameters) == 0, "refused");
  Offer offer{};
  // The length may be more than was sent (rdma_get_cm_event(3)), so that only less is wrong. A
  // synchronous id keeps its last event.
  if (id->event->param.conn.private_data_len < sizeof offer) {
    throw Failed{"the listener there is not `weft doctor --serve`"};
  }
  std::memcpy(&offer, id->event->param.conn.private_data, sizeof offer);
  return offer;
}

// A linear congruential generator: bytes that arrive at the wrong place differ. Its upper bits are
// used, because the lower ones repeat early.
void fill(std::vector<char>& bytes) {
  std::uint32_t value = 0x2545F491;
  for (char& byte : bytes) byte = static_cast<char>((value = value * 1664525 + 1013904223) >> 24);
}

int ask(const char* host, const char* port) {
  rdma_cm_id* id = nullptr;
  step("resolve", [&] { id = endpoint(host, port, false); });
  Connection connection(id);
  Offer offer{};
  std::vector<char> pattern(buffer_bytes);
  fill(pattern);
  step("connect", [&] { offer = connect(id); });
  step("send", [&] {
    connection.own() = pattern;
    connection.send(hello_bytes);
    if (connection.await_message() != hello_bytes ||
        std::memcmp(connection.shared().data(), pattern.data(), hello_bytes) != 0) {
      throw Failed{"the reply differs from what was sent"};
    }
  });
  step("write", [&] { connection.write(offer); });
  step("read", [&] {
    // The comparison below must not find the bytes that were written.
    std::memset(connection.own().data(), 0, connection.own().size());
    connection.read(offer);
    if (connection.own() != pattern) throw Failed{"what was read differs from what was written"};
  });
  return 0;
}

// The name of the personality, as a program can tell it.
const char* personality(const ibv_device& device, const ibv_port_attr& port) {
  if (device.transport_type == IBV_TRANSPORT_IWARP) return "iwarp";
  return port.link_layer == IBV_LINK_LAYER_INFINIBAND ? "ib" : "roce";
}

int list_gids() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  need(devices && count > 0, "no device");
  for (int i = 0; i < count; ++i) {
    ibv_context* context = ibv_open_device(devices[i]);
    need(context, "cannot open the device");
    ibv_port_attr port{};
    need(ibv_query_port(context, 1, &port) == 0, "cannot query the port");
    std::printf("device %s %s\n", ibv_get_device_name(devices[i]),
                ibv_node_type_str(devices[i]->node_type));
    std::printf("personality %s %u\n", personality(*devices[i], port), port.lid);
    std::vector<ibv_gid_entry> gids(static_cast<std::size_t>(port.gid_tbl_len));
    const ssize_t known = ibv_query_gid_table(context, gids.data(), gids.size(), 0);
    for (ssize_t at = 0; at < known; ++at) {
      const ibv_gid_entry& gid = gids[static_cast<std::size_t>(at)];
      std::printf("gid %u ", gid.gid_index);
      for (std::size_t k = 0; k < sizeof gid.gid.raw; ++k) {
        std::printf("%s%02x", k > 0 && k % 2 == 0 ? ":" : "", gid.gid.raw[k]);
      }
      std::printf("\n");
    }
    ibv_close_device(context);
  }
  ibv_free_device_list(devices);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view what = count > 1 ? arguments[1] : "";
  try {
    if (what == "gids" && count == 2) return list_gids();
    if (what == "serve" && count == 4) return serve(arguments[2], arguments[3]);
    if (what == "ask" && count == 4) return ask(arguments[2], arguments[3]);
  } catch (const Failed& failed) {
    std::fprintf(stderr, "%s\n", failed.reason.c_str());
    return 1;
  }
  std::fprintf(stderr, "usage: selftest gids | serve ADDRESS PORT | ask HOST PORT\n");
  return 2;
}
