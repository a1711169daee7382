#include "cm/hostile_end.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "device/context.h"
#include "device/device.h"
#include "device/local/process_pairs.h"
#include "iwarp/handshake.h"

namespace weft::cm {

using device::InboxFile;
using device::LocalChannel;
using device::PairBells;
using device::ProcessPair;
using device::SharedMemory;
using device::sys::Descriptor;
namespace pair_message = device::pair_message;

namespace {

iwarp::HandshakeOptions handshake_options() {
  iwarp::HandshakeOptions options;
  options.mark = true;
  return options;
}

std::vector<std::byte> joined(const pair_message::Header& header, Bytes frame) {
  std::vector<std::byte> bytes(sizeof header + frame.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::ranges::copy(frame, bytes.begin() + sizeof header);
  return bytes;
}

template <typename Handshake>
void feed(Handshake& handshake, Bytes bytes) {
  while (!bytes.empty()) {
    const std::size_t part = std::min(handshake.wanted_bytes(), bytes.size());
    if (part == 0) return;
    handshake.input(bytes.first(part));
    bytes = bytes.subspan(part);
  }
}

// Whether the connections of this run copy through shared memory.
bool is_staged(const device::Device& device) {
  return device.settings().same_host == device::SameHost::staged;
}

}  // namespace

HostileEnd::HostileEnd() {
  own_.memory = SharedMemory::create("hostile-inboxes", InboxFile::stride(receives));
  own_.receives = receives;
  own_.count = 1;
}

// As ProcessPairs::introduce() does it.
HostileEnd HostileEnd::that_dials(device::Device& device) {
  HostileEnd end;
  end.dials_ = true;
  end.bells_ = SharedMemory::create("hostile-bells", ProcessPair::bells_bytes());
  int ends[2] = {-1, -1};
  EXPECT_EQ(device::sys::socket_pair(SOCK_SEQPACKET, ends), 0);
  end.channel_ = LocalChannel(Descriptor(ends[0]));
  LocalChannel::Message introduction;
  introduction.bytes.push_back(is_staged(device) ? std::byte{5} : std::byte{3});
  introduction.descriptors.emplace_back(ends[1]);
  introduction.descriptors.emplace_back(::fcntl(end.bells_.file(), F_DUPFD_CLOEXEC, 0));
  device.process_pairs().introduced(::getpid(), std::move(introduction));
  return end;
}

// A call may only note the process, and an earlier pair may not have ended yet.
HostileEnd HostileEnd::that_serves(device::Device& device, const sockaddr_storage& destination) {
  HostileEnd end;
  int ends[2] = {-1, -1};
  EXPECT_EQ(device::sys::socket_pair(SOCK_SEQPACKET, ends), 0);
  LocalChannel here{Descriptor(ends[0])};
  LocalChannel there{Descriptor(ends[1])};
  std::optional<LocalChannel::Message> introduction;
  const std::uint64_t end_ns = device::sys::now_ns() + std::uint64_t{patience_ms} * 1'000'000;
  while (!introduction && device::sys::now_ns() < end_ns) {
    device.process_pairs().met(::getpid(), there, destination, is_staged(device));
    introduction = here.receive();
  }
  if (!introduction || introduction->descriptors.size() != 2) {
    ADD_FAILURE() << "no introduction";
    return end;
  }
  end.channel_ = LocalChannel(std::move(introduction->descriptors[0]));
  end.bells_ =
      SharedMemory::open(std::move(introduction->descriptors[1]), ProcessPair::bells_bytes(), true);
  return end;
}

std::optional<HostileEnd::Message> HostileEnd::await() {
  while (true) {
    pollfd entry{channel_.fd(), POLLIN, 0};
    if (::poll(&entry, 1, patience_ms) != 1) {
      ADD_FAILURE() << "no message";
      return std::nullopt;
    }
    auto came = channel_.receive();
    if (!came || came->bytes.empty()) return std::nullopt;
    Message message;
    if (came->bytes.size() < sizeof message.header) continue;
    std::memcpy(&message.header, came->bytes.data(), sizeof message.header);
    message.frame.assign(came->bytes.begin() + sizeof message.header, came->bytes.end());
    message.files = std::move(came->descriptors);
    return message;
  }
}

void HostileEnd::send(const pair_message::Header& header, Bytes frame, std::vector<int> files) {
  send(joined(header, frame), std::move(files));
}

bool HostileEnd::try_send(const pair_message::Header& header, Bytes frame,
                          const std::vector<int>& files) {
  return channel_.send(joined(header, frame), files);
}

void HostileEnd::name(Whole& whole, device::Context& context) {
  EXPECT_TRUE(context.open_grants());
  const device::GrantTable& grants = context.grants();
  whole.header.inbox = {.file_number = 1, .index = 0, .receives = receives, .count = 1};
  whole.header.mark = grants.mark();
  whole.header.files.inboxes = 1;
  whole.header.files.context = 1;
  whole.header.frame_bytes = static_cast<std::uint32_t>(whole.frame.size());
  whole.files = {own_.memory.file(), grants.read_only_file(), grants.count_file()};
}

HostileEnd::Whole HostileEnd::request(device::Context& context,
                                      const sockaddr_storage& destination) {
  Whole whole;
  whole.header.kind = pair_message::Kind::connect;
  whole.header.number = next_number_++;
  whole.header.source = destination;
  whole.header.destination = destination;
  const iwarp::ActiveHandshake handshake(handshake_options(), {});
  whole.frame.assign(handshake.output().begin(), handshake.output().end());
  name(whole, context);
  return whole;
}

HostileEnd::Whole HostileEnd::acceptance(device::Context& context, const Message& request) {
  Whole whole;
  whole.header.kind = pair_message::Kind::reply;
  whole.header.number = request.header.number;
  whole.frame = reply_to(request.frame, true);
  name(whole, context);
  return whole;
}

std::vector<std::byte> HostileEnd::reply_to(Bytes request, bool accepts) {
  iwarp::PassiveHandshake handshake(handshake_options());
  feed(handshake, request);
  if (!handshake.requested()) return {};
  if (accepts) {
    handshake.accept(1, 1, {});
  } else {
    handshake.reject({});
  }
  return {handshake.output().begin(), handshake.output().end()};
}

bool HostileEnd::map(Message& message) {
  const pair_message::InboxName& name = message.header.inbox;
  if (message.header.files.inboxes != 0 && !message.files.empty()) {
    InboxFile file;
    file.receives = name.receives;
    file.count = name.count;
    file.memory = SharedMemory::open(std::move(message.files.front()),
                                     name.count * InboxFile::stride(name.receives), true);
    if (!file.memory.valid()) return false;
    devices_files_.push_back(std::move(file));
  }
  if (devices_files_.empty()) return false;
  devices_ = devices_files_.back().at(name.index);
  return true;
}

PairBells& HostileEnd::bells(std::size_t which) {
  return std::launder(reinterpret_cast<PairBells*>(bells_.data()))[which];
}

void HostileEnd::ring(std::uint32_t number) {
  PairBells& devices = bells(dials_ ? 1 : 0);
  devices.words[number / 64].fetch_or(std::uint64_t{1} << (number % 64));
  devices.summary[number / 4096].fetch_or(std::uint64_t{1} << (number / 64 % 64));
  devices.pending.store(1);
  constexpr auto kind = pair_message::Kind::bells;
  (void)channel_.send(std::as_bytes(std::span(&kind, 1)));
}

}  // namespace weft::cm
