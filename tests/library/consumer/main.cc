// A program of somebody who has installed Weft: it uses the library, and nothing of its sources.
#include <cstdio>
#include <weft/stream.hpp>
#include <weft/verbs.hpp>
#include <weft/version.hpp>

int main() {
  const weft::stream::Stream stream;  // of the topmost layer
  if (stream.state() != weft::stream::State::idle) return 1;
  for (const auto& device : weft::verbs::devices(weft::verbs::Backend::embedded)) {
    std::printf("%s of weft %s\n", device.name().c_str(), std::string(weft::version()).c_str());
  }
}
