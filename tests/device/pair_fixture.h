// Two queue pairs of two contexts, connected over loopback TCP without a connection manager: the
// device's part after a handshake.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/completion/completion_queue.h"
#include "device/context.h"
#include "device/device.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/shared_receive_queue.h"

namespace weft::device {

// A registered buffer.
class Buffer {
 public:
  Buffer(Context& context, ProtectionDomain& domain, std::size_t bytes, unsigned access);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::span<std::uint8_t> bytes() { return bytes_; }
  [[nodiscard]] std::uint64_t address() const {
    return reinterpret_cast<std::uint64_t>(bytes_.data());
  }
  [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const;
  [[nodiscard]] std::uint32_t rkey() const { return mr_->rkey; }
  [[nodiscard]] ibv_mr* mr() const { return mr_; }
  void fill(std::uint8_t seed);
  [[nodiscard]] bool holds(std::uint8_t seed, std::size_t from, std::size_t to) const;
  void deregister();

 private:
  Context& context_;
  std::vector<std::uint8_t> bytes_;
  ibv_mr* mr_;
};

constexpr unsigned all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct EndOptions {
  ibv_qp_type type = IBV_QPT_RC;
  int completions = 256;
  std::uint32_t send_requests = 64;
  std::uint32_t receive_requests = 64;
  std::uint32_t slices = 4;
  std::uint32_t inline_bytes = 64;
  bool signal_all = false;
  bool channel = false;
  bool shared_receives = false;
};

// One end: its own context, protection domain, queues and queue pair.
class End {
 public:
  End(Device& device, const EndOptions& options);
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  [[nodiscard]] std::unique_ptr<Buffer> buffer(std::size_t bytes, unsigned access = all_access);
  int post_receive(std::uint64_t wr_id, std::vector<ibv_sge> slices);
  int post(ibv_send_wr request, std::vector<ibv_sge> slices);
  int send(std::uint64_t wr_id, std::vector<ibv_sge> slices, unsigned flags = IBV_SEND_SIGNALED);
  int write(std::uint64_t wr_id, std::vector<ibv_sge> slices, std::uint64_t address,
            std::uint32_t rkey, unsigned flags = IBV_SEND_SIGNALED);
  int read(std::uint64_t wr_id, std::vector<ibv_sge> slices, std::uint64_t address,
           std::uint32_t rkey);

  // Returns the next completion; fails the test after ten seconds.
  ibv_wc await();
  // Returns a completion if there is one; does not wait.
  std::optional<ibv_wc> look();

  Context context;
  ProtectionDomain* domain;
  CompletionChannel::Owned channel;
  CompletionQueue queue;
  std::unique_ptr<SharedReceiveQueue> shared;
  std::shared_ptr<QueuePair> queue_pair;
};

struct PairOptions {
  EndOptions ends;
  Settings settings;
  std::uint16_t read_depth = 8;  // requested by the application, for both directions
  std::uint32_t hold_bytes = 0;
  bool weft_peers = false;  // both have identified each other as Weft
  // Called before the active end gets its connection, when the passive end has its own already.
  std::function<void()> before_active;
};

// What the tests of this run are about, by the environment variable WEFT_TEST_CARRIER: connections
// over TCP, or with "local" those within one host, which leave TCP. Both ends are in one process
// here, but copy as two processes do; with "within" they copy as ends in one process. With "staged"
// the kernel refuses this process process_vm_readv(2) and process_vm_writev(2) from the first call
// on.
[[nodiscard]] SameHost same_host_of_run();
// Sets what follows from it.
void set_carrier(Settings& settings);
[[nodiscard]] bool carrier_is_local();

// For tests about TCP itself.
#define SKIP_WITHOUT_TCP(reason) \
  if (carrier_is_local()) GTEST_SKIP() << "about TCP: " << (reason)

class Pair {
 public:
  explicit Pair(const PairOptions& options = {});
  // A connected pair of TCP sockets over 127.0.0.1: (active, passive). The passive one has been
  // accepted from a listener that `listeners` knows.
  static std::pair<sys::Descriptor, sys::Descriptor> sockets(LocalListeners& listeners);
  static void connect(QueuePair& active, QueuePair& passive, const PairOptions& options);

  std::unique_ptr<Device> device;  // shared by both ends, like two contexts of one process
  End a;
  End b;
};

}  // namespace weft::device
