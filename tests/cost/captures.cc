// Writes a capture of one kind of traffic, for capture_cost_test.py: cost_captures KIND PACKETS
// FILE.
#include <cstdio>
#include <cstdlib>

#include "capture/made_load.h"

int main(int count, char** words) {
  using namespace weft::capture::test;
  if (count != 4) return EXIT_FAILURE;
  MadeCapture capture;
  make_load(words[1], std::strtoull(words[2], nullptr, 10),
            [&capture](const MadePacket& packet) { capture.push_back(packet); });
  const Content bytes = pcap_file(capture);
  std::FILE* const file = std::fopen(words[3], "wb");
  if (file == nullptr) return EXIT_FAILURE;
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  std::printf("%zu %zu\n", capture.size(), bytes.size());
  return std::fclose(file) == 0 && written ? EXIT_SUCCESS : EXIT_FAILURE;
}
