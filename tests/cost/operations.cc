// The main paths of the device, for cost_test.py, which counts the instructions and system calls of
// each operation under valgrind. Two queue pairs of one process, connected to each other, are
// driven by one thread, so that the counts hardly depend on the machine.
#include <infiniband/verbs.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "weft/verbs.hpp"

namespace {

using namespace weft::verbs;  // NOLINT(google-build-using-namespace)

constexpr std::size_t region_bytes = 1 << 20;
constexpr std::size_t list_length = 32;

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

struct End {
  explicit End(const Context& context)
      : domain(context.create_domain()),
        queue(context.create_completion_queue(256)),
        region(domain.allocate<std::byte>(region_bytes, Access::all)),
        prepared(domain.queue_pair(queue, queue)
                     .max_send_requests(2 * list_length)
                     .max_receive_requests(2 * list_length)
                     .max_rd_atomic(16)
                     .max_dest_rd_atomic(16)
                     .access(Access::all)
                     .build()) {}

  void connect(const Endpoint& peer) { queue_pair.emplace(std::move(*prepared).handshake(peer)); }
  // Returns the number of completions that are there now, which must be successful.
  std::size_t poll() const {
    std::array<Completion, list_length> done;
    const auto got = queue.poll(done);
    for (const Completion& one : got) require(one.ok(), "a request has failed");
    return got.size();
  }

  // Polls until a message is here. Completions of this side's own Sends come in between.
  void await_message() const {
    for (bool here = false; !here;) {
      std::array<Completion, list_length> done;
      for (const Completion& one : queue.poll(done)) {
        require(one.ok(), "a request has failed");
        here |= one.is_receive();
      }
    }
  }

  ProtectionDomain domain;
  CompletionQueue queue;
  TypedRegion<std::byte> region;
  std::optional<PreparedQueuePair> prepared;
  std::optional<QueuePair> queue_pair;
};

struct Pair {
  Pair() : context(open_device()), a(context), b(context) {
    const Endpoint of_a = a.prepared->endpoint();
    const Endpoint of_b = b.prepared->endpoint();
    a.connect(of_b);
    b.connect(of_a);
  }
  // Polls both sides until each has had its completions. A side that expects none is polled as
  // well, because it is what drives that side.
  void await(std::size_t of_a, std::size_t of_b) const {
    while (of_a > 0 || of_b > 0) {
      of_b -= b.poll();
      of_a -= a.poll();
    }
  }

  Context context;
  End a;
  End b;
};

// --- The operations ------------------------------------------------------------------------------

void send(const Pair& pair, std::size_t bytes) {
  require(pair.b.queue_pair->post_receive(pair.b.region.slice(0, bytes), 1) == 0, "post_receive");
  require(pair.a.queue_pair->post_send(pair.a.region.slice(0, bytes), 2) == 0, "post_send");
  pair.await(1, 1);
}

// One list of sends, of which the last one is signaled; the figures are those of the list.
void send_list(const Pair& pair) {
  std::array<ibv_send_wr, list_length> requests{};
  ibv_sge piece = pair.a.region.slice(0, 8).raw();
  for (std::size_t i = 0; i < list_length; ++i) {
    requests[i].opcode = IBV_WR_SEND;
    requests[i].sg_list = &piece;
    requests[i].num_sge = 1;
    requests[i].next = i + 1 < list_length ? &requests[i + 1] : nullptr;
    require(pair.b.queue_pair->post_receive(pair.b.region.slice(0, 8), 1) == 0, "post_receive");
  }
  requests.back().send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  require(ibv_post_send(pair.a.queue_pair->raw(), requests.data(), &bad) == 0, "ibv_post_send");
  pair.await(1, list_length);
}

void write(const Pair& pair, std::size_t bytes) {
  require(
      pair.a.queue_pair->post_write(pair.a.region.slice(0, bytes), pair.b.region.remote(), 1) == 0,
      "post_write");
  pair.await(1, 0);
}

// As programs post that know no lists: one call for each. The first poll is that of a program which
// polls all the time, so that requests may leave together. The last one is signaled.
void write_one_by_one(const Pair& pair) {
  (void)pair.a.poll();
  for (std::size_t i = 1; i <= list_length; ++i) {
    const auto from = pair.a.region.slice(0, 8);
    const bool last = i == list_length;
    const SendFlags flags = last ? SendFlags::signaled : SendFlags::none;
    require(pair.a.queue_pair->post_write(from, pair.b.region.remote(), i, flags) == 0,
            "post_write");
  }
  pair.await(1, 0);
}

void read(const Pair& pair, std::size_t bytes) {
  const RemoteSlice from = pair.b.region.remote().slice(0, bytes);
  require(pair.a.queue_pair->post_read(pair.a.region.slice(0, bytes), from, 1) == 0, "post_read");
  pair.await(1, 0);
}

// A message to the other side and its answer, as programs measure half round trips: neither side
// waits for the completion of its own Send, which comes with or behind the next message.
void send_and_answer(const Pair& pair, std::size_t bytes) {
  const auto one_way = [bytes](const End& from, const End& to) {
    require(to.queue_pair->post_receive(to.region.slice(0, bytes), 1) == 0, "post_receive");
    require(from.queue_pair->post_send(from.region.slice(0, bytes), 2) == 0, "post_send");
    to.await_message();
  };
  one_way(pair.a, pair.b);
  one_way(pair.b, pair.a);
}

// --- The calls of a half round trip, one by one -------------------------------------------------

enum class Call { post_receive, post_send, poll_message, poll_sent };

// Runs what comes in between with or without being counted.
template <typename Function>
void count_if(bool counted, Function function) {
  if (counted) CALLGRIND_TOGGLE_COLLECT;
  function();
  if (counted) CALLGRIND_TOGGLE_COLLECT;
}

// A message of 64 B. Of its instructions only those of one call are counted.
void one_call(const Pair& pair, Call call) {
  CALLGRIND_TOGGLE_COLLECT;
  count_if(call == Call::post_receive, [&] {
    require(pair.b.queue_pair->post_receive(pair.b.region.slice(0, 64), 1) == 0, "post_receive");
  });
  count_if(call == Call::post_send, [&] {
    require(pair.a.queue_pair->post_send(pair.a.region.slice(0, 64), 2) == 0, "post_send");
  });
  // Over TCP a side may have to be driven again until its completion is there.
  count_if(call == Call::poll_message, [&] {
    while (pair.b.poll() == 0) continue;
  });
  count_if(call == Call::poll_sent, [&] {
    while (pair.a.poll() == 0) (void)pair.b.poll();
  });
  CALLGRIND_TOGGLE_COLLECT;
}

struct Operation {
  const char* name;
  std::function<void(const Pair&)> run;
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all{
      {"send of 64 B", [](const Pair& pair) { send(pair, 64); }},
      {"send of 4 KiB", [](const Pair& pair) { send(pair, 4096); }},
      {"send of 64 KiB", [](const Pair& pair) { send(pair, 65536); }},
      {"list of 32 sends of 8 B", send_list},
      {"write of 64 B", [](const Pair& pair) { write(pair, 64); }},
      {"32 writes of 8 B, one post each", write_one_by_one},
      {"write of 64 KiB", [](const Pair& pair) { write(pair, 65536); }},
      {"read of 64 B", [](const Pair& pair) { read(pair, 64); }},
      {"read of 64 KiB", [](const Pair& pair) { read(pair, 65536); }},
      {"poll of an empty queue", [](const Pair& pair) { (void)pair.a.poll(); }},
      {"post of a receive", [](const Pair& pair) { one_call(pair, Call::post_receive); }},
      {"post of a send of 64 B", [](const Pair& pair) { one_call(pair, Call::post_send); }},
      {"poll that finds a message", [](const Pair& pair) { one_call(pair, Call::poll_message); }},
      {"poll that finds a send", [](const Pair& pair) { one_call(pair, Call::poll_sent); }},
      // The last one, because completions are left over.
      {"send of 64 B and its answer", [](const Pair& pair) { send_and_answer(pair, 64); }},
  };
  return all;
}

// getpgid() of a number that no process group has marks the beginning and the end of the operations
// in a trace of the system calls.
constexpr pid_t first_mark = 0x3FFF0000;

void measure(const Pair& pair, std::size_t index, int count) {
  const Operation& operation = operations()[index];
  for (int i = 0; i < count; ++i) operation.run(pair);
  const auto mark = first_mark + 2 * static_cast<pid_t>(index);
  (void)::getpgid(mark);
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < count; ++i) operation.run(pair);
  CALLGRIND_DUMP_STATS_AT(operation.name);
  (void)::getpgid(mark + 1);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    require(argc == 2, "usage: operations COUNT");
    const int count = std::atoi(argv[1]);
    const Pair pair;
    for (std::size_t i = 0; i < operations().size(); ++i) {
      std::printf("%s\n", operations()[i].name);
      measure(pair, i, count);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "operations: %s\n", error.what());
    return 1;
  }
}
