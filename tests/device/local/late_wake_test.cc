// A wake-up that comes late: the peer publishes a message, and asks whether this end sleeps only
// after this end has taken the message, has armed for the next one and sleeps.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device/local/inbox.h"
#include "device/local/same_host_test.h"
#include "device/pair_fixture.h"

namespace weft::device {
namespace {

// Both views of each inbox of this process: the owner's and the peer's.
std::vector<inbox::Inbox*> inboxes() {
  std::vector<inbox::Inbox*> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:weft-inbox") == std::string::npos) continue;
    found.push_back(reinterpret_cast<inbox::Inbox*>(std::stoul(line, nullptr, 16)));
  }
  return found;
}

std::vector<int> unix_sockets() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    int family = 0;
    socklen_t bytes = sizeof family;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX) {
      found.push_back(fd);
    }
  }
  return found;
}

bool soon(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// As LocalConnection::push() does after its message was taken.
void wake_late() {
  for (inbox::Inbox* const inbox : inboxes()) inbox->armed.store(inbox::Armed::no);
  const char token = 1;
  for (const int fd : unix_sockets()) (void)::send(fd, &token, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool wake_ups_are_read() {
  for (const int fd : unix_sockets()) {
    int waiting = 0;
    if (ioctl(fd, FIONREAD, &waiting) == 0 && waiting > 0) return false;
  }
  return true;
}

class LateWakeUp : public SameHostTest {};

PairOptions with_channels() {
  PairOptions options;
  options.ends.channel = true;
  return options;
}

TEST_F(LateWakeUp, LeavesASleepingReceiverArmed) {
  Pair pair(with_channels());
  auto from = pair.a.buffer(8);
  auto to = pair.b.buffer(8);
  ASSERT_TRUE(soon([&] {
    (void)pair.a.look();
    (void)pair.b.look();
    const auto all = inboxes();
    return all.size() == 4 && std::ranges::all_of(all, [](auto* one) { return one->open != 0; });
  })) << "the connection stays on TCP";
  for (std::uint64_t round = 0; round < 20; ++round) {
    ASSERT_EQ(pair.b.post_receive(round, {to->sge(0, 8)}), 0);
    ASSERT_EQ(pair.b.queue.request_notification(false), 0);
    wake_late();
    ASSERT_TRUE(soon(wake_ups_are_read));
    ASSERT_EQ(pair.a.send(round, {from->sge(0, 8)}), 0);
    pollfd event{pair.b.channel->verbs()->fd, POLLIN, 0};
    ASSERT_EQ(::poll(&event, 1, 10'000), 1) << "nobody wakes the receiver, round " << round;
    CompletionQueue* queue = nullptr;
    ASSERT_EQ(pair.b.channel->next(queue), 0);
    ++queue->verbs()->comp_events_completed;  // as ibv_ack_cq_events(3)
    EXPECT_EQ(pair.b.await().wr_id, round);
    EXPECT_EQ(pair.a.await().wr_id, round);
  }
}

}  // namespace
}  // namespace weft::device
