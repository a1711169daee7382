// What two processes of one host send each other over the channel of their pair (process_pair.h).
// Both run on one machine and have agreed on the same version before, so a message is a structure
// as it lies in memory. The receiver copies it, and checks what it uses. So each member is of a
// type of which every bit pattern is a value: no bool, and enumerations with a fixed type, whose
// values may be others than those that are named.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "device/local/process_mark.h"

namespace weft::device::pair_message {

enum class Kind : std::uint32_t {
  bells,      // look at the bells
  connect,    // by the dialing side: a request for a connection, with the MPA request
  reply,      // to `connect`
  cancel,     // the dialing side does not wait for the reply any more
  drop_file,  // `number` is that of a file of inboxes that the sender has given up
  lacks,      // the dialing side could not take what an acceptance has named, and has no connection
};

enum class Answer : std::uint32_t {
  accepted,     // with an inbox and the MPA reply
  as_stream,    // with the MPA reply, and with a socket for iWARP: this side cannot share memory
  refused,      // with the MPA reply, or with none
  not_serving,  // nothing of this process listens there in this way
  busy,         // there is no room for the request, as TCP's queue may have
  lacking,      // this side could not take what the request has named
};

// Names an inbox: a file of the sender, and the place in it.
struct InboxName {
  std::uint32_t file_number = 0;
  std::uint32_t index = 0;
  std::uint32_t receives = 0;
  std::uint32_t count = 0;  // of inboxes in the file
};

// The descriptors that a message has, in this order. 0: it has none of these.
struct Files {
  std::uint8_t inboxes = 0;  // the file of the inbox, where the receiver does not have it yet
  std::uint8_t context = 0;  // grants and counts of the sender's context, the same
  std::uint8_t memory = 0;   // of the sender's program
  std::uint8_t bell = 0;     // the same
  std::uint8_t stream = 0;   // of Answer::as_stream
};

struct Header {
  Kind kind = Kind::bells;
  std::uint32_t number = 0;  // of the connection; the dialing side chooses it
  Answer answer = Answer::accepted;
  Files files{};
  InboxName inbox{};
  ProcessMark::Name mark{};   // of the sender's context
  sockaddr_storage source{};  // of `connect`: the two ends, as TCP would have them
  sockaddr_storage destination{};
  std::uint32_t frame_bytes = 0;  // of the MPA frame behind this header
};

// For a receiver that could not map what `message` has named: the sender sends it again with the
// next message that names it.
[[nodiscard]] inline Header naming_parts_of(const Header& message) {
  Header header;
  header.inbox = message.inbox;
  header.mark = message.mark;
  return header;
}

}  // namespace weft::device::pair_message
