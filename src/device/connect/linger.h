// The last moments of a connection whose queue pair needs it no more: what is still to be sent goes
// out, then the write side closes, then the peer's rest is read and thrown away, so that no reset
// cuts off what is on its way to the peer.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "device/connect/stream_socket.h"
#include "device/engine.h"

namespace weft::device {

class Linger final : public Pollable {
 public:
  // `rest`: bytes that the socket did not take yet.
  static void start(Engine& engine, StreamSocket socket, std::vector<std::byte> rest);

  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

  Linger(Engine& engine, StreamSocket socket, std::vector<std::byte> rest)
      : engine_(engine), socket_(std::move(socket)), rest_(std::move(rest)) {}

 private:
  bool push_rest();
  bool drain();
  void finish();

  Engine& engine_;
  std::mutex mutex_;
  StreamSocket socket_;
  std::vector<std::byte> rest_;
  std::size_t pushed_ = 0;
  std::uint64_t token_ = 0;
};

}  // namespace weft::device
