// The C interface of links: weft/c/message.h.
#include "c/link.h"

#include <algorithm>
#include <cstring>

#include "c/outcome.h"

using namespace weft::c;
using weft::message::Connection;
using weft::message::Ending;
using weft::message::Handlers;
using weft::message::Received;
using weft::message::Sending;

weft_link::weft_link(const weft_link_handlers* from, void* user) : user_(user) {
  // Callbacks that the program's release does not know stay null.
  // Callbacks of a later release than this library are cut off, and never called.
  if (from == nullptr) return;
  WEFT_C_CHECK(from, weft_link_handlers, WEFT_LINK_HANDLERS);
  std::memcpy(&callbacks_, from, std::min(from->size, sizeof callbacks_));
}

void weft_link::begin(const std::function<Connection(Handlers)>& make) {
  // If `make` throws, nothing holds the link, and it is freed.
  connection = make(handlers());
  held = shared_from_this();
}

std::uint64_t weft_link::remember(Sending sending, bool confirm) {
  // The callbacks of the C++ layer get the Sending again, by which settled() finds the number.
  pending_.push_back({++last_number_, std::move(sending), confirm});
  return last_number_;
}

void weft_link::end() {
  // This comes first, because the end of the connection may call handlers. They hold the link,
  // which holds the connection: this cycle ends when they are removed.
  callbacks_ = {};
  if (connection) {
    connection.set_handlers({});
    connection.disconnect();
  }
}

// `last`: no further callback follows for the message.
void weft_link::settled(const Sending& sending, Callback callback, bool last) {
  const auto found = std::ranges::find(pending_, sending, &Pending::sending);
  if (found == pending_.end()) return;
  const weft_sent sent{found->number, sending.type(), sending.tag(), sending.size_bytes(),
                       sending.error_number()};
  // The message is forgotten before the callback, which may send another one or free the link. With
  // WEFT_CONFIRM it is kept after `sent`, since `delivered` or `failed` follows.
  if (last || !found->confirm) pending_.erase(found);
  if (callback != nullptr) callback(this, &sent, user_);
}

// Each callback holds the link while it runs, since the program may free it there.
Handlers weft_link::handlers() {
  auto self = shared_from_this();
  Handlers handlers;
  handlers.established = [self](Connection&) {
    const auto link = self;
    if (auto* call = link->callbacks_.established) call(link.get(), link->user_);
  };
  handlers.message = [self](Connection&, Received& got) {
    const auto link = self;
    // The bytes are not copied: they are valid until the callback returns.
    const ArrivedMessage message{{got.bytes().data(), got.size_bytes(), got.type(), got.tag()},
                                 &got};
    if (auto* call = link->callbacks_.message) call(link.get(), &message, link->user_);
  };
  handlers.sent = [self](Connection&, const Sending& sending) {
    const auto link = self;
    link->settled(sending, link->callbacks_.sent, false);
  };
  handlers.delivered = [self](Connection&, const Sending& sending) {
    const auto link = self;
    link->settled(sending, link->callbacks_.delivered, true);
  };
  handlers.failed = [self](Connection&, const Sending& sending) {
    const auto link = self;
    link->settled(sending, link->callbacks_.failed, true);
  };
  handlers.writable = [self](Connection&) {
    const auto link = self;
    if (auto* call = link->callbacks_.writable) call(link.get(), link->user_);
  };
  handlers.error = [self](Connection&, const weft::Error& error) {
    const auto link = self;
    auto* call = link->callbacks_.error;
    if (call != nullptr) call(link.get(), error.error_number(), error.what(), link->user_);
  };
  handlers.disconnected = [self](Connection&, const Ending& ending) {
    const auto link = self;
    const auto by = static_cast<weft_ending>(ending.by);
    if (auto* call = link->callbacks_.ended) call(link.get(), by, ending.error_number, link->user_);
  };
  return handlers;
}

// The callback `ended` gets the value by a cast.
static_assert(static_cast<int>(Ending::By::us) == WEFT_ENDED_BY_US);
static_assert(static_cast<int>(Ending::By::peer) == WEFT_ENDED_BY_PEER);
static_assert(static_cast<int>(Ending::By::cut) == WEFT_ENDED_CUT);
static_assert(static_cast<int>(Ending::By::failure) == WEFT_ENDED_BY_FAILURE);

weft::message::Options weft::c::link_options_of(const weft_link_options* from) {
  weft::message::Options options;
  if (from == nullptr) return options;
  WEFT_C_CHECK(from, weft_link_options, WEFT_LINK_OPTIONS);
  if (WEFT_C_HAS(from, private_data_bytes)) {
    options.private_data = bytes_of(from->private_data, from->private_data_bytes);
  }
  if (WEFT_C_HAS(from, connect_timeout_ms) && from->connect_timeout_ms != 0) {
    options.connect_timeout = std::chrono::milliseconds(from->connect_timeout_ms);
  }
  if (WEFT_C_HAS(from, keepalive_ms)) {
    options.keepalive = std::chrono::milliseconds(from->keepalive_ms);
  }
  if (WEFT_C_HAS(from, queue_while_connecting)) {
    options.queue_while_connecting = from->queue_while_connecting != 0;
  }
  return options;
}

int weft::c::send_message(weft_link& link, std::uint32_t type, std::uint64_t tag, int flags,
                          std::uint64_t* number,
                          const std::function<Sending(const weft::message::SendOptions&)>& send) {
  if ((flags & ~WEFT_CONFIRM) != 0) {
    return fail(EINVAL, "the flags of a message have a bit other than WEFT_CONFIRM");
  }
  const bool confirm = (flags & WEFT_CONFIRM) != 0;
  auto sending = send({.type = type, .tag = tag, .confirm = confirm});
  // A send returns its error and does not throw, since -EAGAIN is usual for a busy link.
  if (!sending) {
    return fail(sending.error_number(),
                "the link to " + link.connection.peer_address() +
                    " does not accept the message: " + std::strerror(sending.error_number()));
  }
  // Only a message that was accepted gets a number.
  const auto given = link.remember(std::move(sending), confirm);
  if (number != nullptr) *number = given;
  return 0;
}

int weft_link_send(weft_link* link, const void* bytes, size_t count, uint32_t type, uint64_t tag,
                   int flags, uint64_t* number) {
  return guarded([&] {
    return send_message(*link, type, tag, flags, number, [&](const auto& options) {
      return link->connection.send(bytes_of(bytes, count), options);
    });
  });
}

int weft_link_is_writable(weft_link* link) {
  return guarded([&] { return link->connection.writable() ? 1 : 0; });
}

uint64_t weft_link_max_message_bytes(weft_link* link) {
  return guarded_or(0, [&] { return link->connection.max_message_bytes(); });
}

// The bytes belong to the connection of the link.
const void* weft_link_peer_private_data(weft_link* link, size_t* count) {
  *count = 0;
  return guarded_or(nullptr, [&]() -> const void* {
    const auto bytes = link->connection.peer_private_data();
    *count = bytes.size();
    return bytes.data();
  });
}

int weft_link_local_address(weft_link* link, char* text, size_t room) {
  return guarded([&] { return copy_text(link->connection.local_address(), text, room); });
}

int weft_link_peer_address(weft_link* link, char* text, size_t room) {
  return guarded([&] { return copy_text(link->connection.peer_address(), text, room); });
}

int weft_link_disconnect(weft_link* link) {
  return guarded([&] {
    link->connection.disconnect();
    return 0;
  });
}

// Messages that were accepted are sent first, where weft_link_disconnect() lets them fail.
int weft_link_finish(weft_link* link) {
  return guarded([&] {
    link->connection.disconnect_after_sending();
    return 0;
  });
}

void weft_link_free(weft_link* link) {
  if (link == nullptr || link->maker.is_parent()) return;
  // There is no result by which a failure could be reported, and the link is freed in any case.
  static_cast<void>(guarded([&] {
    link->end();
    return 0;
  }));
  // If this is the last reference, the link is destroyed at the end of this function, and not while
  // its own member is assigned.
  const auto last = std::exchange(link->held, nullptr);
}
