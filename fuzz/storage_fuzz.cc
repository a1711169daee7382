// Fuzzes the commands of storage protocols. The input is Sends of one connection, each after two
// bytes with its length (big-endian) and one byte of flags: bit 0 is the side, bit 1 cuts the
// second half off, bit 2 sends it in two parts.
#include <algorithm>
#include <cstdint>

#include "fuzz/fuzz.h"
#include "weft/capture/connection.hpp"
#include "weft/capture/storage_tracker.hpp"

namespace weft::fuzz {
namespace {

struct Sink final : capture::StorageSink {
  void on_command(const capture::StorageCommand& command) override {
    using Outcome = capture::StorageCommand::Outcome;
    require(command.number == ++commands);
    require(command.request || command.answer);
    require(command.answer.has_value() == (command.outcome != Outcome::unanswered));
    require(command.request.has_value() == (command.outcome != Outcome::answer_only));
    require((command.latency_ns >= 0) == (command.request && command.answer));
    require(command.keys.size() <= 2);
    require(!capture::describe(command).empty());
    require(!capture::outcome_text(command).empty());
    (void)capture::detail_text(command);
  }

  std::uint64_t commands = 0;
};

void follow(Bytes input) {
  constexpr std::size_t record_bytes = 3;
  capture::ConnectionTable connections;
  Sink sink;
  // The smallest limits that are useful, so that short inputs reach them.
  capture::StorageTracker storage(connections, sink,
                                  {.open_commands = 4,
                                   .open_commands_in_all = 8,
                                   .keys = 2,
                                   .message_bytes = 512,
                                   .message_bytes_in_all = 2048,
                                   .files = 2,
                                   .files_in_all = 2});
  capture::Origin origin;
  capture::SendPart part;
  while (input.size() >= record_bytes) {
    const std::size_t size = load_be<std::uint16_t>(&input[0]);
    const auto flags = std::to_integer<std::uint8_t>(input[2]);
    input = input.subspan(record_bytes);
    const Bytes message = input.first(std::min(size, input.size()));
    input = input.subspan(message.size());
    origin.side = (flags & 1U) != 0 ? capture::Side::b : capture::Side::a;
    ++origin.stamp.frame;
    origin.stamp.time_ns += 1000;
    ++part.message;
    const Bytes first = message.first(message.size() / 2);
    part.offset = 0;
    part.last = true;
    part.missing_bytes = 0;
    part.bytes = message;
    if ((flags & 2U) != 0) {
      part.bytes = first;
      part.missing_bytes = message.size() - first.size();
    } else if ((flags & 4U) != 0) {
      part.last = false;
      part.bytes = first;
      storage.on_send(origin, part);
      part.last = true;
      part.offset = first.size();
      part.bytes = message.subspan(first.size());
    }
    storage.on_send(origin, part);
    storage.on_write(origin, {.key = static_cast<std::uint32_t>(size), .bytes = {}});
  }
  storage.finish();
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::fuzz::follow(weft::fuzz::input_bytes(data, size));
  return 0;
}
