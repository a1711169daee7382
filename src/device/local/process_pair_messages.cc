// What a process does with the messages of its peer: requests, answers, and what becomes of them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "device/context.h"
#include "device/device.h"
#include "device/local/pair_end.h"
#include "device/local/process_pair.h"
#include "device/local/process_pairs.h"

namespace weft::device {
namespace {

using pair_message::Answer;
using pair_message::Header;
using pair_message::Kind;

constexpr std::uint32_t most_receives = 1U << 14;
constexpr std::uint32_t most_in_a_file = 64;
// Files of inboxes that the peer may have sent and not given up. One that has as many connections
// as there are numbers, with 16 in a file, needs half of them.
constexpr std::size_t most_peer_files = 2048;

// Takes the descriptors of a message one after the other.
class Taking {
 public:
  explicit Taking(std::vector<sys::Descriptor> files) : files_(std::move(files)) {}
  [[nodiscard]] sys::Descriptor next(std::uint8_t expected) {
    if (expected == 0 || at_ == files_.size()) return {};
    return std::move(files_[at_++]);
  }

 private:
  std::vector<sys::Descriptor> files_;
  std::size_t at_ = 0;
};

bool is_internet(const sockaddr_storage& address) {
  return address.ss_family == AF_INET || address.ss_family == AF_INET6;
}

}  // namespace

// A file is mapped once, with the first connection that uses it.
InboxPlace ProcessPair::map_inbox(const pair_message::InboxName& name, sys::Descriptor file) {
  const bool possible = std::has_single_bit(name.receives) && name.receives <= most_receives &&
                        name.count <= most_in_a_file && name.index < name.count;
  if (!possible) return {};
  if (file.valid()) {
    if (peer_files_.size() >= most_peer_files) return {};
    auto made = std::make_shared<InboxFile>();
    made->memory =
        SharedMemory::open(std::move(file), name.count * InboxFile::stride(name.receives), true);
    if (!made->memory.valid()) return {};
    made->receives = name.receives;
    made->count = name.count;
    peer_files_[name.file_number] = std::move(made);
  }
  const auto known = peer_files_.find(name.file_number);
  if (known == peer_files_.end() || known->second->receives != name.receives ||
      name.index >= known->second->count) {
    return {};
  }
  return {.file = known->second, .file_number = name.file_number, .index = name.index};
}

// False: the peer has broken a rule, and the pair ends.
bool ProcessPair::handle(LocalChannel::Message message) {
  Header header;
  if (message.bytes.size() < sizeof header) return false;
  std::memcpy(&header, message.bytes.data(), sizeof header);
  const Bytes frame = Bytes(message.bytes).subspan(sizeof header);
  if (frame.size() != header.frame_bytes) return false;
  const bool names_connection = header.kind != Kind::drop_file;
  if (names_connection && header.number >= PairBells::most_connections) return false;
  switch (header.kind) {
    case Kind::connect:
      return on_connect(header, frame, std::move(message.descriptors));
    case Kind::reply:
      return on_reply(header, frame, std::move(message.descriptors));
    case Kind::cancel:
      return on_cancel(header.number);
    case Kind::drop_file:
      on_drop_file(header.number);
      return true;
    case Kind::lacks:
      return on_lacks(header);
    default:
      return false;
  }
}

// What a request or an acceptance brings along.
bool ProcessPair::take_parts(const Header& header, std::vector<sys::Descriptor> files,
                             PairReply& parts) {
  Taking taking(std::move(files));
  const std::lock_guard lock(mutex_);
  parts.inbox = map_inbox(header.inbox, taking.next(header.files.inboxes));
  sys::Descriptor grants = taking.next(header.files.context);
  sys::Descriptor counts = taking.next(header.files.context);
  parts.files.memory = taking.next(header.files.memory);
  parts.files.bell = taking.next(header.files.bell);
  parts.process = peer_contexts_.find(header.mark);
  if (!parts.process && grants.valid() && peer_contexts_.has_room()) {
    parts.process = device_.peer_processes().find_or_open(peer_, header.mark, std::move(grants),
                                                          std::move(counts));
    if (parts.process) peer_contexts_.add(parts.process);
  }
  // What a process may do can change: then the connection begins with TCP.
  return parts.inbox.valid() && parts.process && (staged_ || parts.process->reachable());
}

// The PairEnd answers where nothing takes it.
bool ProcessPair::on_connect(const Header& header, Bytes frame,
                             std::vector<sys::Descriptor> files) {
  PairEnd end;
  {
    const std::lock_guard lock(mutex_);
    if (dials_ || !is_internet(header.source) || !is_internet(header.destination)) return false;
    // A peer that asks and does not read the answers, or never leaves what has ended here.
    if (outgoing_.size() > PairBells::most_connections) return false;
    if (leaving_.size() > PairBells::most_connections) return false;
    if (entries_.size() <= header.number) entries_.resize(header.number + 1);
    if (entries_[header.number].used) return false;
    entries_[header.number].used = true;
    ++used_;
    end.pair_ = shared_from_this();
    end.number_ = header.number;
    end.serves_ = true;
  }
  PairReply parts;
  const bool complete = take_parts(header, std::move(files), parts);
  device_.process_pairs().note_request(shared_from_this());
  const auto listener = device_.process_pairs().listener_at(header.destination);
  if (!complete) {
    end.refuse_lacking(header);
    return true;
  }
  if (!listener || !same_user()) {
    end.refuse({}, Answer::not_serving);
    return true;
  }
  // What begins from now on stays on TCP, to be in the file.
  if (device_.capture()->running()) {
    end.refuse({}, Answer::busy);
    return true;
  }
  end.peer_ = std::move(parts.inbox);
  end.process_ = std::move(parts.process);
  end.files_ = std::move(parts.files);
  const TcpEnds ends{.local = header.destination, .remote = header.source};
  listener->take(std::move(end), ends, frame);
  return true;
}

bool ProcessPair::on_reply(const Header& header, Bytes frame, std::vector<sys::Descriptor> files) {
  PairReply reply;
  reply.answer = header.answer;
  reply.frame.assign(frame.begin(), frame.end());
  if (header.answer > Answer::lacking) return false;
  reply.accepted = header.answer == Answer::accepted;
  const bool lacks = reply.accepted && !take_parts(header, std::move(files), reply);
  if (header.answer == Answer::as_stream && !files.empty()) reply.stream = std::move(files.back());
  PairEnd left;
  {
    const std::lock_guard lock(mutex_);
    if (!dials_ || header.number >= entries_.size()) return false;
    Entry& entry = entries_[header.number];
    if (!entry.used || std::exchange(entry.replied, true)) return false;
    if (header.answer == Answer::lacking) forget_sent(header);
    if (lacks) {
      ++device_.refusals().local_refused;
      reply.answer = Answer::lacking;
      report_lacking(header, reply.inbox);
    }
    if (!entry.cancelled) {
      entry.reply = std::move(reply);
    } else if (reply.accepted) {
      // Leaves by the destructor, as a connection that has begun.
      left.pair_ = shared_from_this();
      left.number_ = header.number;
      left.own_ = std::move(entry.cancelled_own);
      left.answered_ = true;
      left.take_parts_of(reply);
    } else {
      give_back(std::move(entry.cancelled_own));
      entry = {};
      --used_;
      free_number(header.number);
    }
  }
  call(header.number);
  return true;
}

// The peer has begun a connection of which this process could not map everything: it had no
// descriptor or no memory left. Only that connection ends.
void ProcessPair::report_lacking(const Header& acceptance, const InboxPlace& inbox) {
  Header header = naming_parts_of(acceptance);
  header.kind = Kind::lacks;
  header.number = acceptance.number;
  header.files.inboxes = inbox.valid() ? 0 : 1;
  (void)send(header, {}, {});
}

// The other end of report_lacking().
bool ProcessPair::on_lacks(const Header& header) {
  {
    const std::lock_guard lock(mutex_);
    if (dials_) return false;
    forget_sent(header);
    const bool inbox_unknown = header.files.inboxes != 0;
    if (header.number < entries_.size() && entries_[header.number].used) {
      entries_[header.number].cancelled = true;
      entries_[header.number].inbox_unknown = inbox_unknown;
    } else if (inbox_unknown) {
      give_back_left(header.number);
    }
  }
  call(header.number);
  return true;
}

// With the lock. The peer does not know the inbox of the connection that this side has left, and
// will not say that it does not use it any more.
void ProcessPair::give_back_left(std::uint32_t number) {
  const auto left = std::ranges::find(leaving_, number, &Leaving::number);
  if (left == leaving_.end()) return;
  InboxPlace own = std::move(left->own);
  leaving_.erase(left);
  give_back(std::move(own));
}

// With the lock. The peer could not take what was sent with a message: it is sent again with the
// next one that names it.
void ProcessPair::forget_sent(const Header& header) {
  std::erase(sent_files_, header.inbox.file_number);
  std::erase(sent_contexts_, header.mark);
}

// A connection that was refused may have ended here before the peer knows that.
bool ProcessPair::on_cancel(std::uint32_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (dials_) return false;
    if (number >= entries_.size() || !entries_[number].used) return true;
    entries_[number].cancelled = true;
  }
  call(number);
  return true;
}

void ProcessPair::on_drop_file(std::uint32_t file_number) {
  const std::lock_guard lock(mutex_);
  peer_files_.erase(file_number);
}

}  // namespace weft::device
