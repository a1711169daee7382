// The loop of a program that polls descriptors and makes calls that never block, as fi_rstream(7)
// describes it.
#include <poll.h>
#include <sys/resource.h>

#include <array>
#include <thread>

#include "fabric/sides.h"
#include "support/random.h"

namespace weft::fabric {
namespace {

class FabricPoll : public BothProtocols {};
WEFT_BOTH_PROTOCOLS(FabricPoll);

// Sends or receives `bytes` in a loop of poll. Returns the number of wake-ups without progress.
class Client {
 public:
  Client(fid_fabric& fabric, fid_ep& endpoint, fid_eq& events)
      : fabric_(fabric), endpoint_(endpoint), events_(events) {}

  int transfer(std::span<std::byte> bytes, bool sends) {
    std::size_t done = 0;
    int for_nothing = 0;
    while (done < bytes.size()) {
      sleep();
      std::size_t before = done;
      const auto look = sends ? fi_sendmsg(&endpoint_, nullptr, FI_PEEK)
                              : fi_recvmsg(&endpoint_, nullptr, FI_PEEK);
      while (look == 0 && done < bytes.size()) {
        const auto rest = bytes.subspan(done);
        const ssize_t count =
            sends ? fi_send(&endpoint_, rest.data(), rest.size(), nullptr, 0, nullptr)
                  : fi_recv(&endpoint_, rest.data(), rest.size(), nullptr, 0, nullptr);
        if (count == -FI_EAGAIN) break;
        EXPECT_GT(count, 0);
        if (count <= 0) return -1;
        done += static_cast<std::size_t>(count);
      }
      for_nothing += done == before;
    }
    return for_nothing;
  }

 private:
  void sleep() {
    fid* ids[] = {&endpoint_.fid, &events_.fid};
    if (std::exchange(first_, false) || fi_trywait(&fabric_, ids, 2) != 0) return;
    std::array<pollfd, 2> waits{
        {{fd_of(endpoint_.fid), POLLIN, 0}, {fd_of(events_.fid), POLLIN, 0}}};
    EXPECT_GT(poll(waits.data(), waits.size(), patience_ms), 0);
  }

  fid_fabric& fabric_;
  fid_ep& endpoint_;
  fid_eq& events_;
  bool first_ = true;  // a sender may start without an event
};

TEST_P(FabricPoll, EverythingArrivesAndFewWakeUpsAreForNothing) {
  constexpr std::size_t total = 64 * 1024 * 1024;
  Sides sides(GetParam());
  auto bytes = test::pattern(total);
  int sender_idle = 0;
  std::thread sender([&] {
    Client client(*sides.ground.fabric, *sides.active, *sides.ground.events);
    sender_idle = client.transfer(bytes, true);
  });
  std::vector<std::byte> got(total);
  Client client(*sides.ground.fabric, *sides.passive, *sides.ground.events);
  const int receiver_idle = client.transfer(got, false);
  sender.join();
  EXPECT_TRUE(got == bytes);
  EXPECT_LE(sender_idle, 1) << "but for the first look";
  EXPECT_LE(receiver_idle, 1) << "but for the first look";
}

TEST_P(FabricPoll, SleepingTakesNoProcessor) {
  Sides sides(GetParam());
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto of = [](const timeval& time) { return time.tv_sec * 1'000'000 + time.tv_usec; };
    return of(usage.ru_utime) + of(usage.ru_stime);
  };
  const auto before = used();
  std::array<pollfd, 2> waits{
      {{fd_of(sides.passive->fid), POLLIN, 0}, {fd_of(sides.ground.events->fid), POLLIN, 0}}};
  EXPECT_EQ(poll(waits.data(), waits.size(), 500), 0);
  EXPECT_LT(used() - before, 50'000) << "a tenth of one processor";
}

TEST_P(FabricPoll, ADescriptorMayBeAskedForBeforeThereIsAStream) {
  const Info from = get_info("127.0.0.1", "0", FI_SOURCE, hints(GetParam()).get());
  Ground ground(*from);
  const auto listener = ground.listener(*from);
  const Info to = info_to(*listener, GetParam());
  const auto active = ground.endpoint(*to);
  EXPECT_EQ(fi_enable(active.get()), 0);
  EXPECT_FALSE(becomes_readable(fd_of(active->fid), 0));
  ASSERT_EQ(fi_connect(active.get(), nullptr, nullptr, 0), 0);
  const Event request = ground.next();
  const auto passive = ground.endpoint(*request.info);
  EXPECT_EQ(fi_enable(passive.get()), 0);
  const int fd = fd_of(passive->fid);
  EXPECT_FALSE(becomes_readable(fd, 0));
  ASSERT_EQ(fi_accept(passive.get(), nullptr, 0), 0);
  EXPECT_EQ(ground.next().type, FI_CONNECTED);
  EXPECT_EQ(ground.next().type, FI_CONNECTED);
  EXPECT_EQ(fd_of(passive->fid), fd);
  EXPECT_FALSE(becomes_readable(fd, 0)) << "the event queue has told of the connection";
  send_all(*active, "x");
  EXPECT_TRUE(becomes_readable(fd));
  EXPECT_EQ(receive_some(*passive, 1), "x");
  EXPECT_FALSE(becomes_readable(fd, 0));
}

}  // namespace
}  // namespace weft::fabric
