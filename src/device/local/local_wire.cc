#include "device/local/local_wire.h"

#include <new>
#include <utility>

namespace weft::device {
namespace {

constexpr int messages_per_turn = 64;

inbox::Inbox& inbox_in(const SharedMemory& memory) {
  return *std::launder(reinterpret_cast<inbox::Inbox*>(memory.data()));
}

}  // namespace

ChannelWire::ChannelWire(ProcessPairs& pairs, LocalChannel channel, SharedMemory own,
                         SharedMemory peer, pid_t process)
    : pairs_(pairs),
      channel_(std::move(channel)),
      own_(std::move(own)),
      peer_(std::move(peer)),
      process_(process) {
  own_.close_file();
}

inbox::Inbox& ChannelWire::own() const {
  return inbox_in(own_);
}

inbox::Inbox& ChannelWire::peer() const {
  return inbox_in(peer_);
}

// Only the introduction of a pair of processes has descriptors. A peer that writes as fast as this
// end reads must not keep it here: epoll reports what is left again.
bool ChannelWire::read() {
  for (int i = 0; i < messages_per_turn; ++i) {
    auto message = channel_.receive();
    if (!message) break;
    // The kernel closes the channel of a process that ends, whatever the reason.
    if (message->bytes.empty()) return false;
    if (!message->descriptors.empty()) pairs_.introduced(process_, std::move(*message));
  }
  return true;
}

void ChannelWire::abandon_after_fork() {
  channel_.disown();
  own_.abandon();
  peer_.abandon();
}

}  // namespace weft::device
