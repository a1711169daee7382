// Coroutines for streams, in any event loop:
//
//   Task<> serve(Executor& executor, Listener& listener) {
//     const Async async(executor);
//     Stream peer = co_await async.accept(listener, 60s);
//     std::array<std::byte, 512> buffer;
//     while (true) {
//       const Transfer got = co_await async.receive(peer, buffer, 60s);
//       if (!got.ok()) co_return;
//       co_await async.send(peer, std::span(buffer).first(got.bytes), 60s);
//     }
//   }
//
// The words are those of weft::connection::Async and weft::verbs::AsyncOperations. An Executor
// adapts the event loop: weft::message::EventLoop is one, <weft/asio.hpp> makes one from Asio's
// loop; task.hpp describes how a task is started. A task does nothing before it is awaited. The
// objects that a coroutine uses (executor, listeners, streams, buffers, private data) must live
// until its wait has ended.
//
// Each wait has a deadline and a std::stop_token. Any thread may request the stop, and a task may
// be destroyed while it waits. After a timeout, a stop or the destruction:
//
// connect, accept a Request   the attempt is abandoned; the peer sees a reset
// next, accept from Listener  the listener keeps listening and keeps the requests that were not
//                             taken
// send, receive               the bytes that were moved are counted in the Transfer; a task that is
//                             destroyed does not report them
// view                        nothing was taken; the next call finds it
// close                       the stream is closed, as by Stream::close() at its deadline; after a
//                             stop it is still open
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stop_token>

#include "weft/deadline.hpp"
#include "weft/executor.hpp"
#include "weft/export.hpp"
#include "weft/stream/listener.hpp"
#include "weft/stream/options.hpp"
#include "weft/stream/stream.hpp"
#include "weft/task.hpp"

namespace weft::stream {

// Makes coroutines of the blocking calls of the same name; they return and throw the same. Any
// number of coroutines may send or receive on one stream: they take turns in the order in which
// they came, and the bytes of one are not mixed with those of another. Blocking calls and
// coroutines must not send, or receive, on the same stream at the same time.
class Async {
 public:
  // The executor must outlive this object and its tasks.
  explicit Async(Executor& executor) : executor_(&executor) {}

  // Throws Rejected, or Error: ETIMEDOUT, ECANCELED.
  [[nodiscard]] WEFT_API Task<Stream> connect(const Address& peer, Deadline deadline,
                                              const Options& options = {},
                                              std::span<const std::byte> private_data = {},
                                              std::stop_token stop = {}) const;
  // Waits for the next request of a listener; an empty result after a timeout or a stop.
  [[nodiscard]] WEFT_API Task<std::optional<Request>> next(Listener& listener, Deadline deadline,
                                                           std::stop_token stop = {}) const;
  // Throw Error: ETIMEDOUT, ECANCELED. From a listener, peers that disconnect before their stream
  // is connected are skipped.
  [[nodiscard]] WEFT_API Task<Stream> accept(Listener& listener, Deadline deadline,
                                             std::span<const std::byte> private_data = {},
                                             std::stop_token stop = {}) const;
  [[nodiscard]] WEFT_API Task<Stream> accept(Request request,
                                             std::span<const std::byte> private_data,
                                             Deadline deadline, std::stop_token stop = {}) const;

  // At the deadline or after a stop: the bytes that were moved so far, or would_block if there are
  // none.
  [[nodiscard]] WEFT_API Task<Transfer> send(Stream& stream, std::span<const std::byte> bytes,
                                             Deadline deadline, std::stop_token stop = {}) const;
  // Returns what there is as soon as there is a byte, the end or a failure; with `wait_all` only
  // when `into` is full, or at the end. Throws Error(EINVAL) for ReceiveFlags::peek.
  [[nodiscard]] WEFT_API Task<Transfer> receive(Stream& stream, std::span<std::byte> into,
                                                Deadline deadline, ReceiveFlags flags = {},
                                                std::stop_token stop = {}) const;
  // Waits for bytes and returns where they are, as Stream::view().
  [[nodiscard]] WEFT_API Task<View> view(Stream& stream, Deadline deadline,
                                         std::stop_token stop = {}) const;
  // Waits until the peer's device has everything that was sent, and closes the stream; see
  // Stream::close().
  [[nodiscard]] WEFT_API Task<bool> close(Stream& stream, Deadline linger,
                                          std::stop_token stop = {}) const;

 private:
  struct Parts;
  Executor* executor_;
};

}  // namespace weft::stream
