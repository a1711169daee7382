// The other end of a pair of processes (device/local/process_pair.h), made by hand: it sends any
// message, and what it shares says anything. It is in this process, and the device cannot know.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "cm/fixture.h"
#include "device/local/grant_table.h"
#include "device/local/inbox_pool.h"
#include "device/local/local_channel.h"
#include "device/local/pair_message.h"
#include "device/local/process_pair.h"
#include "support/random.h"

namespace weft::cm {

// Not thread-safe.
class HostileEnd {
 public:
  static constexpr std::uint32_t receives = 16;

  // Of which the device is the serving side, or the dialing one. The device dials through the pair
  // where it connects to `destination`.
  static HostileEnd that_dials(device::Device& device);
  static HostileEnd that_serves(device::Device& device, const sockaddr_storage& destination);

  struct Message {
    device::pair_message::Header header;
    std::vector<std::byte> frame;
    std::vector<device::sys::Descriptor> files;
  };
  // The next message of the device that is not about bells. None: it has closed the pair.
  std::optional<Message> await();
  void send(const device::pair_message::Header& header, Bytes frame, std::vector<int> files = {});
  void send(Bytes bytes, std::vector<int> files = {}) { (void)channel_.send(bytes, files); }
  // False where the device has no room for it yet.
  [[nodiscard]] bool try_send(const device::pair_message::Header& header, Bytes frame,
                              const std::vector<int>& files = {});
  [[nodiscard]] bool is_closed() const { return device::sys::peer_closed(channel_.fd()); }

  // As they should be: a request, and the acceptance of one, with what `context` grants.
  struct Whole {
    device::pair_message::Header header;
    std::vector<std::byte> frame;
    std::vector<int> files;
  };
  [[nodiscard]] Whole request(device::Context& context, const sockaddr_storage& destination);
  [[nodiscard]] Whole acceptance(device::Context& context, const Message& request);
  // The MPA reply to a request.
  [[nodiscard]] static std::vector<std::byte> reply_to(Bytes request, bool accepts);

  // The inbox that request() and acceptance() name, and the one that a message of the device does.
  [[nodiscard]] device::inbox::Inbox& own() { return *own_.at(0); }
  [[nodiscard]] bool map(Message& message);
  [[nodiscard]] device::inbox::Inbox* device_inbox() const { return devices_; }
  // Makes the device look.
  void ring(std::uint32_t number);
  [[nodiscard]] device::PairBells& bells(std::size_t which);

 private:
  HostileEnd();
  void name(Whole& whole, device::Context& context);

  device::LocalChannel channel_;
  device::SharedMemory bells_;
  device::InboxFile own_;
  std::vector<device::InboxFile> devices_files_;
  device::inbox::Inbox* devices_ = nullptr;
  bool dials_ = false;
  std::uint32_t next_number_ = 0;
};

}  // namespace weft::cm
