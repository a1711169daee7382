#include "stream/greeting.h"

#include <algorithm>

#include "base/bytes.h"

namespace weft::stream::detail {
namespace {

constexpr std::uint32_t magic = 0x57454653;  // "WEFS"
constexpr std::uint8_t version = 1;

bool plausible(const Greeting& greeting) {
  const std::uint8_t known = variant_immediate | variant_write_and_send;
  const std::uint64_t region = region_bytes(greeting.ring_bytes, greeting.rows);
  const bool one_variant = (greeting.variants & (greeting.variants - 1)) == 0;
  return greeting.receives >= min_queue && greeting.ring_bytes >= 1 &&
         greeting.ring_bytes <= max_buffer_bytes && greeting.ring_address + region > region &&
         (greeting.variants & known) != 0 &&
         (greeting.type == GreetingType::request || one_variant);
}

}  // namespace

const char* to_string(Reason reason) {
  switch (reason) {
    case Reason::by_user:
      return "its program said no";
    case Reason::version:
      return "it speaks another version or another protocol";
    case Reason::malformed:
      return "the greeting has sizes that cannot be";
    case Reason::no_variant:
      return "there is no variant that both sides can";
    case Reason::unable:
      return "it lacks the resources";
  }
  return "for a reason unknown here";
}

Greeting Greeting::refusal(Reason reason, std::span<const std::byte> private_data) {
  Greeting greeting;
  greeting.type = GreetingType::refusal;
  greeting.receives = static_cast<std::uint16_t>(reason);
  greeting.private_data.assign(private_data.begin(), private_data.end());
  return greeting;
}

std::vector<std::byte> Greeting::to_bytes() const {
  std::vector<std::byte> bytes(fixed_bytes);
  store_be(&bytes[0], magic);
  store_be(&bytes[4], version);
  store_be(&bytes[5], static_cast<std::uint8_t>(type));
  store_be(&bytes[6], receives);
  store_be(&bytes[8], ring_address);
  store_be(&bytes[16], ring_rkey);
  store_be(&bytes[20], ring_bytes);
  store_be(&bytes[24], variants);
  store_be(&bytes[25], rows);
  store_be(&bytes[27], static_cast<std::uint8_t>(private_data.size()));
  std::ranges::copy(private_data, std::back_inserter(bytes));
  return bytes;
}

std::variant<Greeting, Reason> Greeting::parse(std::span<const std::byte> bytes) {
  if (bytes.size() < 5 || load_be<std::uint32_t>(bytes.data()) != magic ||
      load_be<std::uint8_t>(&bytes[4]) != version) {
    return Reason::version;
  }
  if (bytes.size() < fixed_bytes) return Reason::malformed;
  Greeting greeting;
  const auto type = load_be<std::uint8_t>(&bytes[5]);
  greeting.type = static_cast<GreetingType>(type);
  greeting.receives = load_be<std::uint16_t>(&bytes[6]);
  greeting.ring_address = load_be<std::uint64_t>(&bytes[8]);
  greeting.ring_rkey = load_be<std::uint32_t>(&bytes[16]);
  greeting.ring_bytes = load_be<std::uint32_t>(&bytes[20]);
  greeting.variants = load_be<std::uint8_t>(&bytes[24]);
  greeting.rows = load_be<std::uint8_t>(&bytes[25]);
  const std::size_t user_bytes = load_be<std::uint8_t>(&bytes[27]);
  if (type < 1 || type > 3 || bytes.size() < fixed_bytes + user_bytes) return Reason::malformed;
  if (greeting.type != GreetingType::refusal && !plausible(greeting)) return Reason::malformed;
  const auto user = bytes.subspan(fixed_bytes, user_bytes);
  greeting.private_data.assign(user.begin(), user.end());
  return greeting;
}

}  // namespace weft::stream::detail
