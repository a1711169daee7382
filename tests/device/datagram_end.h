// A queue pair for datagrams, ready to send, and address handles for others.
#pragma once

#include "device/datagram/address_handle.h"
#include "device/raw_end.h"

namespace weft::device {

inline constexpr std::uint32_t test_key = 0x11223344;

[[nodiscard]] EndOptions datagram_options(bool shared_receives = false);

class DatagramEnd : public RawEnd {
 public:
  explicit DatagramEnd(Device& device, std::uint32_t key = test_key,
                       const EndOptions& options = datagram_options());

  int to_datagram_init(std::uint32_t key);
  int to_datagram_rts();
  // Creates an address handle from the first GID to `gid`.
  [[nodiscard]] std::unique_ptr<AddressHandle> handle_for(const ibv_gid& gid);
  // Sends these bytes through a temporary address handle.
  int send_to(const ibv_gid& gid, std::uint32_t number, std::vector<ibv_sge> slices,
              std::uint32_t key = test_key, ibv_send_wr request = plain());
  int send_to(DatagramEnd& peer, std::vector<ibv_sge> slices) {
    return send_to(peer.gid(), peer.number(), std::move(slices));
  }
  [[nodiscard]] static ibv_send_wr plain();
};

}  // namespace weft::device
