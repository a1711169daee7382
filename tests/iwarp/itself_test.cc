// A stream that leads back to its sender: requester and responder are one connection.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/fpdu.h"
#include "support/memory_host.h"
#include "support/options.h"
#include "support/pair.h"

namespace weft::test {
namespace {

using iwarp::EndReason;
using iwarp::Operation;
using iwarp::Status;

class Loop {
 public:
  Loop() : connection(options(), host), memory(host.add(1 << 20)) {}

  void post(iwarp::WorkRequest request, std::initializer_list<iwarp::LocalSlice> slices) {
    request.slices = {slices.begin(), slices.size()};
    EXPECT_EQ(connection.post(request), iwarp::Requester::Posted::ok);
  }
  // Moves at most `chunk` bytes at a time, until nothing is outstanding.
  void drive(std::size_t chunk) {
    while (true) {
      const Content bytes = copy_of(connection.plan_send(), chunk);
      if (bytes.empty()) return;
      connection.sent(bytes.size());
      feed(bytes);
    }
  }
  [[nodiscard]] std::vector<Status> statuses() const {
    std::vector<Status> all;
    for (const auto& completion : host.sends) all.push_back(completion.status);
    return all;
  }

  MemoryHost host;
  iwarp::Connection connection;
  Region& memory;

 private:
  static iwarp::Connection::Options options() {
    auto options = patient_pair(4096).a;
    options.to_itself = true;
    options.peer.control_stag = options.control_stag;
    return options;
  }
  static Content copy_of(std::span<const iovec> pieces, std::size_t limit) {
    Content all;
    for (const auto& piece : pieces) {
      const auto* at = static_cast<const std::byte*>(piece.iov_base);
      all.insert(all.end(), at, at + std::min(piece.iov_len, limit - all.size()));
    }
    return all;
  }
  void feed(Bytes bytes) {
    while (!bytes.empty()) {
      std::vector<iovec> into;
      connection.plan_receive(into);
      if (into.empty()) return;
      std::size_t taken = 0;
      for (const auto& piece : into) {
        const std::size_t part = std::min(piece.iov_len, bytes.size() - taken);
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(taken), part,
                    static_cast<std::byte*>(piece.iov_base));
        taken += part;
      }
      connection.received(taken);
      bytes = bytes.subspan(taken);
    }
  }
};

iwarp::WorkRequest request(std::uint64_t wr_id, Operation operation, const Region& there) {
  return {.wr_id = wr_id,
          .operation = operation,
          .remote_address = there.address(),
          .rkey = there.rkey()};
}

class ToItself : public ::testing::TestWithParam<std::size_t> {};

// Earlier requests are carried out, also reads with answers on the way; the request at fault gets
// the error. After a Write at fault nothing happens. A Write after a Read or an atomic at fault may
// be carried out, as those have to wait for their turn (RFC 5040 §5.5).
TEST_P(ToItself, TheRequestAtFaultIsBlamed) {
  for (const Operation operation : {Operation::write, Operation::read, Operation::fetch_add}) {
    Loop loop;
    Region& secret =
        loop.host.add(64, {.remote_write = false, .remote_read = false, .remote_atomic = false});
    Region& open = loop.host.add(200'000);
    Region& behind = loop.host.add(text("before"));
    loop.post(request(1, Operation::read, open), {loop.memory.slice(0, 200'000)});
    loop.post(request(2, operation, secret), {loop.memory.slice(0, 8)});
    loop.post(request(3, Operation::write, behind), {loop.memory.slice(0, 6)});
    loop.drive(GetParam());
    const std::vector wanted{Status::success, Status::remote_access, Status::flushed};
    EXPECT_EQ(loop.statuses(), wanted) << static_cast<int>(operation);
    if (operation == Operation::write) {
      EXPECT_EQ(behind.copy(), text("before"));
    }
    EXPECT_EQ(loop.host.end_reason, EndReason::terminated);
    EXPECT_EQ(loop.host.end_calls, 1);
  }
}

TEST_P(ToItself, AShortReceiveFailsBothEnds) {
  Loop loop;
  loop.host.post_receive(9, {loop.memory.slice(0, 4)});
  loop.post({.wr_id = 1}, {loop.memory.slice(8, 8)});
  loop.drive(GetParam());
  EXPECT_EQ(loop.statuses(), std::vector{Status::remote_invalid_request});
  ASSERT_EQ(loop.host.receives.size(), 1U);
  EXPECT_EQ(loop.host.receives[0].status, Status::local_length);
}

INSTANTIATE_TEST_SUITE_P(Chunks, ToItself, ::testing::Values(1, 7, 1'000'000));

}  // namespace
}  // namespace weft::test
