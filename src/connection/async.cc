#include "weft/connection/async.hpp"

#include <functional>

#include "connection/address_resolution.h"
#include "connection/core_waits.h"
#include "connection/listener_state.h"
#include "verbs/host_lookup.h"

namespace weft::connection {

using detail::check_woken;
using detail::Suspension;
using detail::until;
using detail::Woken;

// The coroutines of the member functions. They take copies of their arguments, because an Async
// may be a temporary.
struct Async::Parts {
  static Task<Prepared> prepare(Executor& executor, Address peer, Deadline deadline,
                                Options options, std::stop_token stop);
  static Task<Connection> connect(Executor& executor, Address peer, Deadline deadline,
                                  Options options, Greeting greeting, std::stop_token stop);
  static Task<Connection> finish(Executor& executor, ConnectionEnd endpoint, Greeting greeting,
                                 bool active, Deadline deadline, std::stop_token stop);
  static Task<std::optional<Request>> next(Executor& executor, Listener& listener,
                                           Deadline deadline, std::stop_token stop);
  static Task<Connection> accept(Executor& executor, Listener& listener, Deadline deadline,
                                 Greeting greeting, std::stop_token stop);
  static Task<std::vector<Outcome>> await(Executor& executor, detail::Core& core, Queue queue,
                                          std::size_t count, Deadline deadline,
                                          std::stop_token stop);
  static Task<std::optional<Advertisement>> await_advertisement(Executor& executor,
                                                                detail::Core& core,
                                                                Deadline deadline,
                                                                std::stop_token stop);
  static Task<bool> await_disconnect(Executor& executor, detail::Core& core, Deadline deadline,
                                     std::stop_token stop);

  using Post = std::function<int(detail::Core&, detail::AwaitedRequest&)>;
  static Task<std::optional<Outcome>> request(Executor& executor, detail::Core& core, Queue queue,
                                              Post post, Deadline deadline, std::stop_token stop);
};

// --- Connecting ----------------------------------------------------------------------------------

// The constructor of AddressResolution gets a numeric address, so that it need not wait.
Task<Prepared> Async::Parts::prepare(Executor& executor, Address peer, Deadline deadline,
                                     Options options, std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  const Address numeric =
      co_await verbs::detail::look_up(suspension, options.backend, std::move(peer));
  detail::AddressResolution resolution(numeric, options);
  const Woken woken = co_await until(suspension, resolution);
  check_woken(woken, resolution.what(), resolution.peer());
  co_return Prepared(resolution.make());
}

// The endpoint lives in the coroutine frame, so destroying the task rejects or abandons the
// connection.
Task<Connection> Async::Parts::finish(Executor& executor, ConnectionEnd endpoint, Greeting greeting,
                                      bool active, Deadline deadline, std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  detail::Core& core = endpoint.core();
  if (active) {
    core.begin_connecting(greeting);
  } else {
    core.begin_accepting(greeting);
  }
  detail::ConnectedCondition connected(core);
  const Woken woken = co_await until(suspension, connected);
  const std::string peer = endpoint.peer_address();
  check_woken(woken, (active ? "connect to " : "accept ") + peer, peer);
  co_return Connection(endpoint.take());
}

Task<Connection> Async::Parts::connect(Executor& executor, Address peer, Deadline deadline,
                                       Options options, Greeting greeting, std::stop_token stop) {
  Prepared prepared = co_await prepare(executor, std::move(peer), deadline, options, stop);
  co_return co_await finish(executor, std::move(prepared), greeting, true, deadline, stop);
}

Task<std::optional<Request>> Async::Parts::next(Executor& executor, Listener& listener,
                                                Deadline deadline, std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  Listener::NextCondition condition(*listener.state_);
  const Woken woken = co_await until(suspension, condition);
  if (woken != Woken::ready) co_return std::nullopt;
  co_return condition.take();
}

Task<Connection> Async::Parts::accept(Executor& executor, Listener& listener, Deadline deadline,
                                      Greeting greeting, std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  Listener::AcceptCondition connected(*listener.state_, greeting);
  const Woken woken = co_await until(suspension, connected);
  check_accepted(listener, woken);
  co_return connected.take();
}

// --- Requests ------------------------------------------------------------------------------------

// Posts the request, and waits for room while the queue is full. ENOMEM of the device itself is an
// error: it is full of requests that the user has posted directly, and this loop does not see their
// completions.
Task<std::optional<Outcome>> Async::Parts::request(Executor& executor, detail::Core& core,
                                                   Queue queue, Post post, Deadline deadline,
                                                   std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  while (true) {
    {
      detail::AwaitedRequestCondition condition(core, queue);
      const int failed = post(core, condition.awaited());
      if (failed == 0) {
        // A timeout or a stop returns no outcome. The request itself goes on: its memory stays in
        // use until the queue pair is done with it.
        static_cast<void>(co_await until(suspension, condition));
        co_return condition.take();
      }
      if (failed != ENOMEM || condition.awaited().device_queue_full)
        throw Error(failed, "cannot post a request");
    }
    detail::RoomCondition room(core);
    const Woken woken = co_await until(suspension, room);
    check_woken(woken, "post a request: the send queue is full");
  }
}

// Whatever ended the wait, the outcomes found so far are returned.
Task<std::vector<Outcome>> Async::Parts::await(Executor& executor, detail::Core& core, Queue queue,
                                               std::size_t count, Deadline deadline,
                                               std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  detail::OutcomesCondition outcomes(core, queue, count);
  static_cast<void>(co_await until(suspension, outcomes));
  co_return outcomes.take();
}

// --- Events from the peer ------------------------------------------------------------------------

Task<std::optional<Advertisement>> Async::Parts::await_advertisement(Executor& executor,
                                                                     detail::Core& core,
                                                                     Deadline deadline,
                                                                     std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  detail::AdvertisementCondition advertised(core);
  static_cast<void>(co_await until(suspension, advertised));
  co_return advertised.take();
}

Task<bool> Async::Parts::await_disconnect(Executor& executor, detail::Core& core, Deadline deadline,
                                          std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  detail::EndCondition end(core);
  const Woken woken = co_await until(suspension, end);
  co_return woken == Woken::ready;
}

// --- Public interface ----------------------------------------------------------------------------

Task<Connection> Async::connect(const Address& peer, Deadline deadline, const Options& options,
                                const Greeting& greeting, std::stop_token stop) const {
  return Parts::connect(*executor_, peer, deadline, options, greeting, std::move(stop));
}

Task<Prepared> Async::prepare(const Address& peer, Deadline deadline, const Options& options,
                              std::stop_token stop) const {
  return Parts::prepare(*executor_, peer, deadline, options, std::move(stop));
}

Task<Connection> Async::connect(Prepared prepared, const Greeting& greeting, Deadline deadline,
                                std::stop_token stop) const {
  return Parts::finish(*executor_, std::move(prepared), greeting, true, deadline, std::move(stop));
}

Task<std::optional<Request>> Async::next(Listener& listener, Deadline deadline,
                                         std::stop_token stop) const {
  return Parts::next(*executor_, listener, deadline, std::move(stop));
}

Task<Connection> Async::accept(Listener& listener, Deadline deadline, const Greeting& greeting,
                               std::stop_token stop) const {
  return Parts::accept(*executor_, listener, deadline, greeting, std::move(stop));
}

Task<Connection> Async::accept(Request request, const Greeting& greeting, Deadline deadline,
                               std::stop_token stop) const {
  return Parts::finish(*executor_, std::move(request), greeting, false, deadline, std::move(stop));
}

Task<std::optional<Outcome>> Async::send(Connection& connection, LocalSlice from, Deadline deadline,
                                         std::stop_token stop, std::uint64_t id) const {
  const auto post = [from, id](detail::Core& core, detail::AwaitedRequest& awaited) {
    return core.post_send(std::span(&from, 1), id, SendFlags::signaled, &awaited);
  };
  return Parts::request(*executor_, connection.core(), Queue::send, post, deadline,
                        std::move(stop));
}

Task<std::optional<Outcome>> Async::write(Connection& connection, LocalSlice from, RemoteBuffer to,
                                          std::uint64_t offset_bytes, Deadline deadline,
                                          std::stop_token stop, std::uint64_t id) const {
  const auto post = [from, to, offset_bytes, id](detail::Core& core,
                                                 detail::AwaitedRequest& awaited) {
    const std::span slices(&from, 1);
    const auto part = detail::part_of(to, offset_bytes, slices);
    return part ? core.post_write(slices, *part, id, SendFlags::signaled, &awaited) : EMSGSIZE;
  };
  return Parts::request(*executor_, connection.core(), Queue::send, post, deadline,
                        std::move(stop));
}

Task<std::optional<Outcome>> Async::read(Connection& connection, LocalSlice into, RemoteBuffer from,
                                         std::uint64_t offset_bytes, Deadline deadline,
                                         std::stop_token stop, std::uint64_t id) const {
  const auto post = [into, from, offset_bytes, id](detail::Core& core,
                                                   detail::AwaitedRequest& awaited) {
    const std::span slices(&into, 1);
    const auto part = detail::part_of(from, offset_bytes, slices);
    return part ? core.post_read(slices, *part, id, SendFlags::signaled, &awaited) : EMSGSIZE;
  };
  return Parts::request(*executor_, connection.core(), Queue::send, post, deadline,
                        std::move(stop));
}

Task<std::optional<Outcome>> Async::receive(Connection& connection, LocalSlice into,
                                            Deadline deadline, std::stop_token stop,
                                            std::uint64_t id) const {
  const auto post = [into, id](detail::Core& core, detail::AwaitedRequest& awaited) {
    return core.post_receive(std::span(&into, 1), id, &awaited);
  };
  return Parts::request(*executor_, connection.core(), Queue::receive, post, deadline,
                        std::move(stop));
}

// The connection holds the slice from the moment when the request is posted.
Task<std::optional<Outcome>> Async::send(Connection& connection, KeptSlice from, Deadline deadline,
                                         std::stop_token stop, std::uint64_t id) const {
  const auto post = [from, id](detail::Core& core, detail::AwaitedRequest& awaited) {
    return core.post_send(std::span(&from.slice(), 1), id, SendFlags::signaled, &awaited, &from);
  };
  return Parts::request(*executor_, connection.core(), Queue::send, post, deadline,
                        std::move(stop));
}

Task<std::optional<Outcome>> Async::write(Connection& connection, KeptSlice from, RemoteBuffer to,
                                          std::uint64_t offset_bytes, Deadline deadline,
                                          std::stop_token stop, std::uint64_t id) const {
  const auto post = [from, to, offset_bytes, id](detail::Core& core,
                                                 detail::AwaitedRequest& awaited) {
    const std::span piece(&from.slice(), 1);
    const auto part = detail::part_of(to, offset_bytes, piece);
    if (!part) return EMSGSIZE;
    return core.post_write(piece, *part, id, SendFlags::signaled, &awaited, &from);
  };
  return Parts::request(*executor_, connection.core(), Queue::send, post, deadline,
                        std::move(stop));
}

Task<std::optional<Outcome>> Async::read(Connection& connection, KeptSlice into, RemoteBuffer from,
                                         std::uint64_t offset_bytes, Deadline deadline,
                                         std::stop_token stop, std::uint64_t id) const {
  const auto post = [into, from, offset_bytes, id](detail::Core& core,
                                                   detail::AwaitedRequest& awaited) {
    const std::span piece(&into.slice(), 1);
    const auto part = detail::part_of(from, offset_bytes, piece);
    if (!part) return EMSGSIZE;
    return core.post_read(piece, *part, id, SendFlags::signaled, &awaited, &into);
  };
  return Parts::request(*executor_, connection.core(), Queue::send, post, deadline,
                        std::move(stop));
}

Task<std::optional<Outcome>> Async::receive(Connection& connection, KeptSlice into,
                                            Deadline deadline, std::stop_token stop,
                                            std::uint64_t id) const {
  const auto post = [into, id](detail::Core& core, detail::AwaitedRequest& awaited) {
    return core.post_receive(std::span(&into.slice(), 1), id, &awaited, &into);
  };
  return Parts::request(*executor_, connection.core(), Queue::receive, post, deadline,
                        std::move(stop));
}

Task<std::vector<Outcome>> Async::await(Connection& connection, Queue queue, std::size_t count,
                                        Deadline deadline, std::stop_token stop) const {
  return Parts::await(*executor_, connection.core(), queue, count, deadline, std::move(stop));
}

Task<std::optional<Advertisement>> Async::await_advertisement(Connection& connection,
                                                              Deadline deadline,
                                                              std::stop_token stop) const {
  return Parts::await_advertisement(*executor_, connection.core(), deadline, std::move(stop));
}

Task<bool> Async::await_disconnect(Connection& connection, Deadline deadline,
                                   std::stop_token stop) const {
  return Parts::await_disconnect(*executor_, connection.core(), deadline, std::move(stop));
}

}  // namespace weft::connection
