// Coroutines for connections, in any event loop:
//
//   Task<> serve(Executor& executor, Listener& listener) {
//     const Async async(executor);
//     Connection peer = co_await async.accept(listener, 60s);
//     const auto remote = co_await async.await_advertisement(peer, 60s);
//     const auto text = peer.allocate(64);
//     const auto done = co_await async.write(peer, text.slice(), remote->buffer, 0, 10s);
//   }
//
// An Executor adapts the event loop; task.hpp describes how a task is started. A task does nothing
// before it is awaited. The objects that a coroutine uses (executor, listeners, connections,
// buffers, private data) must live until its wait has ended.
//
// Each wait has a deadline and a std::stop_token. Any thread may request the stop, and a task may
// be destroyed while it waits. After a timeout, a stop or the destruction:
//
// connect, accept a Request   the attempt is abandoned; the peer sees a rejection or a disconnect
// next, accept from Listener  the listener keeps listening and keeps the requests that were not
// taken
// send, write, read, receive  the request stays posted, and await() returns its outcome with its
//                               id. Its buffer must live until it has completed; with a KeptSlice
//                               (MemoryRegion::keep()) the connection takes care of that. A request
//                               that found no room in the queue was not posted: ETIMEDOUT or
//                               ECANCELED
// await                       the outcomes found so far are returned; a destroyed task loses them
// await_advertisement, …      nothing was taken; the next wait finds it
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

// Makes coroutines of the blocking calls of the same name; they return and throw the same. Any
// number of coroutines may wait for one connection, also for the same queue. A thread that blocks
// in a call of a connection must not be the one that runs its coroutines: it would keep them from
// resuming.
class Async {
 public:
  // The executor must outlive this object and its tasks.
  explicit Async(Executor& executor) : executor_(&executor) {}

  // Connects. The name of a host is looked up in a thread of its own, which goes on for itself
  // where the wait ends early.
  [[nodiscard]] WEFT_API Task<Connection> connect(const Address& peer, Deadline deadline,
                                                  const Options& options = {},
                                                  const Greeting& greeting = {},
                                                  std::stop_token stop = {}) const;
  // Resolves the address and the route, as the constructor of Prepared does.
  [[nodiscard]] WEFT_API Task<Prepared> prepare(const Address& peer, Deadline deadline,
                                                const Options& options = {},
                                                std::stop_token stop = {}) const;
  // Connects what prepare() has made.
  [[nodiscard]] WEFT_API Task<Connection> connect(Prepared prepared, const Greeting& greeting,
                                                  Deadline deadline,
                                                  std::stop_token stop = {}) const;

  // Waits for the next request of a listener; an empty result after a timeout or a stop.
  [[nodiscard]] WEFT_API Task<std::optional<Request>> next(Listener& listener, Deadline deadline,
                                                           std::stop_token stop = {}) const;
  // Accepts the next request, from any peer. Throws Error(ETIMEDOUT) or Error(ECANCELED).
  [[nodiscard]] WEFT_API Task<Connection> accept(Listener& listener, Deadline deadline,
                                                 const Greeting& greeting = {},
                                                 std::stop_token stop = {}) const;
  // Accepts this request, as Request::accept() does.
  [[nodiscard]] WEFT_API Task<Connection> accept(Request request, const Greeting& greeting,
                                                 Deadline deadline,
                                                 std::stop_token stop = {}) const;

  // Posts the request when the task is awaited; if the queue is full, as soon as there is room.
  // Returns the outcome of this request; nothing if the deadline has passed, a stop was requested,
  // or the connection has ended without an outcome. Throws Error if the request cannot be posted:
  // EMSGSIZE if it exceeds the peer's buffer.
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> send(Connection& connection, LocalSlice from,
                                                           Deadline deadline,
                                                           std::stop_token stop = {},
                                                           std::uint64_t id = 0) const;
  // The same for an RDMA Write to an offset in the peer's buffer.
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> write(
      Connection& connection, LocalSlice from, RemoteBuffer to, std::uint64_t offset_bytes,
      Deadline deadline, std::stop_token stop = {}, std::uint64_t id = 0) const;
  // The same for an RDMA Read from an offset in the peer's buffer.
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> read(
      Connection& connection, LocalSlice into, RemoteBuffer from, std::uint64_t offset_bytes,
      Deadline deadline, std::stop_token stop = {}, std::uint64_t id = 0) const;

  // The same with a slice that keeps its region until the request has completed.
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> send(Connection& connection, KeptSlice from,
                                                           Deadline deadline,
                                                           std::stop_token stop = {},
                                                           std::uint64_t id = 0) const;
  // A write from a slice that keeps its region.
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> write(
      Connection& connection, KeptSlice from, RemoteBuffer to, std::uint64_t offset_bytes,
      Deadline deadline, std::stop_token stop = {}, std::uint64_t id = 0) const;
  // A read into a slice that keeps its region.
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> read(
      Connection& connection, KeptSlice into, RemoteBuffer from, std::uint64_t offset_bytes,
      Deadline deadline, std::stop_token stop = {}, std::uint64_t id = 0) const;

  // Posts a receive and waits for its outcome, which no other wait returns. Receives complete in
  // the order in which they were posted. After the deadline or a stop the receive stays posted, and
  // await() returns its outcome. Throws Error: ENOMEM if the receive queue is full.
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> receive(Connection& connection,
                                                              LocalSlice into, Deadline deadline,
                                                              std::stop_token stop = {},
                                                              std::uint64_t id = 0) const;
  [[nodiscard]] WEFT_API Task<std::optional<Outcome>> receive(Connection& connection,
                                                              KeptSlice into, Deadline deadline,
                                                              std::stop_token stop = {},
                                                              std::uint64_t id = 0) const;

  // Waits for outcomes of requests that the post_ calls of the connection have posted.
  [[nodiscard]] WEFT_API Task<std::vector<Outcome>> await(Connection& connection, Queue queue,
                                                          std::size_t count, Deadline deadline,
                                                          std::stop_token stop = {}) const;
  // Waits for the next buffer that the peer has advertised; an empty result after a timeout, a
  // stop, or the end of the connection.
  [[nodiscard]] WEFT_API Task<std::optional<Advertisement>> await_advertisement(
      Connection& connection, Deadline deadline, std::stop_token stop = {}) const;
  // Waits for the end of the connection, by either side; false after a timeout or a stop.
  [[nodiscard]] WEFT_API Task<bool> await_disconnect(Connection& connection, Deadline deadline,
                                                     std::stop_token stop = {}) const;

 private:
  struct Parts;
  Executor* executor_;
};

}  // namespace weft::connection
