// One end of a connection, made with librdmacm and libibverbs. The test programs in this directory
// do not use Weft's own interfaces: they use the system's headers and are linked with the system's
// libraries by name.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace interop {

inline constexpr std::uint8_t kFill = 0xEE;  // in memory that was never written

// Memory that the peer may read and write, as sent in the private data of connect and accept, in
// host byte order.
struct Region {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t bytes = 0;
};

// Prints what failed, with errno, and exits with status 1.
[[noreturn]] void fail(const char* what);

inline void must(int result, const char* what) {
  if (result != 0) fail(what);
}
template <typename T>
T* must(T* pointer, const char* what) {
  if (pointer == nullptr) fail(what);
  return pointer;
}

// CLOCK_MONOTONIC in ns, which all processes of a machine share.
[[nodiscard]] std::int64_t now_ns();

struct Address {
  rdma_addrinfo* info = nullptr;

  Address(const char* host, const char* port, bool passive);
  ~Address() { rdma_freeaddrinfo(info); }
  Address(const Address&) = delete;
  Address& operator=(const Address&) = delete;
};

// Creates an identifier that is bound to a port and listens.
[[nodiscard]] rdma_cm_id* listen(rdma_event_channel* channel, const char* host, const char* port);

// Creates an identifier with address and route resolved. No other event may arrive on the channel
// meanwhile.
[[nodiscard]] rdma_cm_id* resolve(rdma_event_channel* channel, const char* host, const char* port);

// Waits for the next event, which the caller acknowledges; exits if it is another one.
[[nodiscard]] rdma_cm_event* expect(rdma_event_channel* channel, rdma_cm_event_type type);

// The region in the peer's private data.
[[nodiscard]] Region region_of(const rdma_conn_param& parameters);

// Connect and accept with `region` as private data, which is copied. They return librdmacm's
// result. `depth` is the number of reads in each direction; `qp_number` is for a queue pair that
// librdmacm did not create.
[[nodiscard]] int connect(rdma_cm_id* id, const Region& region, std::uint8_t depth);
[[nodiscard]] int accept(rdma_cm_id* id, const Region& region, std::uint8_t depth,
                         std::uint32_t qp_number = 0);

struct Depths {
  std::uint32_t sends = 16;
  std::uint32_t receives = 16;
};

enum class Maker { librdmacm, program };  // rdma_create_qp or ibv_create_qp

// The protection domain, completion queue, memory and queue pair of one connection.
class Endpoint {
 public:
  // `access` applies to the region that the peer gets, the middle half of the memory.
  Endpoint(rdma_cm_id* id, std::size_t bytes, int access, Depths depths = {},
           Maker maker = Maker::librdmacm);
  ~Endpoint() { destroy(); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // All events of the completion queue must have been acknowledged.
  void destroy();

  [[nodiscard]] ibv_sge slice(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] std::size_t quarter() const { return memory_.size() / 4; }
  [[nodiscard]] std::vector<std::uint8_t>& memory() { return memory_; }
  [[nodiscard]] Region shared() const;

  // These return libibverbs' result.
  int receive(std::uint64_t wr_id, ibv_sge slice) const;
  int send(std::uint64_t wr_id, ibv_sge slice) const;
  int write(std::uint64_t wr_id, ibv_sge slice, const Region& target, std::size_t offset) const;
  int read(std::uint64_t wr_id, ibv_sge slice, const Region& source, std::size_t offset) const;

  // Waits for the next completion for at most `timeout_ms`; false after a timeout.
  [[nodiscard]] bool wait_for_completion(ibv_wc& completion, int timeout_ms) const;

  rdma_cm_id* id = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* completions = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* all = nullptr;     // local use only
  ibv_mr* middle = nullptr;  // the peer's part
  ibv_qp* qp = nullptr;

 private:
  int post(std::uint64_t wr_id, ibv_sge slice, ibv_wr_opcode opcode, const Region& remote,
           std::size_t offset) const;

  std::vector<std::uint8_t> memory_;
};

}  // namespace interop
