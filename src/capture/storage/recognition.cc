#include "capture/storage/recognition.h"

#include <algorithm>

#include "capture/storage/iser_wire.h"
#include "capture/storage/nvme_wire.h"
#include "capture/storage/smb_wire.h"
#include "capture/storage/srp_wire.h"

namespace weft::capture {

// NVMe is recognised by a Connect command, or by several completions that match commands. Returns
// the side of the host.
std::optional<Side> StorageRecognition::examine_nvme(Side side, const StorageBytes& message) {
  constexpr unsigned matches_wanted = 4;
  if (is_nvme_connect(message)) return side;
  if (may_be_nvme_command(message)) {
    NvmeHost& own = host(side);
    own.commands[own.next] = nvme_command_id(message.bytes);
    own.next = (own.next + 1) % own.commands.size();
    own.seen = std::min(own.seen + 1, own.commands.size());
    return std::nullopt;
  }
  NvmeHost& peer = host(other(side));
  if (peer.seen == 0 || !may_be_nvme_completion(message)) return std::nullopt;
  const auto end = peer.commands.begin() + static_cast<std::ptrdiff_t>(peer.seen);
  const bool known = std::find(peer.commands.begin(), end, nvme_completed_id(message.bytes)) != end;
  if (!known || ++peer.matched < matches_wanted) return std::nullopt;
  return other(side);
}

std::optional<RecognisedStorage> StorageRecognition::examine(Side side,
                                                             const StorageBytes& message) {
  if (is_smb_direct(message)) return RecognisedStorage{StorageProtocol::smb_direct, side};
  if (const auto host = examine_nvme(side, message)) {
    return RecognisedStorage{StorageProtocol::nvme, *host};
  }
  if (is_iser(message)) return RecognisedStorage{StorageProtocol::iser, side};
  if (is_srp_command(message)) return RecognisedStorage{StorageProtocol::srp, side};
  ++examined_;
  return std::nullopt;
}

}  // namespace weft::capture
