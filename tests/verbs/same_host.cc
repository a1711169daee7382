// One of two processes of one host, of which one works on the other's memory until something
// happens to one of them.
//
//   verbs_same_host works|serves < PEER'S_LINE_AND_COMMANDS > OUR_LINE_AND_ANSWERS
//
// `works` writes, reads, sends and adds without pause, and prints the status that ended it.
// `serves` obeys commands: "withdraw" deregisters its memory, fills it, and checks later that it
// stays as it is; "check" prints whether it did; "fork" leaves a child behind; "execute" becomes
// another program.
//
// With WEFT_TEST_MEMORY=file the memory is a sealed file, which both processes map; the worker
// writes no more at once than goes by plain stores.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

constexpr std::size_t half = 128 * 1024;  // the first is for receives, the second for the peer
constexpr std::size_t message_bytes = 64;
constexpr int receives = 64;

bool uses_file() {
  const char* wanted = std::getenv("WEFT_TEST_MEMORY");
  return wanted && std::string_view(wanted) == "file";
}

class Side {
 public:
  explicit Side(bool serves) : queue_pair_(connect(serves)) {}

  // Ends with the first completion that has failed.
  void work() {
    std::cout << "works" << std::endl;
    for (std::uint64_t round = 0;; ++round) {
      std::ranges::fill(memory_.first(message_bytes), static_cast<std::byte>(round));
      if (!post(round)) {
        std::cout << "cannot post" << std::endl;
        return;
      }
      for (int i = 0; i < 4; ++i) {
        const ibv_wc_status status = next();
        if (status == IBV_WC_SUCCESS) continue;
        std::cout << status_name(status) << std::endl;
        return;
      }
    }
  }

  void serve() {
    std::cout << "serves" << std::endl;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (true) {
      take_messages();
      if (poll(&input, 1, 1) == 0) continue;
      std::string command;
      if (!std::getline(std::cin, command)) return;
      obey(command);
    }
  }

 private:
  QueuePair connect(bool serves) {
    auto prepared = domain_.queue_pair(queue_, queue_)
                        .access(Access::all)
                        .max_send_requests(8)
                        .max_receive_requests(receives)
                        .timeout(14)
                        .rnr_retry(7)
                        .build();
    std::cout << prepared.endpoint().to_string() << ' ' << region_->remote().to_string()
              << std::endl;
    std::string line;
    std::getline(std::cin, line);
    const std::size_t space = line.find(' ');
    const auto peer = Endpoint::parse(line.substr(0, space));
    const auto memory = RemoteSlice::parse(line.substr(space + 1));
    if (!peer || !memory) throw std::runtime_error("the line is not an endpoint of a peer");
    theirs_ = *memory;
    QueuePair connected = std::move(prepared).handshake(*peer);
    for (int i = 0; serves && i < receives; ++i) post_receive(connected);
    return connected;
  }

  void post_receive(QueuePair& queue_pair) {
    if (queue_pair.post_receive(receives_.slice(0, message_bytes), 1)) {
      throw std::runtime_error("no receive");
    }
  }

  bool post(std::uint64_t round) {
    const std::size_t size = round % 3 == 0 ? half : message_bytes;
    const LocalSlice ours = region_->slice(half, size);
    const RemoteSlice there = theirs_.slice(half, size);
    const RemoteSlice word = theirs_.slice(half, sizeof(std::uint64_t));
    const LocalSlice before = region_->slice(0, sizeof(std::uint64_t));
    const int outcomes[] = {queue_pair_.post_write(ours, there, 1),
                            queue_pair_.post_send(region_->slice(0, message_bytes), 2),
                            queue_pair_.post_read(ours, there, 3),
                            queue_pair_.post_fetch_and_add(before, word, 1, 4)};
    return std::ranges::all_of(outcomes, [](int error) { return error == 0; });
  }

  ibv_wc_status next() {
    std::array<Completion, 1> one;
    const auto got = queue_.wait(one, std::chrono::seconds(60));
    if (got.empty()) throw std::runtime_error("no completion");
    return got[0].status();
  }

  void take_messages() {
    std::array<Completion, 16> some;
    for (const Completion& completion : queue_.poll(some)) {
      if (completion.ok() && completion.is_receive()) post_receive(queue_pair_);
    }
  }

  void obey(const std::string& command) {
    if (command == "withdraw") {
      region_.reset();
      std::ranges::fill(memory_, std::byte{0xA5});
    } else if (command == "check") {
      const bool same =
          std::ranges::all_of(memory_, [](std::byte byte) { return byte == std::byte{0xA5}; });
      std::cout << (same ? "unchanged" : "changed") << std::endl;
      return;
    } else if (command == "fork") {
      if (const pid_t child = fork(); child == 0) {
        for (int i = 0; i < 3; ++i) close(i);
        while (true) pause();
      } else {
        std::cout << child << std::endl;
        return;
      }
    } else if (command == "execute") {
      std::cout << "executes" << std::endl;
      execlp("cat", "cat", nullptr);
    }
    std::cout << command << std::endl;
  }

  std::span<std::byte> map() {
    if (!uses_file()) return storage_ = std::vector<std::byte>(2 * half);
    file_ = memfd_create("same-host", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void* at = MAP_FAILED;
    if (ftruncate(file_, 2 * half) == 0 && fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK) == 0) {
      at = mmap(nullptr, 2 * half, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    }
    if (at == MAP_FAILED) throw std::runtime_error("no file of memory");
    return {static_cast<std::byte*>(at), 2 * half};
  }

  // Of either kind; the addresses in requests are those of memory_.
  MemoryRegion make_region() {
    if (!uses_file()) return domain_.register_memory(memory_, Access::all);
    return domain_.register_dmabuf(file_, 0, memory_.size(),
                                   reinterpret_cast<std::uint64_t>(memory_.data()), Access::all);
  }

  int file_ = -1;
  Context context_ = open_device();
  ProtectionDomain domain_ = context_.create_domain();
  CompletionQueue queue_ = context_.create_completion_queue(2 * receives);
  std::vector<std::byte> storage_;
  std::span<std::byte> memory_ = map();
  std::vector<std::byte> messages_ = std::vector<std::byte>(message_bytes);
  std::optional<MemoryRegion> region_ = make_region();
  TypedRegion<std::byte> receives_ =
      domain_.register_memory(std::span<std::byte>(messages_), Access::all);
  RemoteSlice theirs_;
  QueuePair queue_pair_;
};

void run(std::string_view role) {
  if (role != "works" && role != "serves") throw std::runtime_error("works or serves?");
  Side side(role == "serves");
  role == "works" ? side.work() : side.serve();
}

}  // namespace
}  // namespace weft::verbs

int main(int count, char** arguments) {
  try {
    weft::verbs::run(count == 2 ? arguments[1] : "");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs_same_host: %s\n", error.what());
    return 1;
  }
}
