#include "base/kernel_random.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <span>
#include <utility>

#include "base/simulated_kernel.h"
#include "base/system_call.h"

namespace weft {
namespace {

// System calls go straight to the kernel: a preloaded library may replace open() and read().
// Both functions below return how many bytes they could fill.
std::size_t from_getrandom(MutableBytes out) {
  std::size_t done = 0;
  while (done < out.size()) {
    // Without flags the call blocks until the kernel's generator is initialized, once after boot.
    const long got = system_call(SYS_getrandom, out.data() + done, out.size() - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

// The device never blocks (random(4)), also before the kernel's generator is initialized.
std::size_t from_device(MutableBytes out) {
  const long fd = system_call(SYS_openat, AT_FDCWD, "/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  std::size_t done = 0;
  while (done < out.size()) {
    const long got = system_call(SYS_read, fd, out.data() + done, out.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  system_call(SYS_close, fd);
  return done;
}

using State = std::array<std::uint32_t, 16>;

void quarter_round(State& x, std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
  x[d] = std::rotl(x[d] ^ (x[a] += x[b]), 16);
  x[b] = std::rotl(x[b] ^ (x[c] += x[d]), 12);
  x[d] = std::rotl(x[d] ^ (x[a] += x[b]), 8);
  x[b] = std::rotl(x[b] ^ (x[c] += x[d]), 7);
}

// The block function of ChaCha20 (RFC 8439 §2.3).
State chacha20(const State& input) {
  State x = input;
  // These are ten pairs of a column round and a diagonal round.
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < 4; ++i) quarter_round(x, i, i + 4, i + 8, i + 12);
    for (std::size_t i = 0; i < 4; ++i) {
      quarter_round(x, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12);
    }
  }
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += input[i];
  return x;
}

// The key is AT_RANDOM, which glibc uses for its stack protector as well: ChaCha20 gives none of it
// away. Clock, process and a counter make the rest of the input new each time, because fork()
// keeps AT_RANDOM.
void from_auxiliary_vector(MutableBytes out) {
  static std::atomic<std::uint32_t> uses{0};
  // The constants, eight words of key, the counter, and three words of nonce. AT_RANDOM fills the
  // first half of the key.
  State input{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
  const unsigned long at = ::getauxval(AT_RANDOM);
  constexpr std::size_t key_bytes = 16;
  if (at != 0) std::memcpy(&input[4], reinterpret_cast<const void*>(at), key_bytes);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  input[8] = static_cast<std::uint32_t>(now.tv_sec);
  input[9] = static_cast<std::uint32_t>(now.tv_nsec);
  input[13] = static_cast<std::uint32_t>(system_call(SYS_getpid));
  input[14] = uses.fetch_add(1);
  while (!out.empty()) {
    const State block = chacha20(input);
    // The counter: each block is different.
    ++input[12];
    const auto bytes = std::as_bytes(std::span(block));
    const std::size_t count = std::min(out.size(), bytes.size());
    std::copy_n(bytes.begin(), count, out.begin());
    out = out.subspan(count);
  }
}

}  // namespace

// Each source fills what the one before it has left.
void fill_random(MutableBytes out) {
  // In a simulation they repeat with its seed.
  if (SimulatedKernel* kernel = SimulatedKernel::current()) return kernel->fill_random(out);
  out = out.subspan(from_getrandom(out));
  if (!out.empty()) out = out.subspan(from_device(out));
  if (!out.empty()) from_auxiliary_vector(out);
}

std::uint32_t random_word() {
  std::uint32_t word = 0;
  fill_random(std::as_writable_bytes(std::span(&word, 1)));
  return word;
}

std::uint32_t KernelRandom::next() {
  if (left_ == 0) {
    fill_random(std::as_writable_bytes(std::span(block_)));
    left_ = block_.size();
  }
  // What was handed out does not stay in memory.
  return std::exchange(block_[--left_], 0);
}

std::uint32_t KernelRandom::below(std::uint32_t bound) {
  // Rejects the numbers of the last, incomplete round: they would favour the small remainders.
  const std::uint32_t excess = (0U - bound) % bound;
  std::uint32_t drawn = next();
  while (drawn < excess) drawn = next();
  return drawn % bound;
}

}  // namespace weft
