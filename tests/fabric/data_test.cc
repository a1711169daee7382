// Sends, receives and peeks bytes, up to the end of the stream.
#include <algorithm>
#include <array>
#include <future>
#include <thread>

#include "fabric/sides.h"

namespace weft::fabric {
namespace {

class FabricData : public BothProtocols {
 protected:
  Sides sides{GetParam()};

  // Sends until the call would block. Returns the number of bytes.
  std::size_t fill() {
    const std::string some(5000, 'x');
    std::size_t sent = 0;
    while (true) {
      const ssize_t count =
          fi_send(sides.active.get(), some.data(), some.size(), nullptr, 0, nullptr);
      if (count < 0) {
        EXPECT_EQ(count, -FI_EAGAIN);
        return sent;
      }
      sent += static_cast<std::size_t>(count);
    }
  }
};
WEFT_BOTH_PROTOCOLS(FabricData);

TEST_P(FabricData, TheGreetingIsEchoed) {
  const std::string greeting = "hello stream!";
  send_all(*sides.passive, greeting);
  EXPECT_EQ(receive_some(*sides.active, greeting.size()), greeting);
  send_all(*sides.active, greeting);
  EXPECT_EQ(receive_some(*sides.passive, greeting.size()), greeting);
}

TEST_P(FabricData, ListsArePiecesOfOneStream) {
  std::string a = "one", b, c = "three";
  const std::array<iovec, 3> out{{{a.data(), a.size()}, {b.data(), 0}, {c.data(), c.size()}}};
  EXPECT_EQ(fi_sendv(sides.active.get(), out.data(), nullptr, 3, 0, nullptr), 8);
  fi_msg message{};
  message.msg_iov = out.data();
  message.iov_count = 1;
  EXPECT_EQ(fi_sendmsg(sides.active.get(), &message, 0), 3);
  ASSERT_TRUE(becomes_readable(fd_of(sides.passive->fid)));
  std::string all;
  while (all.size() < 11) {
    std::array<char, 2> first{};
    std::array<char, 5> second{};
    const std::array<iovec, 2> in{{{first.data(), 2}, {second.data(), 5}}};
    const ssize_t got = fi_recvv(sides.passive.get(), in.data(), nullptr, 2, 0, nullptr);
    if (got == -FI_EAGAIN) continue;
    ASSERT_GT(got, 0);
    const std::string joined = std::string(first.data(), 2) + std::string(second.data(), 5);
    all += joined.substr(0, static_cast<std::size_t>(got));
  }
  EXPECT_EQ(all, "onethreeone");
  const std::vector<iovec> too_many(1000, out[0]);
  EXPECT_EQ(fi_sendv(sides.active.get(), too_many.data(), nullptr, too_many.size(), 0, nullptr),
            -FI_EINVAL);
}

TEST_P(FabricData, ALookSaysWhatACallWouldDo) {
  EXPECT_EQ(fi_sendmsg(sides.active.get(), nullptr, FI_PEEK), 0);
  EXPECT_EQ(fi_recvmsg(sides.passive.get(), nullptr, FI_PEEK), -FI_EAGAIN);
  std::size_t sent = fill();
  EXPECT_GE(sent, 32768U);
  // A full ring may still grow.
  while (fi_sendmsg(sides.active.get(), nullptr, FI_PEEK) == 0) sent += fill();
  EXPECT_EQ(fi_sendmsg(sides.active.get(), nullptr, FI_PEEK), -FI_EAGAIN);
  ASSERT_TRUE(becomes_readable(fd_of(sides.passive->fid)));
  EXPECT_EQ(fi_recvmsg(sides.passive.get(), nullptr, FI_PEEK), 0);
  EXPECT_EQ(fi_recvmsg(sides.passive.get(), nullptr, FI_PEEK), 0) << "a look takes nothing";
  EXPECT_EQ(receive_some(*sides.passive, sent).size(), sent);
  EXPECT_EQ(fi_recvmsg(sides.passive.get(), nullptr, FI_PEEK), -FI_EAGAIN);
  ASSERT_TRUE(becomes_readable(fd_of(sides.active->fid)));
  EXPECT_EQ(fi_sendmsg(sides.active.get(), nullptr, FI_PEEK), 0);
}

// FI_THREAD_SAFE: in both directions, two senders and a receiver on each side.
TEST_P(FabricData, ThreadsShareAnEndpoint) {
  constexpr int calls = 2000;
  constexpr std::size_t block = 64;
  const auto send_blocks = [](fid_ep& endpoint, char letter) {
    const std::string text(block, letter);
    const int fd = fd_of(endpoint.fid);
    for (int i = 0; i < calls; ++i) {
      std::string_view left = text;
      while (!left.empty()) {
        const ssize_t sent = fi_send(&endpoint, left.data(), left.size(), nullptr, 0, nullptr);
        if (sent == -FI_EAGAIN) {
          (void)becomes_readable(fd, 10);  // the other thread may have read first
          continue;
        }
        if (sent <= 0) return;
        left.remove_prefix(static_cast<std::size_t>(sent));
      }
    }
  };
  const auto count_letters = [](fid_ep& endpoint) {
    const std::string got = receive_some(endpoint, 2 * calls * block);
    return std::pair(std::ranges::count(got, 'a'), std::ranges::count(got, 'b'));
  };
  std::vector<std::thread> senders;
  for (fid_ep* endpoint : {sides.active.get(), sides.passive.get()}) {
    for (const char letter : {'a', 'b'}) {
      senders.emplace_back([=] { send_blocks(*endpoint, letter); });
    }
  }
  auto counting = std::async(std::launch::async, [&] { return count_letters(*sides.active); });
  const std::pair<long, long> all(calls * block, calls * block);
  EXPECT_EQ(count_letters(*sides.passive), all);
  EXPECT_EQ(counting.get(), all);
  for (auto& sender : senders) sender.join();
}

TEST_P(FabricData, TryWaitSaysWhetherToSleep) {
  fid* const both[] = {&sides.passive->fid, &sides.ground.events->fid};
  auto* const fabric = sides.ground.fabric.get();
  EXPECT_EQ(fi_trywait(fabric, const_cast<fid**>(both), 2), 0);
  send_all(*sides.active, "x");
  ASSERT_TRUE(becomes_readable(fd_of(sides.passive->fid)));
  EXPECT_EQ(fi_trywait(fabric, const_cast<fid**>(both), 2), -FI_EAGAIN);
  EXPECT_EQ(fi_trywait(fabric, const_cast<fid**>(both) + 1, 1), 0) << "of the queue alone";
  EXPECT_EQ(receive_some(*sides.passive, 1), "x");
  EXPECT_EQ(fi_trywait(fabric, const_cast<fid**>(both), 2), 0);
  fid* const neither[] = {&sides.ground.domain->fid};
  EXPECT_EQ(fi_trywait(fabric, const_cast<fid**>(neither), 1), -FI_EINVAL);
}

TEST_P(FabricData, TheEndComesOnceBehindTheLastByte) {
  send_all(*sides.active, "the last");
  ASSERT_EQ(fi_shutdown(sides.active.get(), 0), 0);
  EXPECT_EQ(fi_shutdown(sides.active.get(), 1), -FI_EINVAL) << "no flags";
  const Event end = sides.ground.next();
  EXPECT_EQ(end.type, FI_SHUTDOWN);
  EXPECT_EQ(end.fid, &sides.passive->fid);
  EXPECT_EQ(receive_some(*sides.passive, 8), "the last");
  char more = 0;
  EXPECT_EQ(fi_recvmsg(sides.passive.get(), nullptr, FI_PEEK), 0) << "the end waits";
  EXPECT_EQ(fi_recv(sides.passive.get(), &more, 1, nullptr, 0, nullptr), 0);
  EXPECT_EQ(fi_recv(sides.passive.get(), &more, 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  EXPECT_EQ(fi_send(sides.active.get(), &more, 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  // The other direction still works.
  send_all(*sides.passive, "yes");
  EXPECT_EQ(receive_some(*sides.active, 3), "yes");
}

TEST_P(FabricData, WhoeverSendsToAPeerThatHasLeftLearnsIt) {
  sides.passive.reset();
  EXPECT_EQ(sides.ground.next().type, FI_SHUTDOWN);
  const int fd = fd_of(sides.active->fid);
  const std::string some(1000, 'x');
  ssize_t answer = 0;
  do {
    answer = fi_send(sides.active.get(), some.data(), some.size(), nullptr, 0, nullptr);
    if (answer == -FI_EAGAIN) {
      ASSERT_TRUE(becomes_readable(fd));
    }
  } while (answer > 0 || answer == -FI_EAGAIN);
  EXPECT_EQ(answer, -FI_ECONNRESET);
}

}  // namespace
}  // namespace weft::fabric
