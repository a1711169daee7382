// Peers that are not Weft: old ones, silent ones, ones that speak something else.
#include <array>
#include <cstring>

#include "cm/fixture.h"
#include "cm/plain_peer.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::cm {
namespace {

constexpr std::uint64_t short_ns = 50'000'000;

class ForeignPeer : public CmTest {
 protected:
  rdma_cm_id* dial(const PlainListener& listener) {
    auto to = listener.address();
    rdma_cm_id* client = make_client_to(active_, reinterpret_cast<sockaddr*>(&to));
    make_queue_pair(client);
    rdma_conn_param parameters{};
    parameters.initiator_depth = 4;
    parameters.responder_resources = 4;
    EXPECT_EQ(manager_->connect(client, &parameters), 0);
    return client;
  }
};

class ImpatientPeer : public ForeignPeer {
 protected:
  ImpatientPeer() { options_ = {.handshake_timeout_ns = short_ns, .first_fpdu_timeout_ns = short_ns}; }
};

// An empty RDMA Write without CRC: what an initiator says first.
std::vector<std::byte> empty_write() {
  std::vector<std::byte> fpdu(wire::fpdu_bytes(wire::DdpTagged::header_bytes));
  store_be(fpdu.data(), static_cast<std::uint16_t>(wire::DdpTagged::header_bytes));
  wire::DdpTagged{.last = true,
                  .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::write)}
      .emit(MutableBytes(fpdu).subspan(wire::fpdu_length_bytes));
  const auto covered = Bytes(fpdu).first(fpdu.size() - wire::fpdu_crc_bytes);
  wire::store_fpdu_crc(fpdu.data() + covered.size(), crc32c(covered));
  return fpdu;
}

wire::MpaEnhanced peer_to_peer(std::uint16_t ird, std::uint16_t ord) {
  return {.peer_to_peer = true, .rtr_write = true, .ird = ird, .ord = ord};
}

TEST_F(ForeignPeer, RevisionOneIsTriedWherePeerClosesOnTwo) {
  const PlainListener listener;
  rdma_cm_id* client = dial(listener);
  {
    PlainPeer first = listener_peer(listener);
    const auto frame = wire::MpaFrameView::check(first.receive_frame());
    ASSERT_TRUE(frame.ok());
    EXPECT_EQ(frame->frame().revision, 2);
  }
}

}  // namespace
}  // namespace weft::cm
