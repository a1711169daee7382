#include "capture/made_load.h"

#include <stdexcept>
#include <string>

#include "capture/made_roce.h"

namespace weft::capture::test {
namespace {

constexpr std::uint32_t key = 0x1234;
constexpr std::size_t large_bytes = 1U << 20;
constexpr std::size_t small_bytes = 32;
// Of RoCE. iWARP has jumbo frames, with an FPDU in each.
constexpr std::size_t largest_mtu_bytes = 4'096;
constexpr std::size_t jumbo_mss_bytes = 8'948;
constexpr std::size_t jumbo_mulpdu_bytes = 8'900;

// Passes on what `step` adds to the capture, until there are enough packets.
void run(MadeCapture& capture, std::size_t packets,
         const std::function<void(const MadePacket&)>& write, const std::function<void()>& step) {
  constexpr std::int64_t step_ns = 1'000;
  std::int64_t time_ns = capture.front().time_ns;
  for (std::size_t count = 0; count < packets;) {
    for (MadePacket& packet : capture) {
      packet.time_ns = time_ns += step_ns;
      write(packet);
    }
    count += capture.size();
    capture.clear();
    step();
  }
}

void roce(bool large, std::size_t packets, const std::function<void(const MadePacket&)>& write) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = large ? largest_mtu_bytes : 1'024});
  talk.connect();
  const Content payload(large ? large_bytes : small_bytes, std::byte{0x5A});
  run(capture, packets, write, [&] {
    talk.write(Side::a, key, 0x1000, Bytes(payload));
    if (!large) talk.send(Side::b, Bytes(payload));
  });
}

void iwarp(bool large, std::size_t packets, const std::function<void(const MadePacket&)>& write) {
  MadeCapture capture;
  IwarpTalk talk(capture, {.mss_bytes = jumbo_mss_bytes}, {});
  talk.connect();
  Operator a(talk, Side::a, false, jumbo_mulpdu_bytes);
  Operator b(talk, Side::b, false, jumbo_mulpdu_bytes);
  run(capture, packets, write, [&] {
    a.write(key, 0x1000, large ? large_bytes : small_bytes);
    b.send(small_bytes);
  });
}

}  // namespace

void make_load(std::string_view name, std::size_t packets,
               const std::function<void(const MadePacket&)>& write) {
  const bool large = name.starts_with("large");
  if (name.ends_with("-roce")) return roce(large, packets, write);
  if (name.ends_with("-iwarp")) return iwarp(large, packets, write);
  throw std::invalid_argument("no load is called " + std::string(name));
}

}  // namespace weft::capture::test
