// Recognises the storage protocol of one connection by its messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "capture/storage/storage_message.h"

namespace weft::capture {

struct RecognisedStorage {
  StorageProtocol protocol = StorageProtocol::nvme;
  Side requester = Side::a;  // of NVMe; the messages of the others show it themselves
};

class StorageRecognition {
 public:
  // Examines a message. Returns nullopt until the protocol is known.
  std::optional<RecognisedStorage> examine(Side side, const StorageBytes& message);
  // Whether the connection has had so many messages of something else that no search is worth it.
  [[nodiscard]] bool given_up() const { return examined_ == max_examined; }

 private:
  static constexpr unsigned max_examined = 64;

  // What one side has sent, if it is the host of NVMe.
  struct NvmeHost {
    // Ids of the last messages that look like commands. Completions with the same ids confirm them.
    std::array<std::uint16_t, 8> commands{};
    std::size_t next = 0;
    std::size_t seen = 0;
    unsigned matched = 0;
  };

  [[nodiscard]] std::optional<Side> examine_nvme(Side side, const StorageBytes& message);
  NvmeHost& host(Side side) { return hosts_[side == Side::a ? 0 : 1]; }

  std::array<NvmeHost, 2> hosts_;
  unsigned examined_ = 0;
};

}  // namespace weft::capture
