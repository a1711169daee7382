// Closes a connection gently after its queue pair has given it up: sends what is left, closes the
// write side, then reads and discards what the peer still sends. Without that, TCP would send a
// reset, which can destroy data on its way to the peer.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "device/connect/stream_socket.h"
#include "device/engine.h"

namespace weft::device {

class Device;
class Linger;

// The refused connections of a device that still linger. Thread-safe.
class RefusedConnections {
 public:
  using Place = std::list<std::weak_ptr<Linger>>::iterator;

  // `most`: that linger at a time; the limit on descriptors may allow fewer.
  explicit RefusedConnections(std::size_t most) : most_(most) {}

  // Returns the place of `linger`, to be given back when it ends. `oldest`: the one that must end
  // to make room, or null.
  Place add(const std::shared_ptr<Linger>& linger, std::shared_ptr<Linger>& oldest);
  void remove(Place place);
  [[nodiscard]] std::size_t count();
  // The bound that holds now, also for the requests of strangers that wait for an answer.
  [[nodiscard]] std::size_t most() const;

 private:
  const std::size_t most_;
  std::mutex mutex_;
  std::list<std::weak_ptr<Linger>> lingering_;  // oldest first
};

class Linger final : public Pollable {
 public:
  // `rest`: bytes that the socket did not take yet.
  static void start(Engine& engine, StreamSocket socket, std::vector<std::byte> rest);
  // The same for a connection that was refused. Any host can cause these, and each costs a
  // descriptor for up to limits::linger_ns: beyond a bound the oldest is cut off with a reset.
  static void start_refused(Device& device, StreamSocket socket, std::vector<std::byte> rest);

  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

  Linger(Engine& engine, StreamSocket socket, std::vector<std::byte> rest)
      : engine_(engine), socket_(std::move(socket)), rest_(std::move(rest)) {}

 private:
  static void begin(const std::shared_ptr<Linger>& linger);
  void cut_off();
  bool push_rest();
  bool drain();
  void finish();

  Engine& engine_;
  std::mutex mutex_;
  StreamSocket socket_;
  std::vector<std::byte> rest_;
  std::size_t pushed_ = 0;
  RefusedConnections* refused_ = nullptr;  // where `place_` is
  RefusedConnections::Place place_;
  std::uint64_t token_ = 0;
};

}  // namespace weft::device
