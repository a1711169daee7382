// Two processes, each pinned to its own processor, that run one measurement at a time.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/completion/completion_queue.h"
#include "device/context.h"
#include "device/device.h"
#include "device/queue_pair/queue_pair.h"
#include "device/system.h"

namespace weft::bench {

// A control channel between the two processes, and the stream that is measured.
struct Lines {
  int control = -1;
  device::sys::Descriptor stream;
  bool active = true;

  void send_value(std::uint64_t value) const;
  [[nodiscard]] std::uint64_t receive_value() const;
};

// Runs `child` in a forked process on processor 1 and `parent` here on processor 0; returns what
// `parent` returns. Both get connected, tuned sockets.
double run_pair(const std::function<double(Lines)>& parent,
                const std::function<void(Lines)>& child);

// One end of a queue pair over the stream, with one registered buffer.
class VerbsEnd {
 public:
  VerbsEnd(Lines& lines, bool crc, std::size_t buffer_bytes);
  ~VerbsEnd();
  VerbsEnd(const VerbsEnd&) = delete;
  VerbsEnd& operator=(const VerbsEnd&) = delete;

  [[nodiscard]] volatile std::uint8_t* data() { return buffer_.data(); }
  void post_receive(std::size_t bytes);
  // Posts `count` requests with one doorbell; the last is signaled.
  void post(ibv_wr_opcode opcode, std::size_t bytes, int count = 1, bool signaled = true,
            std::size_t from = 0, std::size_t to = 0);
  // Polls until a completion of `opcode` arrives; exits on a failed one.
  void await(ibv_wc_opcode opcode);
  // Polls once and returns the number of completions.
  int poll();

  int receives = 0;  // completions polled and not yet awaited
  int others = 0;

 private:
  std::unique_ptr<device::Device> device_;
  device::Context context_;
  std::unique_ptr<device::ProtectionDomain> domain_;
  device::CompletionQueue queue_;
  std::shared_ptr<device::QueuePair> queue_pair_;
  std::vector<std::uint8_t> buffer_;
  ibv_mr* mr_ = nullptr;
  std::uint64_t remote_address_ = 0;
  std::uint32_t remote_rkey_ = 0;
};

}  // namespace weft::bench
