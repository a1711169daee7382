// What the two ends of a connection within a host share: their inboxes, and how each wakes the
// other.
#pragma once

#include <cstdint>

#include "device/local/inbox.h"
#include "device/local/local_channel.h"
#include "device/local/pair_end.h"
#include "device/local/process_pairs.h"
#include "device/local/shared_memory.h"

namespace weft::device {

class LocalWire {
 public:
  LocalWire() = default;
  virtual ~LocalWire() = default;
  LocalWire(const LocalWire&) = delete;
  LocalWire& operator=(const LocalWire&) = delete;

  [[nodiscard]] virtual inbox::Inbox& own() const = 0;
  [[nodiscard]] virtual inbox::Inbox& peer() const = 0;
  // Makes the peer look at its inbox, if it has an engine that watches. Never blocks.
  virtual void wake() = 0;
  // The same where the connection has begun or ended, which the peer's program may wait for.
  virtual void wake_waiter() { wake(); }
  // Takes what has come to wake this end. False: the peer's process is gone.
  [[nodiscard]] virtual bool read() = 0;
  // The connection is over. `position`: where this end would put its next message.
  virtual void leave(std::uint64_t position) = 0;
  virtual void abandon_after_fork() = 0;
};

// A connection that began with TCP has a Unix socket and two files of memory of its own.
class ChannelWire final : public LocalWire {
 public:
  // `own` is mapped by both ends, so its file is not needed any more. `process`: of the peer.
  ChannelWire(ProcessPairs& pairs, LocalChannel channel, SharedMemory own, SharedMemory peer,
              pid_t process);

  [[nodiscard]] inbox::Inbox& own() const override;
  [[nodiscard]] inbox::Inbox& peer() const override;
  void wake() override { channel_.wake(); }
  [[nodiscard]] bool read() override;
  void leave(std::uint64_t /*position*/) override {}
  void abandon_after_fork() override;

 private:
  ProcessPairs& pairs_;
  LocalChannel channel_;
  SharedMemory own_;
  SharedMemory peer_;
  pid_t process_;
};

// One that a pair of processes has made.
class PairWire final : public LocalWire {
 public:
  explicit PairWire(PairEnd end) : end_(std::move(end)) {}

  [[nodiscard]] PairEnd& end() { return end_; }
  [[nodiscard]] inbox::Inbox& own() const override { return end_.own(); }
  [[nodiscard]] inbox::Inbox& peer() const override { return end_.peer(); }
  void wake() override { end_.ring(); }
  void wake_waiter() override { end_.ring_waiter(); }
  [[nodiscard]] bool read() override { return !end_.is_lost(); }
  void leave(std::uint64_t position) override { end_.set_position(position); }
  void abandon_after_fork() override { end_.abandon_after_fork(); }

 private:
  PairEnd end_;
};

}  // namespace weft::device
