// The C interface of connections: weft/c/connection.h.
#include "weft/c/connection.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "c/connection_handle.h"
#include "c/outcome.h"
#include "verbs/waiter.h"
#include "weft/connection.hpp"

namespace {

using namespace weft::c;
using weft::Deadline;
using weft::Error;
using weft::connection::Access;
using weft::connection::Attempt;
using weft::connection::Connection;
using weft::connection::Greeting;
using weft::connection::Listener;
using weft::connection::Prepared;
using weft::connection::Request;

// A member is read only if the structure of the program's release has it.
weft::connection::Options options_of(const weft_connection_options* from) {
  weft::connection::Options options;
  if (from == nullptr) return options;
  WEFT_C_CHECK(from, weft_connection_options, WEFT_CONNECTION_OPTIONS);
  WEFT_C_TAKE(options.queue_depth, from, queue_depth);
  WEFT_C_TAKE(options.inline_bytes, from, inline_bytes);
  WEFT_C_TAKE(options.read_depth, from, read_depth);
  if (WEFT_C_HAS(from, advertisements)) options.advertisements = from->advertisements != 0;
  if (WEFT_C_HAS(from, domain_of) && from->domain_of != nullptr) {
    options.domain = &from->domain_of->endpoint().domain();
  }
  return options;
}

Access access_of(int access) {
  // A bit of a later release would be a right that the program believes to have granted.
  if ((access & ~(WEFT_REMOTE_READ | WEFT_REMOTE_WRITE | WEFT_REMOTE_ATOMIC)) != 0) {
    throw Error(EINVAL, "a buffer's access has bits other than the WEFT_REMOTE_ ones");
  }
  Access result = Access::local;
  if ((access & WEFT_REMOTE_READ) != 0) result = result | Access::remote_read;
  if ((access & WEFT_REMOTE_WRITE) != 0) result = result | Access::remote_write;
  if ((access & WEFT_REMOTE_ATOMIC) != 0) {
    result = result | static_cast<Access>(IBV_ACCESS_REMOTE_ATOMIC);
  }
  return result;
}

// An attempt that a call waits for.
class AttemptCondition : public weft::verbs::detail::Condition {
 public:
  explicit AttemptCondition(Attempt& attempt) : attempt_(attempt) {}

  [[nodiscard]] bool holds() override {
    made_ = attempt_.take();
    return made_.has_value();
  }
  [[nodiscard]] weft::verbs::detail::Descriptors descriptors() const override {
    return {attempt_.fd()};
  }
  // The connection, once the condition holds.
  [[nodiscard]] Connection take() { return std::move(*made_); }

 private:
  Attempt& attempt_;
  std::optional<Connection> made_;
};

}  // namespace

// The objects of C are structures around those of C++, whose layout no program sees.
struct weft_connection_listener {
  Listener listener;
};

namespace {

// For a connection that cannot be established: fails without an effect on what it has. A second
// call must end neither an attempt that is under way nor a connection.
int put_back(weft_connection& connection, decltype(weft_connection::state) before) {
  connection.state = std::move(before);
  if (std::holds_alternative<std::monostate>(connection.state)) {
    return fail(ENOTCONN, "the connection has failed or was rejected: it can only be freed");
  }
  return fail(EISCONN, "the connection is being established, or is established, already");
}

}  // namespace

// The names are literals, which end with a zero.
const char* weft_status_text(int32_t status) {
  return weft::verbs::status_name(static_cast<ibv_wc_status>(status)).data();
}

// --- Establishing

int weft_connection_prepare(weft_connection** connection, const char* host, uint16_t port,
                            const weft_connection_options* options, int timeout_ms) {
  return guarded([&] {
    // The program's pointer is set on success only: an exception comes before the assignment. The
    // same is true of all functions that make an object.
    *connection = new weft_connection{
        Prepared(address_of(host, port), options_of(options), deadline_of(timeout_ms))};
    return 0;
  });
}

int weft_connection_listen(weft_connection_listener** listener, const char* host, uint16_t port,
                           const weft_connection_options* options, int backlog) {
  return guarded([&] {
    *listener = new weft_connection_listener{
        Listener(address_of(host, port), options_of(options), backlog)};
    return 0;
  });
}

int weft_connection_next(weft_connection_listener* listener, weft_connection** connection,
                         int timeout_ms) {
  return guarded([&] {
    auto request = listener->listener.next(deadline_of(timeout_ms));
    if (!request) return fail(EAGAIN, "no peer has asked to connect until the timeout");
    *connection = new weft_connection{std::move(*request)};
    return 0;
  });
}

int weft_connection_accept(weft_connection_listener* listener, weft_connection** connection,
                           const void* private_data, size_t private_data_bytes, int timeout_ms) {
  return guarded([&] {
    const Greeting greeting{.private_data = bytes_of(private_data, private_data_bytes)};
    try {
      *connection =
          new weft_connection{listener->listener.accept(deadline_of(timeout_ms), greeting)};
    } catch (const Error& error) {
      if (error.error_number() != ETIMEDOUT) throw;
      return fail(EAGAIN, "no peer has connected until the timeout");
    }
    return 0;
  });
}

int weft_connection_establish(weft_connection* connection, const void* private_data,
                              size_t private_data_bytes, int timeout_ms) {
  return guarded([&] {
    const Greeting greeting{.private_data = bytes_of(private_data, private_data_bytes)};
    const auto deadline = deadline_of(timeout_ms);
    // Both steps use up their object, also where they throw. The state is then empty already, and
    // the connection can only be freed.
    auto before = std::exchange(connection->state, std::monostate());
    if (auto* prepared = std::get_if<Prepared>(&before)) {
      connection->state = std::move(*prepared).connect(greeting, deadline);
    } else if (auto* request = std::get_if<Request>(&before)) {
      connection->state = std::move(*request).accept(greeting, deadline);
    } else {
      return put_back(*connection, std::move(before));
    }
    return 0;
  });
}

int weft_connection_start_establishing(weft_connection* connection, const void* private_data,
                                       size_t private_data_bytes) {
  return guarded([&] {
    const Greeting greeting{.private_data = bytes_of(private_data, private_data_bytes)};
    auto before = std::exchange(connection->state, std::monostate());
    if (auto* prepared = std::get_if<Prepared>(&before)) {
      connection->state = Attempt(std::move(*prepared), greeting);
    } else if (auto* request = std::get_if<Request>(&before)) {
      connection->state = Attempt(std::move(*request), greeting);
    } else {
      return put_back(*connection, std::move(before));
    }
    return 0;
  });
}

int weft_connection_start_connecting(weft_connection** connection, const char* host, uint16_t port,
                                     const weft_connection_options* options,
                                     const void* private_data, size_t private_data_bytes) {
  return guarded([&] {
    const Greeting greeting{.private_data = bytes_of(private_data, private_data_bytes)};
    *connection =
        new weft_connection{Attempt(address_of(host, port), options_of(options), greeting)};
    return 0;
  });
}

int weft_connection_await_established(weft_connection* connection, int timeout_ms) {
  return guarded_await([&] {
    if (std::holds_alternative<Connection>(connection->state)) return 0;
    AttemptCondition condition(connection->attempt());
    weft::verbs::detail::Waiter waiter(deadline_of(timeout_ms), {});
    try {
      if (waiter.until(condition) != weft::verbs::detail::Woken::ready) {
        return fail(EAGAIN, "the connection was not established until the timeout");
      }
    } catch (...) {
      connection->state = std::monostate();
      throw;
    }
    connection->state = condition.take();
    return 0;
  });
}

int weft_connection_establishing_fd(weft_connection* connection) {
  return guarded([&] { return connection->attempt().fd(); });
}

int weft_connection_reject(weft_connection* connection, const void* private_data,
                           size_t private_data_bytes) {
  return guarded([&] {
    if (!std::holds_alternative<Request>(connection->state)) {
      return fail(EINVAL,
                  "only a connection from weft_connection_next() that was not established "
                  "can be rejected");
    }
    auto before = std::exchange(connection->state, std::monostate());
    std::move(std::get<Request>(before)).reject(bytes_of(private_data, private_data_bytes));
    return 0;
  });
}

const void* weft_connection_peer_private_data(weft_connection* connection, size_t* count) {
  // The bytes belong to the object in the state, which weft_connection_establish() replaces.
  *count = 0;
  return guarded_or(nullptr, [&]() -> const void* {
    std::span<const std::byte> bytes;
    if (auto* request = std::get_if<Request>(&connection->state)) bytes = request->private_data();
    if (auto* established = std::get_if<Connection>(&connection->state)) {
      bytes = established->peer_private_data();
    }
    *count = bytes.size();
    return bytes.data();
  });
}

// A failed or rejected connection has no addresses: -ENOTCONN.
int weft_connection_local_address(weft_connection* connection, char* text, size_t room) {
  return guarded([&] { return copy_text(connection->endpoint().local_address(), text, room); });
}

int weft_connection_peer_address(weft_connection* connection, char* text, size_t room) {
  return guarded([&] { return copy_text(connection->endpoint().peer_address(), text, room); });
}

uint16_t weft_connection_listener_port(weft_connection_listener* listener) {
  return guarded_or(0, [&] { return listener->listener.port(); });
}

int weft_connection_listener_fd(weft_connection_listener* listener) {
  return guarded([&] { return listener->listener.fd(); });
}

void weft_connection_listener_free(weft_connection_listener* listener) {
  delete listener;
}

// --- Buffers

int weft_buffer_allocate(weft_connection* connection, size_t bytes, int access,
                         weft_buffer** buffer) {
  return guarded([&] {
    // The buffer holds what it needs of the connection, and may outlive it.
    *buffer = new weft_buffer{connection->endpoint().allocate(bytes, access_of(access))};
    return 0;
  });
}

int weft_buffer_register(weft_connection* connection, void* memory, size_t bytes, int access,
                         weft_buffer** buffer) {
  return guarded([&] {
    // The memory stays the program's, which frees it after the buffer.
    const std::span<std::byte> span(static_cast<std::byte*>(memory), bytes);
    *buffer = new weft_buffer{connection->endpoint().register_buffer(span, access_of(access))};
    return 0;
  });
}

int weft_buffer_register_owned(weft_connection* connection, void* memory, size_t bytes, int access,
                               void (*release)(void* user), void* user, weft_buffer** buffer) {
  return guarded([&] {
    const std::span<std::byte> span(static_cast<std::byte*>(memory), bytes);
    auto made = std::make_unique<weft_buffer>(
        connection->endpoint().register_buffer(span, access_of(access)));
    if (release != nullptr) {
      // It has the function from where nothing can fail any more.
      struct Owner {
        void (*release)(void*) = nullptr;
        void* user = nullptr;
        Owner() = default;
        Owner(const Owner&) = delete;
        Owner& operator=(const Owner&) = delete;
        ~Owner() {
          if (release != nullptr) release(user);
        }
      };
      const auto owner = std::make_shared<Owner>();
      owner->release = release;
      owner->user = user;
      made->memory = owner;
    }
    *buffer = made.release();
    return 0;
  });
}

void* weft_buffer_data(weft_buffer* buffer) {
  return buffer->buffer.bytes().data();
}

size_t weft_buffer_size(weft_buffer* buffer) {
  return buffer->buffer.size_bytes();
}

weft_remote_buffer weft_buffer_remote(weft_buffer* buffer) {
  const auto remote = buffer->buffer.remote();
  // The tag is 0: only an advertisement has one.
  return {remote.address(), remote.size_bytes(), remote.rkey(), 0};
}

// The destructor waits for accesses by the peer that are in progress, so that the program may free
// registered memory after this call.
void weft_buffer_free(weft_buffer* buffer) {
  delete buffer;
}

// --- Advertising

int weft_connection_advertise(weft_connection* connection, weft_buffer* buffer, uint32_t tag) {
  return guarded([&] {
    connection->established().advertise(buffer->buffer.remote(), tag);
    return 0;
  });
}

int weft_connection_await_advertisement(weft_connection* connection, weft_remote_buffer* remote,
                                        int timeout_ms) {
  return guarded([&] {
    auto& established = connection->established();
    if (!established.can_advertise()) {
      return fail(EOPNOTSUPP, "advertisements are not enabled on both sides of the connection");
    }
    if (const auto got = established.await_advertisement(deadline_of(timeout_ms))) {
      *remote = {got->buffer.address(), got->buffer.size_bytes(), got->buffer.rkey(), got->tag};
      return 0;
    }
    // The end is checked after the wait, so that what the peer advertised before it is returned
    // first.
    if (established.await_disconnect(Deadline::now())) {
      return fail(ENOTCONN, "the connection has ended");
    }
    return fail(EAGAIN, "the peer has advertised no buffer until the timeout");
  });
}

int weft_connection_advertisement_fd(weft_connection* connection) {
  return guarded([&] { return connection->established().advertisement_fd(); });
}

// --- The end

int weft_connection_disconnect_fd(weft_connection* connection) {
  return guarded([&] { return connection->established().disconnect_fd(); });
}

int weft_connection_disconnect(weft_connection* connection) {
  return guarded([&] {
    connection->established().disconnect();
    return 0;
  });
}

int weft_connection_await_disconnect(weft_connection* connection, int timeout_ms) {
  return guarded([&] {
    if (connection->established().await_disconnect(deadline_of(timeout_ms))) return 0;
    return fail(EAGAIN, "the connection has not ended until the timeout");
  });
}

// The destructor disconnects. Null is allowed, as in all functions that free.
void weft_connection_free(weft_connection* connection) {
  delete connection;
}
