// The thread of this process that waits at the sockets on which it listens.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "interpose/descriptor.h"

namespace weft::interpose {

class Listening;

// Thread-safe. After fork(2) the child has its own, if it listens itself.
class Greeter {
 public:
  static Greeter& instance();

  // From now on told of who connects, once for each call of watch().
  [[nodiscard]] std::uint64_t add(int kernel, std::weak_ptr<Listening> listening);
  void watch(int kernel, std::uint64_t cookie);
  // While the kernel still has the socket.
  void remove(int kernel, std::uint64_t cookie);
  [[nodiscard]] std::vector<std::shared_ptr<Listening>> all();

 private:
  Greeter();
  void run();
  [[nodiscard]] std::shared_ptr<Listening> find(std::uint64_t cookie);

  const Descriptor epoll_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, std::weak_ptr<Listening>> known_;
};

// Of this process; none where it never listened.
[[nodiscard]] std::vector<std::shared_ptr<Listening>> all_listening();

}  // namespace weft::interpose
