// Calls of rsocket(7) that wait, and what ends them: as with TCP sockets. A program that does not
// use Weft's own interfaces. Exits at the first unexpected result and prints it.
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/select.h>

#include <chrono>
#include <string>

#include "interop/rsocket_pair.h"

namespace {

constexpr int all_events = POLLIN | POLLOUT | POLLRDHUP | POLLHUP | POLLERR;

// --- Signals -------------------------------------------------------------------------------------

// Sends signals until the call has returned: one may come before it sleeps.
int interrupted(Blocked<int>& call) {
  while (!call.is_over()) {
    syscall(SYS_tgkill, getpid(), call.thread(), SIGUSR1);
    std::this_thread::yield();
  }
  return call.result();
}

void ends_by_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  NEED(sigaction(SIGUSR1, &action, nullptr) == 0);
  Pair pair;
  Blocked<int> polling([&] {
    pollfd entry{pair.active, POLLIN, 0};
    return rpoll(&entry, 1, -1);
  });
  NEED_ERROR(interrupted(polling), EINTR);
  Blocked<int> selecting([&] {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair.active, &set);
    return rselect(pair.active + 1, &set, nullptr, nullptr, nullptr);
  });
  NEED_ERROR(interrupted(selecting), EINTR);
}

// --- Shutting down -------------------------------------------------------------------------------

void receives_end_by_shutdown() {
  for (const int how : {SHUT_RD, SHUT_RDWR}) {
    Pair pair;
    Blocked<int> receiving([&] {
      char byte = 0;
      return static_cast<int>(rrecv(pair.active, &byte, 1, 0));
    });
    NEED(rshutdown(pair.active, how) == 0);
    NEED(receiving.result() == 0);
  }
  for (const int how : {SHUT_RD, SHUT_RDWR}) {
    Pair pair;
    Blocked<int> polling([&] { return poll_one(pair.active, POLLIN, -1); });
    NEED(rshutdown(pair.active, how) == 0);
    NEED(polling.result() == POLLIN || how == SHUT_RDWR);
  }
  // What has arrived is received all the same.
  Pair pair;
  NEED(rsend(pair.passive, "ab", 2, 0) == 2);
  NEED(poll_one(pair.active, POLLIN) == POLLIN);
  NEED(rshutdown(pair.active, SHUT_RD) == 0);
  char got[4];
  NEED(rrecv(pair.active, got, sizeof got, 0) == 2 && got[0] == 'a');
  NEED(rrecv(pair.active, got, sizeof got, 0) == 0);
}

// What was sent before it arrives, and then the end.
void sends_end_by_shutdown() {
  Pair pair(4096);
  const std::string much(1 << 20, 'm');
  Blocked<ssize_t> sending([&] { return rsend(pair.active, much.data(), much.size(), 0); });
  NEED(!sending.is_over());
  NEED(rshutdown(pair.active, SHUT_WR) == 0);
  const ssize_t sent = sending.result();
  NEED(sent > 0 && sent < static_cast<ssize_t>(much.size()));
  NEED_ERROR(rsend(pair.active, "x", 1, 0), EPIPE);
  std::string got(much.size(), ' ');
  NEED(rrecv(pair.passive, got.data(), got.size(), MSG_WAITALL) == sent);
  NEED(rrecv(pair.passive, got.data(), got.size(), 0) == 0);
}

// rshutdown() ends an attempt to connect that the listener has not accepted yet. Afterwards the
// socket can connect again.
void attempts_end_by_shutdown() {
  sockaddr_in address{};
  const int listener = listening(address);
  const int active = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  NEED_ERROR(rconnect(active, raw(address), sizeof address), EINPROGRESS);
  NEED(rshutdown(active, SHUT_RDWR) == 0);
  NEED(poll_one(active, all_events) == (POLLOUT | POLLHUP));
  NEED(option(active, SOL_SOCKET, SO_ERROR) == 0);
  NEED(rfcntl(active, F_SETFL, 0) == 0);
  Blocked<int> connecting([&] { return rconnect(active, raw(address), sizeof address); });
  NEED(rshutdown(active, SHUT_WR) == 0);
  NEED_ERROR(connecting.result(), ECONNRESET);
  Blocked<int> again([&] { return rconnect(active, raw(address), sizeof address); });
  NEED(rfcntl(listener, F_SETFL, O_NONBLOCK) == 0);
  // Attempts that have ended may be accepted first.
  std::vector<int> accepted;
  while (!again.is_over()) {
    if (poll_one(listener, POLLIN, 10) == 0) continue;
    const int made = raccept(listener, nullptr, nullptr);
    NEED(made >= 0 || errno == EAGAIN);
    if (made >= 0) accepted.push_back(made);
  }
  NEED(again.result() == 0);
  for (const int each : accepted) NEED(rclose(each) == 0);
  NEED(rclose(active) == 0 && rclose(listener) == 0);
}

void reports_ends() {
  Pair pair;
  NEED(rshutdown(pair.passive, SHUT_WR) == 0);
  NEED(poll_one(pair.active, POLLRDHUP) == POLLRDHUP);
  NEED(poll_one(pair.active, all_events) == (POLLIN | POLLOUT | POLLRDHUP));
  // Both directions have ended: also a call that waits already learns of it.
  Blocked<int> polling([&] { return poll_one(pair.active, 0, -1); });
  NEED(rshutdown(pair.active, SHUT_WR) == 0);
  NEED(polling.result() == POLLHUP);
  NEED(poll_one(pair.passive, POLLRDHUP) == (POLLRDHUP | POLLHUP));
  Pair own;
  NEED(rshutdown(own.active, SHUT_RDWR) == 0);
  NEED(poll_one(own.active, POLLRDHUP) == (POLLRDHUP | POLLHUP));
}

// After the peer's rclose() there is nothing left to end, which is no error.
void shuts_down_behind_its_peer() {
  Pair pair;
  char byte = 0;
  // The passive side is connected when something has arrived.
  NEED(rsend(pair.active, &byte, 1, 0) == 1 && rrecv(pair.passive, &byte, 1, 0) == 1);
  NEED(rclose(pair.passive) == 0);
  pair.passive = -1;
  NEED(rrecv(pair.active, &byte, 1, 0) == 0);
  NEED((poll_one(pair.active, 0) & POLLHUP) != 0);  // disconnected
  NEED(rshutdown(pair.active, SHUT_WR) == 0);
  NEED(rshutdown(pair.active, SHUT_RDWR) == 0);
}

// --- Listeners -----------------------------------------------------------------------------------

void listeners_shut_down() {
  sockaddr_in address{};
  const int listener = listening(address);
  NEED(rshutdown(listener, SHUT_WR) == 0);  // has no effect
  for (int turn = 0; turn < 2; ++turn) {
    Blocked<int> accepting([&] { return raccept(listener, nullptr, nullptr); });
    Blocked<int> polling([&] { return poll_one(listener, POLLIN, -1); });
    NEED(rshutdown(listener, turn == 0 ? SHUT_RD : SHUT_RDWR) == 0);
    NEED_ERROR(accepting.result(), EINVAL);
    NEED((polling.result() & POLLHUP) != 0);
    NEED_ERROR(raccept(listener, nullptr, nullptr), EINVAL);
    NEED_ERROR(rshutdown(listener, SHUT_RD), ENOTCONN);
    // It can listen again, at the same address.
    NEED(rlisten(listener, 5) == 0);
    sockaddr_in present{};
    socklen_t bytes = sizeof present;
    NEED(rgetsockname(listener, reinterpret_cast<sockaddr*>(&present), &bytes) == 0);
    NEED(present.sin_port == address.sin_port);
  }
  Blocked<int> accepting([&] { return raccept(listener, nullptr, nullptr); });
  const int client = rsocket(AF_INET, SOCK_STREAM, 0);
  NEED(rconnect(client, raw(address), sizeof address) == 0);
  NEED(rclose(accepting.result()) == 0 && rclose(client) == 0);
  Blocked<int> last([&] { return raccept(listener, nullptr, nullptr); });
  NEED(rclose(listener) == 0);
  NEED_ERROR(last.result(), EBADF);
}

// rpoll() has reported a client that disconnects then: raccept() does not wait for another one.
void clients_disconnect() {
  sockaddr_in address{};
  const int listener = listening(address);
  for (int turn = 0; turn < 20; ++turn) {
    const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    NEED_ERROR(rconnect(client, raw(address), sizeof address), EINPROGRESS);
    NEED(poll_one(listener, POLLIN) == POLLIN);
    NEED(rclose(client) == 0);
    const int passive = raccept(listener, nullptr, nullptr);
    NEED(passive >= 0 || errno == ECONNABORTED);
    if (passive >= 0) NEED(rclose(passive) == 0);
  }
  NEED(rclose(listener) == 0);
}

// A client that the one thread sees by rpoll() wakes the other one, which waits in raccept().
void one_polls_and_one_accepts() {
  sockaddr_in address{};
  const int listener = listening(address);
  for (int turn = 0; turn < 20; ++turn) {
    Blocked<int> accepting([&] { return raccept(listener, nullptr, nullptr); });
    const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    NEED_ERROR(rconnect(client, raw(address), sizeof address), EINPROGRESS);
    while (!accepting.is_over()) poll_one(listener, POLLIN, 0);
    const int passive = accepting.result();
    NEED(passive >= 0);
    NEED(rclose(client) == 0 && rclose(passive) == 0);
  }
  NEED(rclose(listener) == 0);
}

// Connects by rdma_cm as no stream does, and returns what the listener has made of it.
int outcome_of_a_request(sockaddr_in address) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  NEED(channel && rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
  const auto await = [&] {
    rdma_cm_event* event = nullptr;
    NEED(rdma_get_cm_event(channel, &event) == 0);
    const int type = event->event;
    NEED(rdma_ack_cm_event(event) == 0);
    return type;
  };
  NEED(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 10'000) == 0);
  NEED(await() == RDMA_CM_EVENT_ADDR_RESOLVED);
  NEED(rdma_resolve_route(id, 10'000) == 0 && await() == RDMA_CM_EVENT_ROUTE_RESOLVED);
  ibv_qp_init_attr wanted{};
  wanted.cap = {1, 1, 1, 1, 0};
  wanted.qp_type = IBV_QPT_RC;
  NEED(rdma_create_qp(id, nullptr, &wanted) == 0);
  rdma_conn_param parameters{};
  NEED(rdma_connect(id, &parameters) == 0);
  const int outcome = await();
  rdma_destroy_qp(id);
  NEED(rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(channel);
  return outcome;
}

// POLLIN means that raccept() returns a client: a request that is no stream is none.
void reports_clients_only() {
  sockaddr_in address{};
  const int listener = listening(address);
  NEED(rfcntl(listener, F_SETFL, O_NONBLOCK) == 0);
  Blocked<int> polling([&] { return poll_one(listener, POLLIN, -1); });
  NEED(outcome_of_a_request(address) == RDMA_CM_EVENT_REJECTED);
  const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  NEED_ERROR(rconnect(client, raw(address), sizeof address), EINPROGRESS);
  NEED(polling.result() == POLLIN);
  const int passive = raccept(listener, nullptr, nullptr);
  NEED(passive >= 0);
  for (const int each : {client, passive, listener}) NEED(rclose(each) == 0);
}

// --- Connecting again ----------------------------------------------------------------------------

void connects_after_a_refusal() {
  sockaddr_in address{};
  NEED(rclose(listening(address)) == 0);
  const int active = rsocket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in any = loopback();
  NEED(rbind(active, raw(any), sizeof any) == 0);
  sockaddr_in before{};
  socklen_t bytes = sizeof before;
  NEED(rgetsockname(active, reinterpret_cast<sockaddr*>(&before), &bytes) == 0);
  NEED_ERROR(rconnect(active, raw(address), sizeof address), ECONNREFUSED);
  NEED(option(active, SOL_SOCKET, SO_ERROR) == 0);  // reported already
  // Without waiting: the error is returned once, by the next call.
  NEED(rfcntl(active, F_SETFL, O_NONBLOCK) == 0);
  NEED_ERROR(rconnect(active, raw(address), sizeof address), EINPROGRESS);
  NEED((poll_one(active, POLLOUT) & POLLERR) != 0);
  NEED_ERROR(rconnect(active, raw(address), sizeof address), ECONNREFUSED);
  NEED(rfcntl(active, F_SETFL, 0) == 0);

  const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
  NEED(rbind(listener, raw(address), sizeof address) == 0 && rlisten(listener, 5) == 0);
  Blocked<int> accepting([&] { return raccept(listener, nullptr, nullptr); });
  NEED(rconnect(active, raw(address), sizeof address) == 0);
  NEED_ERROR(rconnect(active, raw(address), sizeof address), EISCONN);
  sockaddr_in after{};
  NEED(rgetsockname(active, reinterpret_cast<sockaddr*>(&after), &bytes) == 0);
  NEED(after.sin_port == before.sin_port);
  for (const int each : {active, accepting.result(), listener}) NEED(rclose(each) == 0);
}

// An attempt that cannot begin leaves the socket, and its address, as they were.
void connects_after_it_had_no_descriptors() {
  sockaddr_in address{};
  const int listener = listening(address);
  for (const bool binds : {false, true}) {
    const int active = rsocket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in local = loopback();
    socklen_t bytes = sizeof local;
    if (binds) {
      NEED(rbind(active, raw(local), sizeof local) == 0);
      NEED(rgetsockname(active, reinterpret_cast<sockaddr*>(&local), &bytes) == 0);
    }
    {
      const NoDescriptors none;
      NEED_ERROR(rconnect(active, raw(address), sizeof address), EMFILE);
    }
    sockaddr_in present{};
    NEED(rgetsockname(active, reinterpret_cast<sockaddr*>(&present), &bytes) == 0);
    NEED(present.sin_port == local.sin_port);
    Blocked<int> accepting([&] { return raccept(listener, nullptr, nullptr); });
    NEED(rconnect(active, raw(address), sizeof address) == 0);
    NEED(rgetsockname(active, reinterpret_cast<sockaddr*>(&present), &bytes) == 0);
    NEED(!binds || present.sin_port == local.sin_port);
    NEED(rclose(accepting.result()) == 0 && rclose(active) == 0);
  }
  NEED(rclose(listener) == 0);
}

// --- Polling -------------------------------------------------------------------------------------

// poll(2) needs no descriptor.
void polls_without_descriptors() {
  Pair pair;
  const NoDescriptors none;
  NEED(poll_one(pair.active, POLLIN, 50) == 0);
  Blocked<int> polling([&] { return poll_one(pair.active, POLLIN, -1); });
  NEED(rsend(pair.passive, "x", 1, 0) == 1);
  NEED(polling.result() == POLLIN);
}

// As many entries as there may be descriptors, which is what poll(2) takes at most.
void polls_many_entries() {
  Pair pair;
  rlimit usual{};
  NEED(getrlimit(RLIMIT_NOFILE, &usual) == 0);
  constexpr int most = 512;
  const rlimit few{most, usual.rlim_max};
  NEED(setrlimit(RLIMIT_NOFILE, &few) == 0);
  int ends[2];
  NEED(pipe(ends) == 0);
  for (const int other : {-1, ends[0]}) {
    std::vector<pollfd> entries(most, {other, POLLIN, 0});
    entries[0].fd = pair.active;
    NEED(rpoll(entries.data(), entries.size(), 0) == 0);
    NEED(rpoll(entries.data(), entries.size(), 50) == 0);
    NEED(rsend(pair.passive, "x", 1, 0) == 1);
    NEED(rpoll(entries.data(), entries.size(), -1) == 1 && entries[0].revents == POLLIN);
    char byte = 0;
    NEED(rrecv(pair.active, &byte, 1, 0) == 1);
  }
  for (const int end : ends) close(end);
  NEED(setrlimit(RLIMIT_NOFILE, &usual) == 0);
}

}  // namespace

int main() {
  ends_by_signals();
  receives_end_by_shutdown();
  sends_end_by_shutdown();
  attempts_end_by_shutdown();
  reports_ends();
  shuts_down_behind_its_peer();
  listeners_shut_down();
  clients_disconnect();
  one_polls_and_one_accepts();
  reports_clients_only();
  connects_after_a_refusal();
  connects_after_it_had_no_descriptors();
  polls_without_descriptors();
  polls_many_entries();
  std::printf("all waits end as those of sockets\n");
}
