// A program of a project that has Weft as a subproject: the public headers and weft::weft.
#include <cstdio>
#include <string>
#include <weft/message.hpp>
#include <weft/stream.hpp>
#include <weft/verbs.hpp>
#include <weft/version.hpp>

int main() {
  for (const auto& device : weft::verbs::devices(weft::verbs::Backend::embedded)) {
    std::printf("%s of weft %s\n", device.name().c_str(), std::string(weft::version()).c_str());
  }
  const weft::message::EventLoop loop;
  const weft::stream::Stream stream;
  return 0;
}
