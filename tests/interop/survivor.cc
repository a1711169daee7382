// A program that works over a connection without a pause, in both directions and with every kind of
// request, while its peer may be killed at any moment. It must then get a completion for each
// posted request and RDMA_CM_EVENT_DISCONNECTED; it frees all objects, prints what it saw and how
// many descriptors are left, and continues.
//
//   survivor listen HOST PORT [COUNT]   serves any number of connections
//   survivor connect HOST               reads lines "PORT [COUNT]" and connects to each in turn
//
// With COUNT it prints "reached" after that many completed requests, as a signal to kill it.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "interop/endpoint.h"
#include "support/own_figures.h"

namespace {

using interop::Endpoint;
using interop::fail;
using interop::must;
using interop::now_ns;
using interop::Region;
using weft::test::own_descriptors;

constexpr std::size_t kMemory = 4 << 20;
constexpr std::size_t kMessage = 8192;
constexpr std::uint64_t kReceives = 16;
constexpr std::uint64_t kTokens = 4;  // messages that travel back and forth
constexpr std::uint64_t kWrites = 4;
constexpr std::uint64_t kReads = 4;
constexpr int kTurns = 16;
constexpr std::int64_t kPatience = 10'000'000'000;

// wr_id: the kind of request, and its number within the kind.
enum Kind : std::uint64_t {
  receive_kind = 0x100,
  send_kind = 0x200,
  write_kind = 0x300,
  read_kind = 0x400
};
constexpr std::uint64_t kKindMask = 0xf00;

class Session {
 public:
  Session(rdma_cm_id* id, bool first, long tell_at)
      : endpoint_(id, kMemory,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                  {.sends = 32, .receives = kReceives}),
        first_(first),
        tell_at_(tell_at) {
    for (std::uint64_t index = 0; index < kReceives; ++index) receive(receive_kind | index);
  }

  [[nodiscard]] Region shared() const { return endpoint_.shared(); }
  [[nodiscard]] int wait_descriptor() const { return endpoint_.completions->fd; }
  // A connection that was never established may leave requests without a completion.
  [[nodiscard]] bool is_over() const {
    return ended_ns_ != 0 && (posted_ == completed_ || !started_);
  }
  [[nodiscard]] bool is_stuck() const {
    return ended_ns_ != 0 && !is_over() && now_ns() - ended_ns_ > kPatience;
  }

  void start(const Region& peer) {
    peer_ = peer;
    started_ = working_ = true;
    for (std::uint64_t index = 0; index < kWrites; ++index) work(write_kind | index);
    for (std::uint64_t index = 0; index < kReads; ++index) work(read_kind | index);
    for (std::uint64_t index = 0; first_ && index < kTokens; ++index) work(send_kind | index);
    for (const std::uint64_t wr_id : early_) go_on(wr_id);
    tell();
  }

  void end(rdma_cm_event_type event) {
    if (ended_ns_ == 0) {
      ended_ns_ = now_ns();
      event_ = event;
    }
    working_ = false;
    drain();  // nothing else would poll the completions of a peer that never answered
  }

  void wake() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    must(ibv_get_cq_event(endpoint_.completions, &cq, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    must(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    drain();
  }

  // Requests may complete as fast as they are posted, so that the queue is never empty. Then the
  // rest is left, for other connections to have their turn: has_more().
  void drain() {
    ibv_wc found[16];
    more_ = true;
    for (int turn = 0; turn < kTurns && more_; ++turn) {
      const int count = ibv_poll_cq(endpoint_.cq, 16, found);
      if (count < 0) fail("ibv_poll_cq");
      for (int index = 0; index < count; ++index) complete(found[index]);
      more_ = count > 0;
    }
  }
  [[nodiscard]] bool has_more() const { return more_; }

  [[nodiscard]] bool was_established() const { return started_; }
  void destroy() { endpoint_.destroy(); }
  void say() const {
    std::printf(
        "ended event=%s at=%lld flushed_at=%lld posted=%ld completed=%ld worked=%ld flushed=%ld "
        "broken=%ld strange=%d fds=%zu threads=%zu rss_kb=%ld\n",
        rdma_event_str(event_), static_cast<long long>(ended_ns_),
        static_cast<long long>(flushed_ns_), posted_, completed_, worked_, flushed_, broken_,
        strange_, own_descriptors(), weft::test::own_threads(), weft::test::own_resident_kb());
  }

 private:
  void receive(std::uint64_t wr_id) {
    const std::size_t offset = (wr_id & 0xff) * kMessage;
    must(endpoint_.receive(wr_id, endpoint_.slice(offset, kMessage)), "ibv_post_recv");
    ++posted_;
  }

  // Posts one request. Sizes vary, so that the kill hits messages of one and of many segments.
  void work(std::uint64_t wr_id) {
    const std::uint64_t index = wr_id & 0xff;
    const std::size_t quarter = endpoint_.quarter();
    const std::size_t bytes = quarter >> (turn_++ % 12);
    const std::size_t upper = 3 * quarter;
    int result = 0;
    switch (wr_id & kKindMask) {
      case send_kind:
        result = endpoint_.send(wr_id, endpoint_.slice(upper, kMessage >> index));
        break;
      case write_kind:
        result = endpoint_.write(wr_id, endpoint_.slice(upper, bytes), peer_, index * 4096);
        break;
      default:
        result = endpoint_.read(wr_id, endpoint_.slice(upper, bytes), peer_, quarter - index);
    }
    must(result, "ibv_post_send");
    ++posted_;
  }

  void complete(const ibv_wc& completion) {
    ++completed_;
    if (completion.status == IBV_WC_SUCCESS) {
      ++worked_;
      tell();
      if (!started_) early_.push_back(completion.wr_id);
      if (working_) go_on(completion.wr_id);
      return;
    }
    flushed_ns_ = now_ns();
    working_ = false;
    if (completion.status == IBV_WC_WR_FLUSH_ERR) {
      ++flushed_;
    } else if (completion.status == IBV_WC_RETRY_EXC_ERR) {
      ++broken_;  // the request that detected the loss of the peer
    } else {
      strange_ = completion.status;
    }
  }

  void go_on(std::uint64_t wr_id) {
    const std::uint64_t kind = wr_id & kKindMask;
    if (kind == receive_kind) {
      receive(wr_id);
      work(send_kind | wr_id % kTokens);
    } else if (kind != send_kind) {
      work(wr_id);
    }
  }

  void tell() {
    if (!started_ || tell_at_ < 0 || worked_ < tell_at_) return;
    std::printf("reached\n");
    tell_at_ = -1;
  }

  Endpoint endpoint_;
  Region peer_;
  bool first_;
  bool started_ = false;  // both ends know that the connection is established
  bool working_ = false;
  bool more_ = false;
  std::vector<std::uint64_t> early_;  // completed before started_
  long tell_at_;                      // negative: done
  std::size_t turn_ = 0;
  long posted_ = 0, completed_ = 0, worked_ = 0, flushed_ = 0, broken_ = 0;
  int strange_ = 0;
  std::int64_t ended_ns_ = 0, flushed_ns_ = 0;
  rdma_cm_event_type event_ = RDMA_CM_EVENT_DISCONNECTED;
};

// Lingering sockets are closed within a second; returns the number of open descriptors.
std::size_t await_descriptors(std::size_t limit) {
  const std::int64_t deadline = now_ns() + 2'000'000'000;
  while (own_descriptors() > limit && now_ns() < deadline) ::usleep(2000);
  return own_descriptors();
}

class Program {
 public:
  Program() : channel_(must(rdma_create_event_channel(), "rdma_create_event_channel")) {
    must(::fcntl(channel_->fd, F_SETFL, O_NONBLOCK) == -1, "fcntl");
  }

  void listen(const char* host, const char* port, long tell_at) {
    tell_at_ = tell_at;
    listener_ = interop::listen(channel_, host, port);
    descriptors_ = own_descriptors();
    while (true) turn();
  }

  void connect(const char* host) {
    char port[16];
    long tell_at = 0;
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
      tell_at = -1;
      if (std::sscanf(line, "%15s %ld", port, &tell_at) < 1) continue;
      connect_to(host, port, tell_at);
    }
  }

 private:
  void connect_to(const char* host, const char* port, long tell_at) {
    must(::fcntl(channel_->fd, F_SETFL, 0) == -1, "fcntl");
    rdma_cm_id* id = interop::resolve(channel_, host, port);
    must(::fcntl(channel_->fd, F_SETFL, O_NONBLOCK) == -1, "fcntl");
    if (descriptors_ == 0) descriptors_ = own_descriptors();  // the device is open now
    auto session = std::make_unique<Session>(id, true, tell_at);
    const Region shared = session->shared();
    sessions_[id] = std::move(session);
    must(interop::connect(id, shared, 8), "rdma_connect");
    std::printf("connecting\n");
    while (!sessions_.empty()) turn();
  }

  // Waits for events and completions of all connections, and handles them.
  void turn() {
    pollfd waited[16] = {{channel_->fd, POLLIN, 0}};
    Session* of[16] = {};
    nfds_t count = 1;
    bool more = false;
    for (auto& [id, session] : sessions_) {
      if (count == 16) break;
      if (session->has_more()) session->drain();
      more |= session->has_more();
      of[count] = session.get();
      waited[count++] = {session->wait_descriptor(), POLLIN, 0};
    }
    if (::poll(waited, count, more ? 0 : 1000) < 0) fail("poll");
    for (nfds_t index = 1; index < count; ++index) {
      if ((waited[index].revents & POLLIN) != 0) of[index]->wake();
    }
    if ((waited[0].revents & POLLIN) != 0) handle_events();
    sweep();
  }

  void handle_events() {
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(channel_, &event) == 0) {
      rdma_cm_id* id = event->id;
      const rdma_cm_event_type type = event->event;
      Region peer;
      if (type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ESTABLISHED) {
        if (event->param.conn.private_data_len >= sizeof peer) {
          peer = interop::region_of(event->param.conn);
        }
      }
      rdma_ack_cm_event(event);
      handle(id, type, peer);
    }
  }

  void handle(rdma_cm_id* id, rdma_cm_event_type type, const Region& peer) {
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      auto session = std::make_unique<Session>(id, false, tell_at_);
      const Region shared = session->shared();
      sessions_[id] = std::move(session);
      announced_[id] = peer;
      if (interop::accept(id, shared, 8) != 0) sessions_.at(id)->end(RDMA_CM_EVENT_CONNECT_ERROR);
      return;
    }
    Session& session = *sessions_.at(id);
    if (type == RDMA_CM_EVENT_ESTABLISHED) {
      std::printf("established\n");
      const auto announced = announced_.find(id);
      session.start(announced == announced_.end() ? peer : announced->second);
    } else {
      session.end(type);
    }
  }

  void sweep() {
    for (auto entry = sessions_.begin(); entry != sessions_.end();) {
      Session& session = *entry->second;
      if (session.is_stuck()) {
        std::printf("failed: posted work did not come back\n");
        session.say();
        std::_Exit(3);
      }
      if (!session.is_over()) {
        ++entry;
        continue;
      }
      session.destroy();
      // Nobody but this session is served during the wait, so there must not be anybody else. A
      // peer that died while it connected is followed by the next one at once.
      if (session.was_established() && sessions_.size() == 1) {
        const std::size_t left = await_descriptors(descriptors_);
        if (!seen_one_) descriptors_ = left;  // includes what the first connection opens for all
        seen_one_ = true;
      }
      session.say();
      announced_.erase(entry->first);
      entry = sessions_.erase(entry);
    }
  }

  rdma_event_channel* channel_;
  rdma_cm_id* listener_ = nullptr;
  std::map<rdma_cm_id*, std::unique_ptr<Session>> sessions_;
  std::map<rdma_cm_id*, Region> announced_;
  long tell_at_ = -1;
  std::size_t descriptors_ = 0;
  bool seen_one_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  // line by line, for tests that read while the program runs
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc >= 4 && std::strcmp(argv[1], "listen") == 0) {
    Program().listen(argv[2], argv[3], argc > 4 ? std::atol(argv[4]) : -1);
  } else if (argc == 3 && std::strcmp(argv[1], "connect") == 0) {
    Program().connect(argv[2]);
  } else {
    std::printf("usage: survivor listen HOST PORT [COUNT] | survivor connect HOST\n");
    return 2;
  }
  return 0;
}
