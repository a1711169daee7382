// Two connected queue pairs of one process, for programs that break a rule on purpose. Only the C
// interface is used: these are ordinary programs, built with the system's headers.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace misuse {

// Ends the program with a message unless `right`.
void need(bool right, const char* what);

struct Options {
  int entries = 64;             // of each completion queue
  std::uint32_t requests = 32;  // of each queue
  bool signal_all = false;
  bool connected = true;
  bool channel = false;  // of the sender's completion queue
  std::uint8_t rnr_retry = 7;
  std::uint32_t inline_bytes = 64;
  ibv_cq_init_attr_ex* extended = nullptr;  // of both completion queues; null: ordinary ones
  bool late_receiver = false;               // which connect_receiver() connects
  bool shared = false;                      // the receiver has a shared receive queue
};

// A context, a protection domain, a completion queue for each queue pair, and a buffer.
struct Pair {
  explicit Pair(const Options& options = {});
  // Destroys everything in the right order.
  void close();

  ibv_mr* add_region(std::size_t first, std::size_t bytes, unsigned access);
  void receive(std::size_t first, std::uint32_t bytes, std::uint64_t id = 1);
  // `flags`: IBV_SEND_*.
  int send(ibv_wr_opcode opcode, ibv_sge piece, unsigned flags, std::uint64_t id = 2);
  [[nodiscard]] ibv_sge piece(std::size_t first, std::uint32_t bytes) const;
  void connect_receiver();
  // Two queue pairs in RESET become as those of the pair, one of which sends.
  static void connect_both(ibv_qp* sender, ibv_qp* receiver, const Pair& pair);
  // Of a pair with Options::extended.
  static ibv_cq_ex* extended(ibv_cq* cq) { return reinterpret_cast<ibv_cq_ex*>(cq); }
  // Waits for an event of the channel.
  void await_event(bool acknowledge = true) const;
  // Waits for one completion.
  static ibv_wc poll(ibv_cq* cq);

  static constexpr std::size_t bytes = 65536;
  static constexpr unsigned all_rights =
      unsigned{IBV_ACCESS_LOCAL_WRITE} | unsigned{IBV_ACCESS_REMOTE_WRITE} |
      unsigned{IBV_ACCESS_REMOTE_READ} | unsigned{IBV_ACCESS_REMOTE_ATOMIC};

  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(bytes / 8);
  ibv_context* context = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_pd* pd = nullptr;
  ibv_mr* mr = nullptr;
  ibv_cq* sender_cq = nullptr;
  ibv_cq* receiver_cq = nullptr;
  ibv_srq* srq = nullptr;  // of the receiver
  ibv_qp* sender = nullptr;
  ibv_qp* receiver = nullptr;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  ibv_gid gid{};
  std::uint8_t rnr_retry = 7;
};

}  // namespace misuse
