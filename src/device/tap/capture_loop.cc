#include "device/tap/capture_loop.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "wire/mpa.h"
#include "wire/rdmap.h"

namespace weft::device {
namespace {

// FPDU length, DDP control byte, RDMAP control byte.
constexpr std::size_t start_bytes = wire::fpdu_length_bytes + 2;

sockaddr_storage with_port(sockaddr_storage address, std::uint16_t port) {
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  }
  return address;
}

// The size of the first FPDU; nothing if it is incomplete.
std::optional<std::size_t> whole_fpdu(Bytes bytes) {
  if (bytes.size() < start_bytes) return {};
  const std::size_t size = wire::fpdu_bytes(wire::load_fpdu_length(bytes.data()));
  if (bytes.size() < size) return {};
  return size;
}

// True for messages that only a responder sends (RFC 5040 §4, RFC 7306 §4).
bool is_answer(Bytes fpdu) {
  const auto opcode = wire::rdmap_opcode(std::to_integer<std::uint8_t>(fpdu[start_bytes - 1]));
  return opcode == wire::RdmapOpcode::read_response ||
         opcode == wire::RdmapOpcode::atomic_response || opcode == wire::RdmapOpcode::terminate;
}

}  // namespace

void FpduBoundary::pass(std::span<const iovec> pieces, std::size_t bytes) {
  for (const iovec& piece : pieces) {
    const std::size_t some = std::min(piece.iov_len, bytes);
    pass(Bytes(static_cast<const std::byte*>(piece.iov_base), some));
    bytes -= some;
  }
}

void FpduBoundary::pass(Bytes bytes) {
  while (!bytes.empty()) {
    if (missing_ > 0) {
      const std::size_t some = std::min(missing_, bytes.size());
      missing_ -= some;
      bytes = bytes.subspan(some);
      continue;
    }
    length_[length_bytes_++] = bytes.front();
    bytes = bytes.subspan(1);
    if (length_bytes_ < length_.size()) continue;
    length_bytes_ = 0;
    missing_ = wire::fpdu_bytes(wire::load_fpdu_length(length_.data())) - length_.size();
  }
}

// A connection within the device has one address at both ends; the other port makes it look like a
// connection of TCP.
LoopTap::LoopTap(std::shared_ptr<CaptureFile> file, const sockaddr_storage& local,
                 const Terms& terms)
    : tap_(std::move(file), local, with_port(local, terms.answering_port), true) {
  handshake(terms);
}

// Readers need the MPA frames to know the revision, the CRC setting and the read depth.
void LoopTap::handshake(const Terms& terms) {
  std::array<std::byte, wire::MpaFrame::header_bytes + wire::MpaEnhanced::header_bytes> bytes;
  const iovec piece{bytes.data(), bytes.size()};
  const wire::MpaEnhanced depths{.ird = terms.read_depth, .ord = terms.read_depth};
  for (const auto kind : {wire::MpaKind::request, wire::MpaKind::reply}) {
    const wire::MpaFrame frame{.kind = kind,
                               .crc = terms.crc,
                               .enhanced = true,
                               .revision = 2,
                               .private_data_bytes = wire::MpaEnhanced::header_bytes};
    frame.emit(bytes);
    depths.emit(MutableBytes(bytes).subspan(wire::MpaFrame::header_bytes));
    if (kind == wire::MpaKind::request)
      tap_.sent({&piece, 1}, bytes.size());
    else
      tap_.received({&piece, 1}, bytes.size());
  }
}

void LoopTap::write(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  const iovec piece{&pending_[begin], end - begin};
  if (answers_)
    tap_.received({&piece, 1}, piece.iov_len);
  else
    tap_.sent({&piece, 1}, piece.iov_len);
}

// Consecutive FPDUs of the same direction are written as one segment.
void LoopTap::sent(std::span<const iovec> pieces, std::size_t bytes) {
  for (const iovec& piece : pieces) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    const std::size_t some = std::min(piece.iov_len, bytes);
    pending_.insert(pending_.end(), from, from + some);
    bytes -= some;
  }
  std::size_t begin = 0;  // start of the FPDUs of the same direction
  std::size_t at = 0;
  while (const auto size = whole_fpdu(Bytes(pending_).subspan(at))) {
    const bool answer = is_answer(Bytes(pending_).subspan(at));
    if (answer != answers_) {
      write(begin, at);
      begin = at;
      answers_ = answer;
    }
    at += *size;
  }
  write(begin, at);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(at));
}

// An incomplete FPDU is written in the direction that its opcode shows, if it is known already.
void LoopTap::closed() {
  if (pending_.size() >= start_bytes) answers_ = is_answer(pending_);
  write(0, pending_.size());
  pending_.clear();
  tap_.closed();
  tap_.peer_closed();
}

}  // namespace weft::device
