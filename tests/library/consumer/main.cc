// A program of somebody who has installed Weft: it uses the library, and nothing of its sources.
#include <cstdio>
#include <weft/verbs.hpp>
#include <weft/version.hpp>

int main() {
  for (const auto& device : weft::verbs::devices(weft::verbs::Backend::embedded)) {
    std::printf("%s of weft %s\n", device.name().c_str(), std::string(weft::version()).c_str());
  }
}
