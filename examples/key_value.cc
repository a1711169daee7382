// A table of keys and values that clients look up by RDMA reads, without any work of the server's
// processor:
// "key_value serve KEY=VALUE…", then "key_value HOST PORT KEY…".
//
// A client reads the slot that the key hashes to and the following slots, until it finds the key or
// an empty slot. The server does not change its table here. If it did, each slot would need a
// version or a checksum, because a read can return bytes in the middle of a change.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <weft/connection.hpp>

namespace {

using namespace std::chrono_literals;
using namespace weft::connection;  // NOLINT(google-build-using-namespace)

struct Slot {
  std::array<char, 32> key;  // zero-terminated; empty: the slot is free
  std::array<char, 96> value;
};

constexpr std::size_t slots = 1024;
// Enables advertisements in both directions.
Options options() {
  return {.advertisements = true};
}

std::size_t home_of(std::string_view key) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a, the same on both sides
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash % slots;
}

void put(std::span<Slot> table, std::string_view key, std::string_view value) {
  if (key.empty() || key.size() >= sizeof Slot::key || value.size() >= sizeof Slot::value) {
    throw std::invalid_argument("a key or a value that is too long, or no key");
  }
  std::size_t at = home_of(key);
  for (std::size_t tried = 0; table[at].key[0] != '\0' && table[at].key.data() != key; ++tried) {
    if (tried == slots) throw std::length_error("the table is full");
    at = (at + 1) % slots;
  }
  table[at] = {};
  key.copy(table[at].key.data(), key.size());
  value.copy(table[at].value.data(), value.size());
}

void serve(std::span<char*> pairs) {
  Listener listener({"", 0}, options());
  std::printf("port %u\n", listener.port());
  std::fflush(stdout);
  auto request = listener.next(60s);
  if (!request) throw std::runtime_error("no peer has connected");
  const auto table = request->domain().allocate<Slot>(slots, Access::remote_read);
  for (const std::string_view pair : pairs) {
    const auto equals = pair.find('=');
    put(table.elements(), pair.substr(0, equals), pair.substr(equals + 1));
  }
  auto peer = std::move(*request).accept({.buffer = table.remote()}, 10s);
  (void)peer.await_disconnect(60s);
}

std::string look_up(Connection& peer, const RemoteBuffer& table,
                    const weft::verbs::TypedRegion<Slot>& slot, std::string_view key) {
  std::size_t at = home_of(key);
  for (std::size_t tried = 0; tried < slots; ++tried) {
    if (peer.post_read(slot.slice(), table, at * sizeof(Slot), /*id=*/at) != 0) {
      throw std::runtime_error("cannot post a read");
    }
    const auto outcomes = peer.await(Queue::send, 1, 10s);
    if (outcomes.empty() || !outcomes[0].ok()) throw std::runtime_error("a read has failed");
    if (slot[0].key.data() == key) return slot[0].value.data();
    if (slot[0].key[0] == '\0') break;
    at = (at + 1) % slots;
  }
  return "(none)";
}

void ask(const char* host, std::uint16_t port, std::span<char*> keys) {
  auto peer = connect({host, port}, 10s, options());
  const auto table = peer.await_advertisement(10s);
  if (!table) throw std::runtime_error("the server has advertised no table");
  const auto slot = peer.domain().allocate<Slot>(1);
  for (const char* key : keys) {
    std::printf("%s=%s\n", key, look_up(peer, table->buffer, slot, key).c_str());
  }
  peer.disconnect();
}

}  // namespace

int main(int count, char** arguments) {
  const std::span<char*> words(arguments, static_cast<std::size_t>(count));
  try {
    if (count > 1 && std::string_view(words[1]) == "serve") {
      serve(words.subspan(2));
    } else if (count > 3) {
      ask(words[1], static_cast<std::uint16_t>(std::atoi(words[2])), words.subspan(3));
    } else {
      std::fprintf(stderr, "key_value serve KEY=VALUE... | key_value HOST PORT KEY...\n");
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "key_value: %s\n", error.what());
    return 1;
  }
}
