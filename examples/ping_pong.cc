// A ping-pong of sends between two coroutines on one thread: the event loop waits for both, so
// neither blocks the other. "ping_pong [ROUNDS]".
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <weft/connection.hpp>
#include <weft/message.hpp>

namespace {

using namespace std::chrono_literals;
using namespace weft::connection;  // NOLINT(google-build-using-namespace)
using weft::Task;

constexpr std::size_t ball_bytes = 64;

void check(const std::optional<Outcome>& outcome) {
  if (!outcome || !outcome->ok()) throw std::runtime_error("the ball was lost");
}

Task<> pong(Async async, Listener& listener) {
  auto request = co_await async.next(listener, 10s);
  if (!request) throw std::runtime_error("no peer has connected");
  const auto ball = request->allocate(ball_bytes);
  (void)request->post_receive(ball.slice(), 1);  // before accepting, so that the send finds it
  auto peer = co_await async.accept(std::move(*request), {}, 10s);
  while (!(co_await async.await(peer, Queue::receive, 1, 10s)).empty()) {
    if (co_await async.await_disconnect(peer, weft::Deadline::now())) co_return;
    const auto back = peer.allocate(ball_bytes);
    back[0] = ball[0];
    (void)peer.post_receive(ball.slice(), 1);
    const auto sent = co_await async.send(peer, back.slice(), 10s);
    if (!sent || !sent->ok()) co_return;  // after the last ball the peer disconnects
  }
}

Task<> ping(Async async, std::uint16_t port, int rounds, bool& done) {
  auto peer = co_await async.connect({"127.0.0.1", port}, 10s);
  const auto ball = peer.allocate(ball_bytes);
  const auto back = peer.allocate(ball_bytes);
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < rounds; ++round) {
    ball[0] = static_cast<std::byte>(round);
    (void)peer.post_receive(back.slice(), 1);
    check(co_await async.send(peer, ball.slice(), 10s));
    const auto got = co_await async.await(peer, Queue::receive, 1, 10s);
    if (got.empty() || !got[0].ok() || back[0] != ball[0]) throw std::runtime_error("not my ball");
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  std::printf("%d rounds, %.1f us each\n", rounds, took.count() / rounds);
  peer.disconnect();
  done = true;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const int rounds = count > 1 ? std::atoi(arguments[1]) : 1000;
    weft::message::EventLoop loop;
    Listener listener({"127.0.0.1", 0});
    bool done = false;
    const Async async(loop.executor());
    loop.spawn(pong(async, listener));
    loop.spawn(ping(async, listener.port(), rounds, done));
    while (!done) loop.step(10s);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ping_pong: %s\n", error.what());
    return 1;
  }
}
