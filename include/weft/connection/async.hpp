// Connections by coroutines, in any event loop:
//
//   Task<> serve(Executor& executor, Listener& listener) {
//     const Async async(executor);
//     Connection peer = co_await async.accept(listener, 60s);
//     const auto told = co_await async.await_advertisement(peer, 60s);
//     const auto text = peer.allocate(64);
//     const auto done = co_await async.write(peer, text.slice(), told->buffer, 0, 10s);
//   }
//
// Executor says which loops; Task how it is started. A task does nothing before it is awaited.
// What a coroutine uses (listeners, connections, buffers, private data) outlives its waiting, and
// so does the executor.
//
// Each wait has a deadline and a std::stop_token, whose stop may be requested by any thread, and
// may be destroyed where it waits. What is left then:
//
//   connect, accept a Request   the attempt is given up, the peer sees it rejected or gone
//   next, accept from Listener  the listener goes on; a request that was not taken waits in it
//   send, write, read           the request stays posted: its buffer must live on until it has
//                               completed, and its outcome comes out of await() with its id. One
//                               that found no room in the queue was not posted: ETIMEDOUT,
//                               ECANCELED
//   await                       what was found is returned, or with a destroyed task lost
//   await_advertisement, …      nothing was taken; the next wait finds it
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "weft/connection/connection.hpp"
#include "weft/connection/listener.hpp"
#include "weft/connection/options.hpp"
#include "weft/deadline.hpp"
#include "weft/executor.hpp"
#include "weft/export.hpp"
#include "weft/task.hpp"

namespace weft::connection {

// Any number of coroutines may wait for one connection, also for one queue of it. A thread that
// blocks in a call of that connection must not be the one that its coroutines run in. The calls
// throw, and answer, what the blocking ones of the same name do.
class Async {
 public:
  explicit Async(Executor& executor) : executor_(&executor) {}

  // A host's name is looked up while nothing else runs; numeric addresses take no time.
  [[nodiscard]] WEFT_API Task<Connection> connect(const Address& peer, Deadline deadline,
                                                  const Options& options = {},
                                                  const Greeting& greeting = {},
                                                  std::stop_token stop = {}) const;
  [[nodiscard]] WEFT_API Task<Prepared> prepare(const Address& peer, Deadline deadline,
                                                const Options& options = {},
                                                std::stop_token stop = {}) const;
  [[nodiscard]] WEFT_API Task<Connection> connect(Prepared prepared, const Greeting& greeting,
                                                  Deadline deadline,
                                                  std::stop_token stop = {}) const;

  [[nodiscard]] WEFT_API Task<std::optional<Request>> next(Listener& listener, Deadline deadline,
                                                           std::stop_token stop = {}) const;
  [[nodiscard]] WEFT_API Task<Connection> accept(Listener& listener, Deadline deadline,
                                                 const Greeting& greeting = {},
                                                 std::stop_token stop = {}) const;
  [[nodiscard]] WEFT_API Task<Connection> accept(Request request, const Greeting& greeting,
                                                 Deadline deadline,
                                                 std::stop_token stop = {}) const;

  // Posted when awaited; where the queue is full, as soon as there is room. The outcome of this
  // request; nothing where the deadline has passed, a stop was requested, or the connection has
  // ended without one. Throw Error where it cannot be posted: EMSGSIZE beyond the peer's buffer.
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> send(Connection& connection, LocalSlice from,
                                                           Deadline deadline,
                                                           std::stop_token stop = {},
                                                           std::uint64_t id = 0) const;
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> write(
      Connection& connection, LocalSlice from, RemoteBuffer to, std::uint64_t offset_bytes,
      Deadline deadline, std::stop_token stop = {}, std::uint64_t id = 0) const;
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> read(
      Connection& connection, LocalSlice into, RemoteBuffer from, std::uint64_t offset_bytes,
      Deadline deadline, std::stop_token stop = {}, std::uint64_t id = 0) const;

  // Outcomes of what was posted by the post_ calls.
  [[nodiscard]] WEFT_API Task<std::vector<Outcome>> await(Connection& connection, Queue queue,
                                                          std::size_t count, Deadline deadline,
                                                          std::stop_token stop = {}) const;
  [[nodiscard]] WEFT_API Task<std::optional<Advertisement>> await_advertisement(
      Connection& connection, Deadline deadline, std::stop_token stop = {}) const;
  [[nodiscard]] WEFT_API Task<bool> await_disconnect(Connection& connection, Deadline deadline,
                                                     std::stop_token stop = {}) const;

 private:
  struct Parts;
  Executor* executor_;
};

}  // namespace weft::connection
