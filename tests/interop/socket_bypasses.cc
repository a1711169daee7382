// Moves bytes of TCP connections by interfaces that call neither read(2) nor recv(2) nor the like:
// io_uring, POSIX AIO and the AIO of the kernel. Prints what was received. The kernel's sockets and
// streams under `weft run --sockets` must print the same. The argument names the interface.
#include <aio.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <functional>
#include <map>

#include "interop/socket_calls.h"
#ifdef WITH_LIBURING
#include <liburing.h>
#endif

namespace {

using Text = std::array<char, 64>;

// A system call as the C library makes it, or as a program makes it that does without.
using SystemCall = long (*)(long, long, long, long, long, long, long);

// -1 with errno, as syscall(2).
long call_inline(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
#else
  return syscall(number, a, b, c, d, e, f);
#endif
}

long call_library(long number, long a, long b, long c, long d, long e, long f) {
  return syscall(number, a, b, c, d, e, f);
}

// One request at a time on an io_uring.
class Ring {
 public:
  explicit Ring(SystemCall call) : call_(call) {
    fd_ = static_cast<int>(
        call(SYS_io_uring_setup, 4, reinterpret_cast<long>(&parameters_), 0, 0, 0, 0));
    if (fd_ < 0) return;
    constexpr std::size_t bytes = 16384;
    const auto map = [&](off_t at) {
      void* const found =
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, at);
      need(found != MAP_FAILED, "mmap");
      return static_cast<std::byte*>(found);
    };
    submissions_ = map(IORING_OFF_SQ_RING);
    completions_ = map(IORING_OFF_CQ_RING);
    entries_ = reinterpret_cast<io_uring_sqe*>(map(IORING_OFF_SQES));
  }
  bool usable() const { return fd_ >= 0; }

  // The result of the request: a negative errno value if it has failed.
  int run(std::uint8_t operation, int fd, void* bytes, std::size_t count) {
    auto& tail = word(submissions_, parameters_.sq_off.tail);
    const unsigned index = tail & word(submissions_, parameters_.sq_off.ring_mask);
    entries_[index] = {};
    entries_[index].opcode = operation;
    entries_[index].fd = fd;
    entries_[index].addr = reinterpret_cast<std::uint64_t>(bytes);
    entries_[index].len = static_cast<unsigned>(count);
    (&word(submissions_, parameters_.sq_off.array))[index] = index;
    std::atomic_ref(tail).fetch_add(1);
    need(call_(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1, "io_uring_enter");
    auto& head = word(completions_, parameters_.cq_off.head);
    auto* const all = reinterpret_cast<io_uring_cqe*>(completions_ + parameters_.cq_off.cqes);
    const int result = all[head & word(completions_, parameters_.cq_off.ring_mask)].res;
    std::atomic_ref(head).fetch_add(1);
    return result;
  }

 private:
  static unsigned& word(std::byte* base, std::size_t at) {
    return *reinterpret_cast<unsigned*>(base + at);
  }

  SystemCall call_;
  io_uring_params parameters_{};
  int fd_ = -1;
  std::byte* submissions_ = nullptr;
  std::byte* completions_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
};

std::string text_of(long got, const Text& text) {
  return got < 0 ? strerrorname_np(static_cast<int>(-got))
                 : std::string(text.data(), static_cast<std::size_t>(got));
}

// Programs that find no io_uring use the calls for sockets.
void use_ring(Ring& ring, int here, int there) {
  Text text{};
  say(here, "to the ring");
  if (!ring.usable()) await(there, POLLIN);  // it may not block
  const long got = ring.usable() ? ring.run(IORING_OP_RECV, there, text.data(), text.size())
                                 : recv(there, text.data(), text.size(), 0);
  tell("received by the ring", text_of(got, text));
  char answer[] = "from the ring";
  const long sent = ring.usable() ? ring.run(IORING_OP_SEND, there, answer, sizeof answer - 1)
                                  : send(there, answer, sizeof answer - 1, 0);
  tell("sent by the ring", sent);
  tell("received from the ring", receive_text(here));
}

// The ring has the end that was accepted, the one that has connected, and one whose connect(2) has
// not waited.
void use_ring(SystemCall call) {
  Ring ring(call);
  const Pair pair;
  use_ring(ring, pair.here, pair.there);
  use_ring(ring, pair.there, pair.here);
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  const int here = connect_to(address, SOCK_NONBLOCK);
  await(here, POLLOUT);
  const int there = accept(listener, nullptr, nullptr);
  use_ring(ring, there, here);
  for (const int fd : {listener, here, there}) close(fd);
}

void use_ring_by_library() {
  use_ring(call_library);
}

void use_inline_ring() {
  use_ring(call_inline);
}

#ifdef WITH_LIBURING
int run_by_liburing(io_uring& ring, const std::function<void(io_uring_sqe*)>& prepare) {
  prepare(io_uring_get_sqe(&ring));
  need(io_uring_submit(&ring) == 1, "io_uring_submit");
  io_uring_cqe* done = nullptr;
  need(io_uring_wait_cqe(&ring, &done) == 0, "io_uring_wait_cqe");
  const int result = done->res;
  io_uring_cqe_seen(&ring, done);
  return result;
}

void use_liburing() {
  const Pair pair;
  io_uring ring{};
  Text text{};
  say(pair.here, "to liburing");
  const bool usable = io_uring_queue_init(4, &ring, 0) == 0;
  const long got =
      usable ? run_by_liburing(ring,
                               [&](io_uring_sqe* entry) {
                                 io_uring_prep_recv(entry, pair.there, text.data(), text.size(), 0);
                               })
             : recv(pair.there, text.data(), text.size(), 0);
  tell("received by liburing", text_of(got, text));
  io_uring_probe* const probe = io_uring_get_probe();
  if (usable) need(probe != nullptr, "io_uring_get_probe");
  if (!usable) need(probe == nullptr, "a probe without a ring");
}
#else
void use_liburing() {
  std::puts("built without liburing");
}
#endif

aiocb control_of(int fd, void* bytes, std::size_t count, int operation = 0) {
  aiocb control{};
  control.aio_fildes = fd;
  control.aio_buf = bytes;
  control.aio_nbytes = count;
  control.aio_lio_opcode = operation;
  return control;
}

long result_of(aiocb& control) {
  const aiocb* const list[] = {&control};
  while (aio_error(&control) == EINPROGRESS) aio_suspend(list, 1, nullptr);
  const int error = aio_error(&control);
  return error != 0 ? -error : aio_return(&control);
}

void use_posix_aio() {
  const Pair pair;
  Text text{};
  aiocb in = control_of(pair.there, text.data(), text.size());
  need(aio_read(&in) == 0, "aio_read");
  say(pair.here, "to aio_read");
  tell("received by aio_read", text_of(result_of(in), text));
  char answer[] = "from aio_write";
  aiocb out = control_of(pair.there, answer, sizeof answer - 1);
  need(aio_write(&out) == 0, "aio_write");
  tell("sent by aio_write", result_of(out));
  tell("received from aio_write", receive_text(pair.here));
  const Pair other;
  say(other.here, "to lio_listio");
  aiocb first = control_of(other.there, text.data(), text.size(), LIO_READ);
  aiocb second = control_of(other.there, answer, sizeof answer - 1, LIO_WRITE);
  aiocb* const list[] = {&first, nullptr, &second};
  need(lio_listio(LIO_WAIT, list, 3, nullptr) == 0, "lio_listio");
  tell("received by lio_listio", text_of(result_of(first), text));
  tell("received from lio_listio", receive_text(other.here));
}

// Where Debian's seccomp profiles refuse io_setup(2), there is nothing to compare.
void use_kernel_aio() {
  aio_context_t context = 0;
  if (syscall(SYS_io_setup, 4, &context) != 0) return;
  const Pair pair;
  Text text{};
  iocb in{};
  in.aio_lio_opcode = IOCB_CMD_PREAD;
  in.aio_fildes = static_cast<unsigned>(pair.there);
  in.aio_buf = reinterpret_cast<std::uint64_t>(text.data());
  in.aio_nbytes = text.size();
  iocb* list[] = {&in};
  say(pair.here, "to io_submit");
  tell("submitted", syscall(SYS_io_submit, context, 1, list));
  io_event event{};
  tell("completed", syscall(SYS_io_getevents, context, 1, 1, &event, nullptr));
  tell("received by io_submit", text_of(event.res, text));
}

}  // namespace

int main(int count, char** arguments) {
  const std::map<std::string, void (*)()> known = {{"syscall", use_ring_by_library},
                                                   {"inline", use_inline_ring},
                                                   {"liburing", use_liburing},
                                                   {"aio", use_posix_aio},
                                                   {"kernel-aio", use_kernel_aio}};
  const auto found = count > 1 ? known.find(arguments[1]) : known.end();
  need(found != known.end(), "which interface?");
  found->second();
  std::puts("all done");
}
