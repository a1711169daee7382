// A program that is linked to the shared library catches the library's exceptions by their types,
// with their data.
#include <cerrno>
#include <cstdio>
#include <future>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <weft/connection.hpp>
#include <weft/message.hpp>
#include <weft/stream.hpp>

namespace {

using namespace std::chrono_literals;

int failures = 0;

template <typename Exception, typename Work>
void expect(const char* what, const Work& work) {
  try {
    work();
    std::printf("%s: no exception\n", what);
  } catch (const Exception&) {
    return;
  } catch (const std::exception& other) {
    std::printf("%s: another exception: %s\n", what, other.what());
  }
  ++failures;
}

void reject() {
  weft::connection::Listener listener({"127.0.0.1", 0});
  auto rejected = std::async(std::launch::async, [&] {
    auto request = listener.next(30s);
    if (request) std::move(*request).reject();
  });
  try {
    (void)weft::connection::connect({"127.0.0.1", listener.port()}, 30s);
  } catch (...) {
    rejected.get();
    throw;
  }
  rejected.get();
}

}  // namespace

int main() {
  const auto unknown = [] { (void)weft::verbs::open_device("no such device"); };
  expect<weft::Error>("Error", unknown);
  expect<std::system_error>("its base", unknown);
  expect<weft::connection::Rejected>("Rejected", reject);
  expect<weft::Error>("the base of Rejected", reject);
  expect<weft::Error>("of options", [] { check(weft::stream::Options{.send_buffer_bytes = 0}); });
  expect<std::logic_error>("of an empty handle", [] {
    weft::message::EventLoop loop;
    const weft::message::EventLoop other = std::move(loop);
    loop.run();  // NOLINT(bugprone-use-after-move)
  });
  // A part of the program throws, and the library passes it on.
  expect<std::out_of_range>("through the library", [] {
    weft::message::EventLoop loop;
    loop.post([] { throw std::out_of_range("thrown by the program"); });
    loop.step(30s);
  });
  return failures;
}
