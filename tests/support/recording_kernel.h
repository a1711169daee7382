// A kernel whose random words a test can see. Threads that have entered it get nothing else of it:
// it has no sockets and no programs.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "base/simulated_kernel.h"

namespace weft::test {

class RecordingKernel final : public SimulatedKernel {
 public:
  // The words of 32 bits that fill_random() has given and that take() has not taken.
  [[nodiscard]] std::size_t left() const { return words_.size(); }
  // Whether a word was given that has these values under `mask`. Each is taken once.
  [[nodiscard]] bool take(std::uint32_t value, std::uint32_t mask) {
    const auto found = std::ranges::find_if(
        words_, [=](std::uint32_t word) { return (word & mask) == (value & mask); });
    if (found == words_.end()) return false;
    words_.erase(found);
    return true;
  }

  void fill_random(MutableBytes out) override {
    while (!out.empty()) {
      const auto word = static_cast<std::uint32_t>(generator_());
      const auto bytes = std::as_bytes(std::span(&word, 1));
      const std::size_t count = std::min(out.size(), bytes.size());
      std::copy_n(bytes.begin(), count, out.begin());
      out = out.subspan(count);
      words_.insert(word);
    }
  }

  [[nodiscard]] std::uint64_t now_ns() const override { return 0; }
  [[nodiscard]] std::vector<sockaddr_storage> addresses() const override { return {}; }
  int socket(int, int) override { return -ENOSYS; }
  int bind(int, const sockaddr*) override { return -ENOSYS; }
  int listen(int, int) override { return -ENOSYS; }
  int accept(int, sockaddr_storage*) override { return -ENOSYS; }
  int connect(int, const sockaddr*) override { return -ENOSYS; }
  int shutdown(int, int) override { return -ENOSYS; }
  int close(int) override { return -ENOSYS; }
  int set_option(int, int, int, const void*, socklen_t) override { return -ENOSYS; }
  int get_option(int, int, int, void*, socklen_t*) override { return -ENOSYS; }
  int local_address(int, sockaddr_storage*) override { return -ENOSYS; }
  int peer_address(int, sockaddr_storage*) override { return -ENOSYS; }
  std::ptrdiff_t send(int, std::span<const iovec>) override { return -ENOSYS; }
  std::ptrdiff_t receive(int, std::span<const iovec>) override { return -ENOSYS; }
  std::ptrdiff_t send_message(int, const msghdr&) override { return -ENOSYS; }
  std::ptrdiff_t receive_message(int, msghdr&) override { return -ENOSYS; }
  bool peer_closed(int) override { return true; }
  [[nodiscard]] std::size_t add(Watcher&) override { return 0; }
  void remove(std::size_t) override {}
  int watch(std::size_t, int, std::uint32_t, std::uint64_t) override { return -ENOSYS; }
  int change(int, std::uint32_t) override { return -ENOSYS; }
  void unwatch(int) override {}
  void set_deadline(std::size_t, std::uint64_t) override {}
  void polled() override {}
  void looked() override {}
  [[nodiscard]] int poll(std::span<pollfd>, std::optional<std::uint64_t>) override {
    return -ENOSYS;
  }
  void start(const std::shared_ptr<SimulatedTimer>&) override {}
  [[nodiscard]] std::shared_ptr<void>* kept(Keeper) override { return nullptr; }
  void start_thread(std::function<void()>) override {}
  void end_if_killed() override {}

 private:
  std::mt19937_64 generator_{std::random_device{}()};
  std::multiset<std::uint32_t> words_;
};

}  // namespace weft::test
