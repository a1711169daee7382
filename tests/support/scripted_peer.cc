#include "support/scripted_peer.h"

#include <gtest/gtest.h>

#include "support/pump.h"

namespace weft::test {

ScriptedPeer::ScriptedPeer(const iwarp::Connection::Options& options)
    : connection(options, host), crc_(options.crc) {}

void ScriptedPeer::send(const Ulpdu& ulpdu) {
  send_raw(fpdu(ulpdu, crc_));
}

void ScriptedPeer::send_raw(Bytes bytes) {
  (void)feed(connection, bytes, now_ns);
}

void ScriptedPeer::collect() {
  const auto bytes = drain(connection);
  sent_bytes_ += bytes.size();
  for (auto& ulpdu : split(bytes, crc_)) received_.push_back(std::move(ulpdu));
}

Ulpdu ScriptedPeer::next() {
  collect();
  if (received_.empty()) {
    ADD_FAILURE() << "nothing was sent";
    return {};
  }
  Ulpdu first = std::move(received_.front());
  received_.erase(received_.begin());
  return first;
}

void ScriptedPeer::expect(const Ulpdu& ulpdu) {
  EXPECT_EQ(next(), ulpdu);
}

void ScriptedPeer::expect_nothing() {
  collect();
  EXPECT_TRUE(received_.empty()) << "sent: " << describe(received_.front());
}

void ScriptedPeer::expect_terminate(const Ulpdu& ulpdu) {
  expect(ulpdu);
  expect_nothing();
  EXPECT_EQ(connection.end_reason(), iwarp::EndReason::terminated);
  EXPECT_EQ(host.end_reason, iwarp::EndReason::terminated);
  EXPECT_TRUE(connection.drained());
}

void ScriptedPeer::post(iwarp::WorkRequest request,
                        std::initializer_list<iwarp::LocalSlice> slices) {
  request.slices = {slices.begin(), slices.size()};
  EXPECT_EQ(connection.post(request), iwarp::Requester::Posted::ok);
}

void ScriptedPeer::post_receive(std::uint64_t wr_id,
                                std::initializer_list<iwarp::LocalSlice> slices) {
  host.post_receive(wr_id, slices);
  connection.receives_posted(now_ns);
}

std::vector<std::uint64_t> ScriptedPeer::received_ids() const {
  std::vector<std::uint64_t> ids;
  for (const auto& completion : host.receives) ids.push_back(completion.wr_id);
  return ids;
}

std::vector<iwarp::Status> ScriptedPeer::statuses() const {
  std::vector<iwarp::Status> all;
  for (const auto& completion : host.sends) all.push_back(completion.status);
  return all;
}

}  // namespace weft::test
