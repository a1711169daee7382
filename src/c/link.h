// What the files of the C interface of messages share: a link and its callbacks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "c/maker.h"
#include "weft/c/message.h"
#include "weft/message.hpp"

// A link. The callbacks of its connection hold it while the connection lives, and the program's
// pointer holds it until weft_link_free().
struct weft_link : std::enable_shared_from_this<weft_link> {
  weft_link(const weft_link_handlers* from, void* user);

  // Makes the connection of this link, by `make`, which takes the C++ callbacks.
  void begin(const std::function<weft::message::Connection(weft::message::Handlers)>& make);
  // Remembers a message that was accepted for sending, and returns its number.
  std::uint64_t remember(weft::message::Sending sending, bool confirm);
  // Ends the link; no callback is called from now on.
  void end();

  weft::message::Connection connection;
  // Holds the link for the program. Empty after weft_link_free().
  std::shared_ptr<weft_link> held;
  weft::c::Maker maker;

 private:
  struct Pending {
    std::uint64_t number;
    weft::message::Sending sending;
    bool confirm;
  };
  using Callback = void (*)(weft_link*, const weft_sent*, void*);

  [[nodiscard]] weft::message::Handlers handlers();
  void settled(const weft::message::Sending& sending, Callback callback, bool last);

  weft_link_handlers callbacks_{};
  void* user_;
  std::uint64_t last_number_ = 0;
  std::deque<Pending> pending_;
};

// Memory of a loop for messages.
struct weft_message_buffer {
  weft::message::Buffer buffer;
  weft::c::Maker maker;
};

namespace weft::c {

// A message as its callback gets it, and what weft_message_keep() takes its memory from.
struct ArrivedMessage : weft_message {
  weft::message::Received* received = nullptr;
};

// Sends by `send`, which gets the options and returns a Sending, and numbers the message.
int send_message(
    weft_link& link, std::uint32_t type, std::uint64_t tag, int flags, std::uint64_t* number,
    const std::function<weft::message::Sending(const weft::message::SendOptions&)>& send);

weft::message::Options link_options_of(const weft_link_options* from);

}  // namespace weft::c
