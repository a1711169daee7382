// Management datagrams: names, and the fields of the connection manager's messages.
#include "weft/capture/management.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "capture/made_roce.h"

namespace weft::capture::test {
namespace {

using Fields = std::map<std::string_view, std::string>;

Fields map_of(const ManagementDatagram& datagram) {
  Fields fields;
  for (const ManagementField& field : fields_of(datagram)) fields[field.name] = field.value;
  return fields;
}

struct Log final : ManagementSink {
  std::vector<std::pair<std::string, Fields>> messages;

  void on_management(const ManagementDatagram& datagram) override {
    EXPECT_EQ(class_text(datagram), "ComMgt");
    EXPECT_EQ(method_text(datagram), "Send");
    messages.emplace_back(attribute_text(datagram), map_of(datagram));
  }
};

Log seen(const MadeCapture& capture) {
  Log log;
  Analysis analysis;
  analysis.add_management(log);
  feed(analysis, capture);
  return log;
}

TEST(Management, EachMessageOfAConnectionIsThere) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024, .qp_a = 0x21, .qp_b = 0x42});
  talk.connect();
  talk.send(Side::a, 100);
  talk.disconnect();
  const Log log = seen(capture);
  ASSERT_EQ(log.messages.size(), 5U);
  const auto& [first, request] = log.messages[0];
  EXPECT_EQ(first, "REQ");
  EXPECT_EQ(request.at("local_qp"), "0x21");
  EXPECT_EQ(request.at("path_mtu"), "1024");
  EXPECT_EQ(request.at("transport_service"), "RC");
  EXPECT_EQ(request.at("responder_resources"), "4");
  EXPECT_EQ(request.at("initiator_depth"), "3");
  EXPECT_EQ(request.at("starting_psn"), "2000000");
  EXPECT_FALSE(request.contains("alternate_local_lid"));
  const auto& [second, reply] = log.messages[1];
  EXPECT_EQ(second, "REP");
  EXPECT_EQ(reply.at("remote_id"), request.at("local_id"));
  EXPECT_EQ(reply.at("local_qp"), "0x42");
  EXPECT_EQ(log.messages[2].first, "RTU");
  EXPECT_EQ(log.messages[3].first, "DREQ");
  EXPECT_EQ(log.messages[4].first, "DREP");
}

TEST(Management, ARejectedConnectionHasItsReason) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.connect();
  capture.resize(1);
  talk.reject();
  const Log log = seen(capture);
  ASSERT_FALSE(log.messages.empty());
  EXPECT_EQ(log.messages.back().first, "REJ");
  EXPECT_EQ(log.messages.back().second.at("reason"), "consumer reject");
  Analysis analysis;
  feed(analysis, capture);
  EXPECT_EQ(analysis.connections()[0].reject_reason, 28);
}

// The snap length leaves 50 bytes of the message: up to the partition key.
TEST(Management, FieldsThatWereNotCapturedAreLeftOut) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.connect();
  const Log log = seen(cut(capture, 14 + 20 + 8 + 12 + 8 + 24 + 50));
  ASSERT_EQ(log.messages.size(), 3U);
  EXPECT_TRUE(log.messages[0].second.contains("p_key"));
  EXPECT_FALSE(log.messages[0].second.contains("path_mtu"));
}

ManagementDatagram datagram(std::uint8_t management_class, std::uint8_t method,
                            std::uint16_t attribute, Bytes message = {}) {
  ManagementDatagram made;
  made.management_class = management_class;
  made.method = method;
  made.attribute = attribute;
  made.message = message;
  return made;
}

TEST(Management, NamesDependOnTheClass) {
  const auto text = [](const ManagementDatagram& made) {
    return class_text(made) + " " + method_text(made) + " " + attribute_text(made);
  };
  EXPECT_EQ(text(datagram(0x81, 0x01, 0x15)), "SubnMgt (directed route) Get PortInfo");
  EXPECT_EQ(text(datagram(0x01, 0x02, 0x20)), "SubnMgt Set SMInfo");
  EXPECT_EQ(text(datagram(0x03, 0x92, 0x35)), "SubnAdm GetTableResp PathRecord");
  EXPECT_EQ(text(datagram(0x04, 0x81, 0x12)), "PerfMgt GetResp PortCounters");
  EXPECT_EQ(text(datagram(0x07, 0x03, 0x12)), "ComMgt Send REJ");
  EXPECT_EQ(text(datagram(0x21, 0x02, 0x16)), "CongCtrl Set CACongestionSetting");
  EXPECT_EQ(text(datagram(0x32, 0x44, 0x12)), "0x32 0x44 0x12");
  EXPECT_TRUE(fields_of(datagram(0x03, 0x92, 0x35, Content(64))).empty());
}

// Messages that no capture at hand has; each field has a value of its own.
TEST(Management, TheOtherMessagesHaveTheirFields) {
  Content bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const auto received = map_of(datagram(7, 3, 0x11, bytes));
  EXPECT_EQ(received.at("message"), "REQ");
  EXPECT_EQ(received.at("service_timeout"), "8.19 µs");
  const auto service_request = map_of(datagram(7, 3, 0x17, bytes));
  EXPECT_EQ(service_request.at("p_key"), "0x405");
  EXPECT_EQ(service_request.at("service_id"), "0x8090a0b0c0d0e0f");
  const auto service_reply = map_of(datagram(7, 3, 0x18, bytes));
  EXPECT_EQ(service_reply.at("sidr_status"), "redirected");
  EXPECT_EQ(service_reply.at("qp"), "0x8090a");
  EXPECT_EQ(service_reply.at("service_id"), "0xc0d0e0f10111213");
  EXPECT_EQ(service_reply.at("q_key"), "0x14151617");
  const auto alternate = map_of(datagram(7, 3, 0x19, bytes));
  EXPECT_EQ(alternate.at("remote_qp"), "0xc0d0e");
  EXPECT_EQ(alternate.at("alternate_local_lid"), "5141");
  EXPECT_EQ(alternate.at("alternate_flow_label"), "0x38393");
  EXPECT_EQ(alternate.at("alternate_hop_limit"), "60");
  EXPECT_EQ(alternate.at("alternate_packet_rate"), "61");  // reserved
  EXPECT_EQ(alternate.at("alternate_sl"), "3");
  EXPECT_EQ(alternate.at("alternate_subnet_local"), "yes");
  const auto response = map_of(datagram(7, 3, 0x1A, bytes));
  EXPECT_EQ(response.at("ap_status"), "9");
}

}  // namespace
}  // namespace weft::capture::test
