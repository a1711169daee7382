#include "cm/plain_peer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "cm/fixture.h"
#include "support/tcp_state.h"

namespace weft::cm {
namespace {

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, patience_ms) == 1;
}

}  // namespace

PlainPeer::PlainPeer(PlainPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

PlainPeer& PlainPeer::operator=(PlainPeer&& other) noexcept {
  close();
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

PlainPeer::~PlainPeer() {
  close();
}

PlainPeer PlainPeer::connect(std::uint16_t port) {
  PlainPeer peer(::socket(AF_INET, SOCK_STREAM, 0));
  const auto to = ipv4("127.0.0.1", port);
  EXPECT_EQ(::connect(peer.fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return peer;
}

void PlainPeer::send(Bytes bytes) {
  EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

std::vector<std::byte> PlainPeer::receive(std::size_t bytes) {
  std::vector<std::byte> got(bytes);
  std::size_t done = 0;
  while (done < bytes && readable(fd_)) {
    const auto part = ::recv(fd_, got.data() + done, bytes - done, 0);
    if (part <= 0) break;
    done += static_cast<std::size_t>(part);
  }
  got.resize(done);
  return got;
}

std::vector<std::byte> PlainPeer::receive_frame() {
  auto frame = receive(wire::MpaFrame::header_bytes);
  if (frame.size() < wire::MpaFrame::header_bytes) return {};
  const auto parsed = wire::MpaFrame::parse(frame);
  EXPECT_TRUE(parsed.ok());
  if (!parsed) return {};
  const auto rest = receive(parsed->private_data_bytes);
  frame.insert(frame.end(), rest.begin(), rest.end());
  return frame;
}

void PlainPeer::send_frame(wire::MpaFrame frame, const wire::MpaEnhanced* enhanced, Bytes data) {
  const std::size_t extra = enhanced ? wire::MpaEnhanced::header_bytes : 0;
  frame.private_data_bytes = static_cast<std::uint16_t>(extra + data.size());
  std::vector<std::byte> bytes(wire::MpaFrame::header_bytes + extra);
  frame.emit(bytes);
  if (enhanced) enhanced->emit(MutableBytes(bytes).subspan(wire::MpaFrame::header_bytes));
  bytes.insert(bytes.end(), data.begin(), data.end());
  send(bytes);
}

bool PlainPeer::at_end() {
  char byte = 0;
  while (readable(fd_)) {
    if (::recv(fd_, &byte, 1, 0) <= 0) return true;
  }
  return false;
}

bool PlainPeer::was_reset() const {
  return test::was_reset(fd_);
}

void PlainPeer::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void PlainPeer::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

PlainListener::PlainListener(int backlog) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
  address_ = ipv4("127.0.0.1", 0);
  socklen_t bytes = sizeof address_;
  EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address_), bytes), 0);
  EXPECT_EQ(::listen(fd_, backlog), 0);
  ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &bytes);
}

PlainListener::~PlainListener() {
  ::close(fd_);
}

PlainPeer PlainListener::accept() const {
  if (!readable(fd_)) return PlainPeer();
  return PlainPeer(::accept(fd_, nullptr, nullptr));
}

}  // namespace weft::cm
