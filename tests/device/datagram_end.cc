#include "device/datagram_end.h"

namespace weft::device {

EndOptions datagram_options(bool shared_receives) {
  EndOptions options;
  options.type = IBV_QPT_UD;
  options.shared_receives = shared_receives;
  return options;
}

DatagramEnd::DatagramEnd(Device& device, std::uint32_t key, const EndOptions& options)
    : RawEnd(device, options) {
  EXPECT_EQ(to_datagram_init(key), 0);
  EXPECT_EQ(to(IBV_QPS_RTR), 0);
  EXPECT_EQ(to_datagram_rts(), 0);
}

int DatagramEnd::to_datagram_init(std::uint32_t key) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = key;
  return queue_pair->modify(attributes,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
}

int DatagramEnd::to_datagram_rts() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = 0xFFFFFF;  // the next one is 0
  return queue_pair->modify(attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

std::unique_ptr<AddressHandle> DatagramEnd::handle_for(const ibv_gid& gid) {
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid = gid;
  return std::unique_ptr<AddressHandle>(AddressHandle::create(*domain, attributes));
}

ibv_send_wr DatagramEnd::plain() {
  ibv_send_wr request{};
  request.wr_id = 77;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  return request;
}

int DatagramEnd::send_to(const ibv_gid& gid, std::uint32_t number, std::vector<ibv_sge> slices,
                         std::uint32_t key, ibv_send_wr request) {
  const auto handle = handle_for(gid);
  EXPECT_NE(handle, nullptr);
  request.wr.ud.ah = handle->verbs();
  request.wr.ud.remote_qpn = number;
  request.wr.ud.remote_qkey = key;
  return post(request, std::move(slices));
}

}  // namespace weft::device
