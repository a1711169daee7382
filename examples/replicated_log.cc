// A test that finds a bug by trying many seeds, without sockets, threads and sleeps.
//
// A leader replicates a log of numbers to a follower by RDMA Writes. For each entry it writes the
// number into the next slot, and then the count of entries. The follower believes the count, so
// the slot must be there first, at any time: the leader may die at any time.
//
// The first version writes the slot over one connection and the count over another one, because
// "the slot is posted first". RDMA orders the requests of one queue pair only, so the count may
// arrive first, and a reader takes an empty slot for an entry. The mended version uses one
// connection for both.
//
//   replicated_log            tries 1000 seeds with each version
//   replicated_log SEED       repeats one run of the first version
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include "weft/simulation.hpp"
#include "weft/verbs.hpp"

namespace {

using namespace weft;
using namespace std::chrono_literals;

constexpr std::size_t slots = 16;
constexpr std::size_t count_at = slots;  // the place behind the last slot

// One end of a connection, with the memory that is written, or written from.
struct End {
  End(const verbs::Context& context, const verbs::TypedRegion<std::uint64_t>& memory,
      const verbs::ProtectionDomain& domain)
      : log(memory),
        queue(context.create_completion_queue(64)),
        prepared(domain.queue_pair(queue, queue)
                     .max_send_requests(2 * slots)
                     .access(verbs::Access::all)
                     .build()) {}

  void connect(const verbs::Endpoint& peer) { pair.emplace(std::move(prepared).handshake(peer)); }
  [[nodiscard]] bool write(std::size_t at, const verbs::RemoteSlice& to) const {
    constexpr std::size_t bytes = sizeof(std::uint64_t);
    return pair->post_write(log.slice(at, 1), to.slice(at * bytes, bytes), at) == 0;
  }

  const verbs::TypedRegion<std::uint64_t>& log;
  verbs::CompletionQueue queue;
  verbs::PreparedQueuePair prepared;
  std::optional<verbs::QueuePair> pair;
};

// A process with its copy of the log, and two connections to its peer.
struct Replica {
  explicit Replica(const simulation::Host& host)
      : context(host.open()),
        domain(context.create_domain()),
        log(domain.allocate<std::uint64_t>(slots + 1, verbs::Access::all)),
        entries(context, log, domain),
        counts(context, log, domain) {}

  verbs::Context context;
  verbs::ProtectionDomain domain;
  verbs::TypedRegion<std::uint64_t> log;
  End entries;
  End counts;
};

void connect(End& a, End& b) {
  const verbs::Endpoint of_a = a.prepared.endpoint();
  a.connect(b.prepared.endpoint());
  b.connect(of_a);
}

// What a reader of this copy believes must be there: entry i is the number i + 1.
bool is_whole(const Replica& follower) {
  for (std::uint64_t i = 0; i < follower.log[count_at]; ++i) {
    if (follower.log[i] != i + 1) return false;
  }
  return true;
}

// Whether the log was right in the whole run.
bool run(std::uint64_t seed, bool mended) {
  simulation::World world({.seed = seed});
  Replica leader(world.add_host());
  Replica follower(world.add_host());
  connect(leader.entries, follower.entries);
  connect(leader.counts, follower.counts);
  const verbs::RemoteSlice target = follower.log.remote();
  const End& for_counts = mended ? leader.entries : leader.counts;
  std::size_t acknowledged = 0;
  bool right = true;
  const auto look = [&] {
    std::array<verbs::Completion, 8> some;
    acknowledged += leader.entries.queue.poll(some).size();
    if (!mended) acknowledged += leader.counts.queue.poll(some).size();
    right = right && is_whole(follower);
  };
  for (std::uint64_t i = 0; i < slots && right; ++i) {
    leader.log[i] = i + 1;
    leader.log[count_at] = i + 1;
    if (!leader.entries.write(i, target) || !for_counts.write(count_at, target)) return false;
    const auto committed = [&] {
      look();
      return !right || acknowledged == 2 * (i + 1);
    };
    if (!world.run_until(committed, 10s)) return false;
  }
  return right;
}

// Returns the first seed with which the log was wrong.
std::optional<std::uint64_t> find_failure(bool mended) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    if (!run(seed, mended)) return seed;
  }
  return {};
}

int repeat(const char* digits) {
  const std::uint64_t seed = std::strtoull(digits, nullptr, 10);
  const bool right = run(seed, false);
  std::printf("seed %llu: the log is %s\n", static_cast<unsigned long long>(seed),
              right ? "right" : "wrong");
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1) return repeat(argv[1]);
  const auto found = find_failure(false);
  if (!found) {
    std::puts("two connections: 1000 seeds, no failure found");
    return 1;
  }
  std::printf("two connections: wrong with seed %llu\n", static_cast<unsigned long long>(*found));
  if (const auto again = find_failure(true)) {
    std::printf("one connection: wrong with seed %llu\n", static_cast<unsigned long long>(*again));
    return 1;
  }
  std::puts("one connection: right with 1000 seeds");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "replicated_log: %s\n", error.what());
  return 1;
}
