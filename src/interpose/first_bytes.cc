#include "interpose/first_bytes.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "interpose/next.h"

namespace weft::interpose {
namespace {

// RFC 5044 §7.1: the request frame begins with this key, then come flags, the revision and the
// length of the private data, which is at most 512.
constexpr std::string_view request_key = "MPA ID Req Frame";
static_assert(request_key.size() == request_key_bytes);
constexpr std::size_t header_bytes = 20;  // with the length of the private data at its end
constexpr std::size_t max_private_data_bytes = 512;

unsigned number_at(std::string_view header, std::size_t place) {
  return static_cast<unsigned char>(header[place]);
}

// `start` begins with the key of a request. The device would refuse an unknown revision (1 is that
// of RFC 5044, 2 that of RFC 6581), and private data that is too long.
Protocol protocol_of_request(std::string_view start) {
  if (start.size() < header_bytes) return Protocol::unknown;
  const unsigned revision = number_at(start, header_bytes - 3);
  const std::size_t private_data =
      number_at(start, header_bytes - 2) << 8 | number_at(start, header_bytes - 1);
  if (revision < 1 || revision > 2 || private_data > max_private_data_bytes) {
    return Protocol::malformed;
  }
  return start.size() < header_bytes + private_data ? Protocol::unknown : Protocol::stream;
}

}  // namespace

// MSG_PEEK leaves the bytes in the socket for the device or the program, which reads them later.
FirstBytes look_at_first_bytes(int fd) {
  std::array<char, header_bytes + max_private_data_bytes> bytes;
  ssize_t got = 0;
  do {
    got = next::recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return {errno == EAGAIN ? Protocol::unknown : Protocol::disconnected, 0};
  if (got == 0) return {Protocol::plain, 0};
  const std::string_view start(bytes.data(), static_cast<std::size_t>(got));
  if (agreed_key.starts_with(start.substr(0, agreed_key.size()))) {
    const bool whole = start.size() >= agreed_key.size();
    return {whole ? Protocol::agreed : Protocol::unknown, start.size()};
  }
  if (start.starts_with(wake_key)) return {Protocol::wakes, start.size()};
  // Less than the whole key is compared as well: the first wrong byte already shows plain TCP.
  if (!request_key.starts_with(start.substr(0, request_key.size()))) {
    return {Protocol::plain, start.size()};
  }
  return {protocol_of_request(start), start.size()};
}

// A client that has sent the whole key speaks MPA: without the rest of its request it can neither
// become a stream nor be served as plain TCP.
Protocol without_more_bytes(const FirstBytes& found) {
  if (found.protocol != Protocol::unknown) return found.protocol;
  return found.count < request_key_bytes ? Protocol::plain : Protocol::disconnected;
}

}  // namespace weft::interpose
