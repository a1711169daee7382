#include "interpose/passed_descriptors.h"

#include <cerrno>
#include <cstring>

#include "interpose/data.h"
#include "interpose/kernel_connection.h"
#include "interpose/process.h"
#include "interpose/stream_set.h"
#include "interpose/table.h"

namespace weft::interpose {
namespace {

// CMSG_NXTHDR(3) needs a header that is not const, but nothing is written to it.
msghdr* without_const(const msghdr& message) {
  return const_cast<msghdr*>(&message);
}

// A part that is not whole has none: the kernel refuses the message.
std::size_t count_descriptors(const msghdr& message, const cmsghdr& part) {
  if (part.cmsg_level != SOL_SOCKET || part.cmsg_type != SCM_RIGHTS) return 0;
  const auto* first = reinterpret_cast<const std::byte*>(&part);
  const auto* end = static_cast<const std::byte*>(message.msg_control) + message.msg_controllen;
  const auto room = static_cast<std::size_t>(end - first);
  if (part.cmsg_len < CMSG_LEN(0) || part.cmsg_len > room) return 0;
  return (part.cmsg_len - CMSG_LEN(0)) / sizeof(int);
}

bool has_descriptors(const msghdr& message) {
  msghdr* const all = without_const(message);
  for (cmsghdr* part = CMSG_FIRSTHDR(all); part; part = CMSG_NXTHDR(all, part)) {
    if (count_descriptors(message, *part) > 0) return true;
  }
  return false;
}

// The data of a control message need not be aligned for an int (cmsg(3)).
int descriptor_at(const cmsghdr& part, std::size_t index) {
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(&part) + index * sizeof fd, sizeof fd);
  return fd;
}

// Puts what is to be passed in the place of `fd`. False with errno if that is not possible.
bool replace(int& fd) {
  if (StreamSet* const set = StreamSet::of(fd)) set->leave_all(false);
  let_key_go(fd);
  const auto socket = find_stream(fd);
  if (!socket) return true;
  const int passed = guarded([&] { return socket->descriptor_to_pass(fd); });
  if (passed >= 0) fd = passed;
  return passed >= 0;
}

}  // namespace

PassingMessage::PassingMessage(const msghdr& message) : message_(message) {
  if (!has_descriptors(message)) return;
  const auto* first = static_cast<const std::byte*>(message.msg_control);
  control_.assign(first, first + message.msg_controllen);
  message_.msg_control = control_.data();
  for (cmsghdr* part = CMSG_FIRSTHDR(&message_); part && possible_;
       part = CMSG_NXTHDR(&message_, part)) {
    possible_ = prepare(*part);
  }
}

bool PassingMessage::prepare(cmsghdr& part) {
  const std::size_t count = count_descriptors(message_, part);
  for (std::size_t i = 0; i < count; ++i) {
    int fd = descriptor_at(part, i);
    if (!replace(fd)) {
      print_notice(
          "a socket cannot be passed to another process after connect() has failed, or if the "
          "program has seen the peer's end before the bytes that precede it");
      errno = EOPNOTSUPP;
      return false;
    }
    std::memcpy(CMSG_DATA(&part) + i * sizeof fd, &fd, sizeof fd);
  }
  return true;
}

}  // namespace weft::interpose
