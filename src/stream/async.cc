#include "weft/stream/async.hpp"

#include <fmt/format.h>

#include <cerrno>

#include "stream/async_waits.h"
#include "verbs/suspension.h"

namespace weft::stream {

using verbs::detail::check_woken;
using verbs::detail::Suspension;
using verbs::detail::until;
using verbs::detail::Woken;

// The coroutines of the member functions. They take copies of their arguments, because an Async
// may be a temporary.
struct Async::Parts {
  using Data = std::span<const std::byte>;
  using Held = std::shared_ptr<detail::Endpoint>;
  static Task<Stream> connect(Executor& executor, Address peer, Deadline deadline, Options options,
                              Data private_data, std::stop_token stop);
  static Task<std::optional<Request>> next(Executor& executor,
                                           std::shared_ptr<detail::ListenerCore> core,
                                           Deadline deadline, std::stop_token stop);
  static Task<Stream> accept(Executor& executor, std::shared_ptr<detail::ListenerCore> core,
                             Deadline deadline, Data private_data, std::stop_token stop);
  static Task<Stream> accept(Executor& executor, Request request, Data private_data,
                             Deadline deadline, std::stop_token stop);
  static Task<Transfer> send(Executor& executor, Held endpoint, Data bytes, Deadline deadline,
                             std::stop_token stop);
  static Task<Transfer> receive(Executor& executor, Held endpoint, std::span<std::byte> into,
                                Deadline deadline, ReceiveFlags flags, std::stop_token stop);
  static Task<View> view(Executor& executor, Held endpoint, Deadline deadline,
                         std::stop_token stop);
  static Task<bool> close(Executor& executor, Held endpoint, Deadline linger, std::stop_token stop);
};

// --- Connecting ----------------------------------------------------------------------------------

// The stream lives in the coroutine frame, so whatever ends the wait abandons the attempt: an
// aborted stream does not linger in its destructor.
Task<Stream> Async::Parts::connect(Executor& executor, Address peer, Deadline deadline,
                                   Options options, Data private_data, std::stop_token stop) {
  Stream stream(options);
  Suspension suspension(executor, deadline, std::move(stop));
  stream.start_connecting(peer, private_data);
  detail::SettledCondition settled(stream.endpoint_);
  const Woken woken = co_await until(suspension, settled);
  if (woken != Woken::ready) stream.abort();
  const std::string name = fmt::format("{} port {}", peer.host, peer.port);
  check_woken(woken, "connect to " + name, name);
  // Throws the Error of a connection that has failed; does not wait otherwise.
  static_cast<void>(stream.await_connected(Deadline::now()));
  co_return std::move(stream);
}

Task<std::optional<Request>> Async::Parts::next(Executor& executor,
                                                std::shared_ptr<detail::ListenerCore> core,
                                                Deadline deadline, std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  detail::RequestCondition requested(core);
  const Woken woken = co_await until(suspension, requested);
  if (woken != Woken::ready) co_return std::nullopt;
  co_return requested.take();
}

Task<Stream> Async::Parts::accept(Executor& executor, std::shared_ptr<detail::ListenerCore> core,
                                  Deadline deadline, Data private_data, std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  detail::AcceptedCondition accepted(core, private_data);
  const Woken woken = co_await until(suspension, accepted);
  if (woken != Woken::ready) {
    throw Error(woken == Woken::stopped ? ECANCELED : ETIMEDOUT,
                fmt::format("no peer has connected to {}", core->id().local_address()));
  }
  co_return accepted.take();
}

Task<Stream> Async::Parts::accept(Executor& executor, Request request, Data private_data,
                                  Deadline deadline, std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  const std::string peer = request.peer_address();
  Stream stream = std::move(request).accept(private_data);
  detail::SettledCondition settled(stream.endpoint_);
  const Woken woken = co_await until(suspension, settled);
  if (woken != Woken::ready) stream.abort();
  check_woken(woken, "accept " + peer, peer);
  static_cast<void>(stream.await_connected(Deadline::now()));
  co_return std::move(stream);
}

// --- Bytes ---------------------------------------------------------------------------------------

// Whatever ended the wait, the bytes that were moved are counted.
Task<Transfer> Async::Parts::send(Executor& executor, Held endpoint, Data bytes, Deadline deadline,
                                  std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  detail::SendCondition sent(endpoint, bytes);
  static_cast<void>(co_await until(suspension, sent));
  co_return sent.take();
}

Task<Transfer> Async::Parts::receive(Executor& executor, Held endpoint, std::span<std::byte> into,
                                     Deadline deadline, ReceiveFlags flags, std::stop_token stop) {
  if (flags.peek)
    throw Error(EINVAL, "a coroutine cannot peek: use view(), which leaves the bytes");
  Suspension suspension(executor, deadline, std::move(stop));
  detail::ReceiveCondition received(endpoint, into, flags.wait_all);
  static_cast<void>(co_await until(suspension, received));
  co_return received.take();
}

Task<View> Async::Parts::view(Executor& executor, Held endpoint, Deadline deadline,
                              std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  detail::ViewCondition viewed(endpoint);
  static_cast<void>(co_await until(suspension, viewed));
  co_return viewed.take();
}

// close() does not wait any more once close_if_sent() has closed the stream, or at the deadline.
Task<bool> Async::Parts::close(Executor& executor, Held endpoint, Deadline linger,
                               std::stop_token stop) {
  Suspension suspension(executor, linger, std::move(stop));
  detail::ClosedCondition closed(endpoint);
  const Woken woken = co_await until(suspension, closed);
  if (woken == Woken::stopped) co_return false;
  co_return endpoint->close(Deadline::now());
}

// --- Public interface ----------------------------------------------------------------------------

Task<Stream> Async::connect(const Address& peer, Deadline deadline, const Options& options,
                            std::span<const std::byte> private_data, std::stop_token stop) const {
  return Parts::connect(*executor_, peer, deadline, options, private_data, std::move(stop));
}

Task<std::optional<Request>> Async::next(Listener& listener, Deadline deadline,
                                         std::stop_token stop) const {
  return Parts::next(*executor_, listener.core_.get(), deadline, std::move(stop));
}

Task<Stream> Async::accept(Listener& listener, Deadline deadline,
                           std::span<const std::byte> private_data, std::stop_token stop) const {
  return Parts::accept(*executor_, listener.core_.get(), deadline, private_data, std::move(stop));
}

Task<Stream> Async::accept(Request request, std::span<const std::byte> private_data,
                           Deadline deadline, std::stop_token stop) const {
  return Parts::accept(*executor_, std::move(request), private_data, deadline, std::move(stop));
}

Task<Transfer> Async::send(Stream& stream, std::span<const std::byte> bytes, Deadline deadline,
                           std::stop_token stop) const {
  return Parts::send(*executor_, stream.endpoint_.get(), bytes, deadline, std::move(stop));
}

Task<Transfer> Async::receive(Stream& stream, std::span<std::byte> into, Deadline deadline,
                              ReceiveFlags flags, std::stop_token stop) const {
  return Parts::receive(*executor_, stream.endpoint_.get(), into, deadline, flags, std::move(stop));
}

Task<View> Async::view(Stream& stream, Deadline deadline, std::stop_token stop) const {
  return Parts::view(*executor_, stream.endpoint_.get(), deadline, std::move(stop));
}

Task<bool> Async::close(Stream& stream, Deadline linger, std::stop_token stop) const {
  return Parts::close(*executor_, stream.endpoint_.get(), linger, std::move(stop));
}

}  // namespace weft::stream
