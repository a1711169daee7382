// A program of somebody who has installed Weft: it uses the library, and nothing of its sources.
#include <cstdio>
#include <weft/capture.hpp>
#include <weft/stream.hpp>
#include <weft/verbs.hpp>
#include <weft/version.hpp>

int main() {
  const weft::stream::Stream stream;  // of the topmost layer
  if (stream.state() != weft::stream::State::idle) return 1;
  // A capture in memory: one packet that is none.
  weft::capture::Analysis analysis;
  analysis.add({.link_type = 1, .wire_bytes = 60});
  analysis.finish();
  if (analysis.totals().frames != 1 || analysis.packet_counts().cut_short != 1) return 1;
  // Memory of a chunk, filled by hand.
  weft::capture::Reassembly reassembly;
  auto& memory = reassembly.memory_of(0, weft::capture::Side::a);
  memory.add({.target = {.handle = 7, .length = 4, .offset = 0x1000}});
  const std::byte bytes[4] = {};
  if (memory.place(7, 0x1000, bytes).verdict != weft::capture::SegmentTable::Verdict::placed) {
    return 1;
  }
  if (!memory.find(7)->complete()) return 1;
  for (const auto& device : weft::verbs::devices(weft::verbs::Backend::embedded)) {
    std::printf("%s of weft %s\n", device.name().c_str(), std::string(weft::version()).c_str());
  }
}
