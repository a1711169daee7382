#include "device/local/process_pair.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/own_descriptors.h"
#include "device/context.h"
#include "device/device.h"
#include "device/local/pair_end.h"
#include "device/local/process_pairs.h"

namespace weft::device {
namespace {

using pair_message::Answer;
using pair_message::Header;
using pair_message::Kind;

// Inboxes that are looked at before a new one is made.
constexpr int looks_at_leaving = 8;
constexpr std::size_t messages_per_turn = 64;
constexpr std::size_t most_sent_contexts = 64;
// Between attempts to send a message where the user has too many descriptors under way.
constexpr std::uint64_t descriptors_pause_ns = 1'000'000;

// The pair ends, because the peer has broken a rule.
bool violated(Device& device) {
  ++device.refusals().local_violations;
  return false;
}

}  // namespace

ProcessPair::ProcessPair(Device& device, LocalChannel channel, SharedMemory bells, pid_t peer,
                         Role role)
    : device_(device),
      channel_(std::move(channel)),
      bells_(std::move(bells)),
      peer_(peer),
      dials_(role.dials),
      staged_(role.staged),
      user_(::geteuid()),
      reader_(device.engine()) {}

bool ProcessPair::start() {
  bells(dials_).mail.open.store(1, std::memory_order_release);
  return reader_.watch(channel_.fd(), shared_from_this());
}

PairBells& ProcessPair::bells(bool of_dialing_side) const {
  auto* const both = std::launder(reinterpret_cast<PairBells*>(bells_.data()));
  return both[of_dialing_side ? 0 : 1];
}

// As LocalChannel::peer(): the process may have changed its user since then.
bool ProcessPair::same_user() const {
  return user_ == ::geteuid();
}

// --- Numbers and inboxes -------------------------------------------------------------------------

// The peer has left some of the connections that this side has left.
void ProcessPair::collect() {
  for (int i = 0; i < looks_at_leaving && !leaving_.empty(); ++i) {
    Leaving first = std::move(leaving_.front());
    leaving_.pop_front();
    if (first.own.inbox()->leaving.done.load(std::memory_order_acquire) == 0) {
      leaving_.push_back(std::move(first));
      continue;
    }
    if (dials_) free_number(first.number);
    give_back(std::move(first.own));
  }
}

std::optional<std::uint32_t> ProcessPair::take_number() {
  if (!free_numbers_.empty()) {
    const std::uint32_t number = free_numbers_.back();
    free_numbers_.pop_back();
    entries_[number].used = true;
    ++used_;
    return number;
  }
  if (entries_.size() == PairBells::most_connections) return std::nullopt;
  entries_.emplace_back().used = true;
  ++used_;
  return static_cast<std::uint32_t>(entries_.size() - 1);
}

void ProcessPair::free_number(std::uint32_t number) {
  free_numbers_.push_back(number);
}

InboxPlace ProcessPair::take_inbox(std::uint32_t receives) {
  collect();
  return inboxes_.take(receives);
}

void ProcessPair::give_back(InboxPlace own) {
  const auto dropped = inboxes_.give_back(std::move(own));
  if (!dropped) return;
  std::erase(sent_files_, *dropped);
  Header header;
  header.kind = Kind::drop_file;
  header.number = *dropped;
  (void)send(header, {}, {});
}

// --- Sending -------------------------------------------------------------------------------------

// Messages keep their order: what the peer has no room for waits, and what follows waits behind it.
bool ProcessPair::send(const Header& header, Bytes frame, std::span<const int> descriptors) {
  if (gone()) return true;
  const Bytes plain = std::as_bytes(std::span(&header, 1));
  if (descriptors.empty() && outgoing_mail_.put(bells(!dials_).mail, plain, frame)) {
    announce(Wakes::waiter);
    return true;
  }
  if (!send_by_channel(header, frame, descriptors)) return false;
  outgoing_mail_.sent_by_channel();
  return true;
}

bool ProcessPair::send_by_channel(const Header& header, Bytes frame,
                                  std::span<const int> descriptors) {
  std::vector<std::byte> bytes(sizeof header + frame.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::ranges::copy(frame, bytes.begin() + sizeof header);
  if (outgoing_.empty() && channel_.send(bytes, descriptors)) return true;
  Outgoing waiting{.bytes = std::move(bytes), .descriptors = {}};
  for (const int descriptor : descriptors) {
    waiting.descriptors.emplace_back(own_descriptors::copy_high(descriptor));
    if (!waiting.descriptors.back().valid()) return false;
  }
  outgoing_.push_back(std::move(waiting));
  if (outgoing_.size() == 1) reader_.watch_for(EPOLLIN | EPOLLOUT);
  return true;
}

bool ProcessPair::send_first_outgoing() {
  std::vector<int> descriptors;
  for (const auto& one : outgoing_.front().descriptors) descriptors.push_back(one.get());
  if (!channel_.send(outgoing_.front().bytes, descriptors)) return false;
  outgoing_.pop_front();
  return true;
}

// The channel can have room and still refuse a message: the kernel limits how many descriptors a
// user has in messages that were not received yet (ETOOMANYREFS, unix(7)). The kernel reports no
// event when the message would be accepted, so this tries again after a pause.
void ProcessPair::flush_outgoing(std::uint32_t events) {
  if (outgoing_.empty()) return;
  if (!send_first_outgoing()) {
    if ((events & EPOLLOUT) == 0) return;
    reader_.watch_for(EPOLLIN);
    device_.engine().call_at(sys::now_ns() + descriptors_pause_ns, shared_from_this());
    return;
  }
  while (!outgoing_.empty() && send_first_outgoing()) {
  }
  reader_.watch_for(outgoing_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

// Files that the peer has got before are only named.
bool ProcessPair::send_with_files(Header header, Bytes frame, const InboxPlace& own,
                                  Context* context, const SharedFiles& files, int stream) {
  std::vector<int> descriptors;
  const auto add = [&descriptors](std::uint8_t& flag, int descriptor) {
    flag = 1;
    descriptors.push_back(descriptor);
  };
  header.frame_bytes = static_cast<std::uint32_t>(frame.size());
  if (own.valid()) {
    header.inbox = {own.file_number, own.index, own.file->receives, own.file->count};
    if (std::ranges::find(sent_files_, own.file_number) == sent_files_.end()) {
      add(header.files.inboxes, own.file->memory.file());
    }
  }
  if (context) {
    const GrantTable& grants = context->grants();
    header.mark = grants.mark();
    if (std::ranges::find(sent_contexts_, header.mark) == sent_contexts_.end()) {
      add(header.files.context, grants.read_only_file());
      descriptors.push_back(grants.count_file());
    }
  }
  if (files.memory.valid()) add(header.files.memory, files.memory.get());
  if (files.memory.valid() && files.bell.valid()) add(header.files.bell, files.bell.get());
  if (stream >= 0) add(header.files.stream, stream);
  if (!send(header, frame, descriptors)) return false;
  if (header.files.inboxes != 0) sent_files_.push_back(own.file_number);
  if (header.files.context != 0) note_sent_context(header.mark);
  return true;
}

// Contexts that are closed meanwhile stay in the list, so it is kept short: the peer takes files of
// a context that it has already for what they are.
void ProcessPair::note_sent_context(const ProcessMark::Name& mark) {
  if (sent_contexts_.size() >= most_sent_contexts) sent_contexts_.erase(sent_contexts_.begin());
  sent_contexts_.push_back(mark);
}

PairEnd ProcessPair::dial(const Request& request, std::weak_ptr<Pollable> target) {
  PairEnd end;
  if (!same_user() || !request.terms.context->open_grants()) return end;
  const std::lock_guard lock(mutex_);
  if (gone() || outgoing_.size() >= PairBells::most_connections) return end;
  InboxPlace own = take_inbox(request.terms.receives);
  if (!own.valid()) return end;
  const auto number = take_number();
  if (!number) {
    give_back(std::move(own));
    return end;
  }
  entries_[*number].target = std::move(target);
  Header header;
  header.kind = Kind::connect;
  header.number = *number;
  header.source = request.source;
  header.destination = request.destination;
  if (!send_with_files(header, request.frame, own, request.terms.context, request.files, -1)) {
    entries_[*number] = {};
    --used_;
    free_number(*number);
    give_back(std::move(own));
    return end;
  }
  end.pair_ = shared_from_this();
  end.number_ = *number;
  end.own_ = std::move(own);
  return end;
}

// --- Receiving -----------------------------------------------------------------------------------

// One thread at a time, so that messages are handled in their order.
void ProcessPair::on_ready(std::uint32_t events) {
  if (gone() || !reader_.begin_reported(events)) return;
  end_reading(serve(events | reader_.take_left()));
}

void ProcessPair::on_deadline() {
  on_ready(EPOLLOUT);
}

// All that may be left, whatever has announced it.
bool ProcessPair::serve(std::uint32_t events) {
  if (!read_channel()) return false;
  reader_.watch_again();
  {
    const std::lock_guard lock(mutex_);
    flush_outgoing(events);
  }
  return take_mail() && take_new();
}

void ProcessPair::end_reading(bool open) {
  const bool left = reader_.end();
  if (!open) return end();
  if (left) come_again();
}

// Serves the pair once more, soon, for work that epoll does not report.
void ProcessPair::come_again() {
  device_.engine().call_at(sys::now_ns(), shared_from_this());
}

// A peer that writes as fast as this end reads has its turn again soon.
bool ProcessPair::read_channel() {
  for (std::size_t read = 0; read < messages_per_turn; read += LocalChannel::several) {
    auto messages = channel_.receive_several();
    for (auto& message : messages) {
      if (message.bytes.empty() || !handle_of_channel(std::move(message))) return false;
    }
    if (messages.size() < LocalChannel::several) break;
  }
  return true;
}

bool ProcessPair::handle_of_channel(LocalChannel::Message message) {
  if (message.bytes.size() == sizeof(pair_message::Kind)) return true;  // bells
  if (!take_mail()) return false;
  if (!handle(std::move(message))) return violated(device_);
  mail_.handled_of_channel(bells(dials_).mail);
  return true;
}

bool ProcessPair::take_mail() {
  PairMail& mail = bells(dials_).mail;
  for (std::size_t taken = 0; taken < messages_per_turn; ++taken) {
    auto bytes = mail_.take(mail);
    if (!bytes) return true;
    if (!handle({.bytes = std::move(*bytes), .descriptors = {}})) return violated(device_);
  }
  come_again();
  return true;
}

void ProcessPair::call(std::uint32_t number) {
  std::shared_ptr<Pollable> target;
  {
    const std::lock_guard lock(mutex_);
    if (number < entries_.size()) target = entries_[number].target.lock();
  }
  if (target) target->on_ready(EPOLLIN);
}

// The flag is cleared before the memory is looked at, and set after it was written: what is missed
// here is announced once more. False: the peer has sent something wrong.
bool ProcessPair::take_new() {
  PairBells& own = bells(dials_);
  if (own.pending.load(std::memory_order_relaxed) == 0) return true;
  own.pending.store(0, std::memory_order_seq_cst);
  if (!take_mail()) return false;
  call_rung();
  return true;
}

void ProcessPair::call_rung() {
  PairBells& own = bells(dials_);
  std::vector<std::shared_ptr<Pollable>> targets;
  {
    const std::lock_guard lock(mutex_);
    for (std::uint32_t part = 0; part < own.summary.size(); ++part) {
      if (own.summary[part].load(std::memory_order_seq_cst) == 0) continue;
      for (auto words = own.summary[part].exchange(0); words != 0; words &= words - 1) {
        const auto word = part * 64 + static_cast<std::uint32_t>(std::countr_zero(words));
        for (auto rung = own.words[word].exchange(0); rung != 0; rung &= rung - 1) {
          const auto number = word * 64 + static_cast<std::uint32_t>(std::countr_zero(rung));
          if (number >= entries_.size()) continue;
          if (auto target = entries_[number].target.lock()) targets.push_back(std::move(target));
        }
      }
    }
  }
  for (const auto& target : targets) target->on_ready(EPOLLIN);
}

void ProcessPair::ring(std::uint32_t number, Wakes wakes) {
  if (gone() || abandoned_) return;
  PairBells& theirs = bells(!dials_);
  theirs.words[number / 64].fetch_or(std::uint64_t{1} << (number % 64));
  theirs.summary[number / 4096].fetch_or(std::uint64_t{1} << (number / 64 % 64));
  announce(wakes);
}

// A thread that the kernel does not wake is on its way, or was cancelled. A full channel needs no
// message: the peer has others to read, and looks at its bells then.
void ProcessPair::announce(Wakes wakes) {
  PairBells& theirs = bells(!dials_);
  if (theirs.pending.exchange(1, std::memory_order_seq_cst) != 0) return;
  const Waiting waiting = theirs.waiting.load(std::memory_order_seq_cst);
  if (waiting == Waiting::looks) return;
  if (waiting == Waiting::sleeps && wakes == Wakes::waiter && sys::wake_sleeper(&theirs.waiting)) {
    return;
  }
  constexpr auto kind = Kind::bells;
  (void)channel_.send(std::as_bytes(std::span(&kind, 1)));
}

// --- The end -------------------------------------------------------------------------------------

// This side does not use the connection any more. A peer that knows `own` sets a flag in it when it
// has left, too.
void ProcessPair::leave(std::uint32_t number, InboxPlace own) {
  const std::lock_guard lock(mutex_);
  const bool inbox_unknown = entries_[number].inbox_unknown;
  entries_[number] = {};
  --used_;
  if (!own.valid()) return;
  if (inbox_unknown) return give_back(std::move(own));
  leaving_.push_back({.number = number, .own = std::move(own)});
}

// The kernel closes the channel of a process that ends, whatever the reason.
void ProcessPair::end() {
  std::vector<std::shared_ptr<Pollable>> targets;
  {
    const std::lock_guard lock(mutex_);
    if (gone_.exchange(true)) return;
    outgoing_.clear();
    for (const Entry& entry : entries_) {
      if (auto target = entry.target.lock()) targets.push_back(std::move(target));
    }
  }
  reader_.unwatch();
  device_.process_pairs().remove(*this);
  for (const auto& target : targets) target->on_ready(EPOLLIN);
}

// Not while another thread reads the channel: what it receives may be a new connection, and the
// number of the descriptor may be another file's after close(2). From here on no thread reads it.
bool ProcessPair::close_if_idle() {
  if (!reader_.begin()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (used_ != 0 || gone_.exchange(true)) {
      if (reader_.end()) come_again();
      return false;
    }
  }
  reader_.unwatch();
  channel_.close();
  return true;
}

void ProcessPair::abandon_after_fork() {
  abandoned_ = true;
  gone_ = true;
  channel_.disown();
  bells_.abandon();
  inboxes_.abandon_after_fork();
  for (auto& [number, file] : peer_files_) file->memory.abandon();
}

}  // namespace weft::device
