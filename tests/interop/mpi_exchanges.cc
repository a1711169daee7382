// Two or more ranks of MPI exchange messages of many sizes, in collectives and by one-sided access,
// and compare every byte. Built for each MPI of the system; uses the C interface only.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace {

int rank_of_this = 0;
int ranks = 0;

void must(bool holds, const char* what, long detail = 0) {
  if (holds) return;
  std::fprintf(stderr, "rank %d: wrong data: %s (%ld)\n", rank_of_this, what, detail);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

unsigned char expected_byte(std::size_t index, int from, std::size_t bytes) {
  return static_cast<unsigned char>(index * 7 + static_cast<std::size_t>(from) * 31 + bytes);
}

std::vector<unsigned char> pattern(std::size_t bytes, int from) {
  std::vector<unsigned char> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = expected_byte(i, from, bytes);
  return data;
}

// In a ring: each rank sends to the next one and receives from the one before.
void messages_of_all_sizes() {
  const int next = (rank_of_this + 1) % ranks;
  const int before = (rank_of_this + ranks - 1) % ranks;
  for (std::size_t bytes = 0; bytes <= (std::size_t{4} << 20); bytes = bytes * 3 + 1) {
    const auto sent = pattern(bytes, rank_of_this);
    std::vector<unsigned char> received(bytes);
    const int count = static_cast<int>(bytes);
    MPI_Sendrecv(sent.data(), count, MPI_BYTE, next, 1, received.data(), count, MPI_BYTE, before, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    must(received == pattern(bytes, before), "a message in the ring", count);
  }
}

void many_messages_under_way() {
  constexpr int messages = 64;
  constexpr int bytes = 20'000;
  const int next = (rank_of_this + 1) % ranks;
  const int before = (rank_of_this + ranks - 1) % ranks;
  std::vector<std::vector<unsigned char>> received(messages);
  const auto sent = pattern(bytes, rank_of_this);
  std::vector<MPI_Request> requests;
  for (int i = 0; i < messages; ++i) {
    received[static_cast<std::size_t>(i)].resize(bytes);
    requests.emplace_back();
    MPI_Irecv(received[static_cast<std::size_t>(i)].data(), bytes - i, MPI_BYTE, before, i,
              MPI_COMM_WORLD, &requests.back());
  }
  for (int i = 0; i < messages; ++i) {
    requests.emplace_back();
    MPI_Isend(sent.data() + i, bytes - i, MPI_BYTE, next, i, MPI_COMM_WORLD, &requests.back());
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  const auto source = pattern(bytes, before);
  for (std::size_t i = 0; i < messages; ++i) {
    for (std::size_t at = 0; at + i < bytes; ++at) {
      must(received[i][at] == source[at + i], "one of many messages", static_cast<long>(i));
    }
  }
}

void collectives() {
  constexpr int count = 5000;
  std::vector<std::int64_t> mine(count);
  std::vector<std::int64_t> sums(count);
  std::iota(mine.begin(), mine.end(), rank_of_this);
  MPI_Allreduce(mine.data(), sums.data(), count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < count; ++i) {
    const std::int64_t sum = std::int64_t{i} * ranks + std::int64_t{ranks} * (ranks - 1) / 2;
    must(sums[static_cast<std::size_t>(i)] == sum, "a sum", i);
  }
  const auto all = static_cast<std::size_t>(count) * static_cast<std::size_t>(ranks);
  std::vector<double> to(all);
  std::vector<double> from(all);
  for (std::size_t i = 0; i < all; ++i) to[i] = rank_of_this * 1e6 + static_cast<double>(i);
  MPI_Alltoall(to.data(), count, MPI_DOUBLE, from.data(), count, MPI_DOUBLE, MPI_COMM_WORLD);
  for (int source = 0; source < ranks; ++source) {
    for (int i = 0; i < count; ++i) {
      const double value = source * 1e6 + rank_of_this * count + i;
      must(from[static_cast<std::size_t>(source * count + i)] == value, "a part of all", i);
    }
  }
  std::vector<float> shared(count, rank_of_this == 0 ? 2.5F : 0.0F);
  MPI_Bcast(shared.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  must(shared.front() == 2.5F && shared.back() == 2.5F, "a broadcast");
}

void one_sided() {
  constexpr int count = 30'000;
  const int next = (rank_of_this + 1) % ranks;
  std::int64_t* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate((count + 2) * sizeof(std::int64_t), sizeof(std::int64_t), MPI_INFO_NULL,
                   MPI_COMM_WORLD, &memory, &window);
  for (int i = 0; i < count + 2; ++i) memory[i] = 0;
  MPI_Win_fence(0, window);
  std::vector<std::int64_t> values(count);
  std::iota(values.begin(), values.end(), rank_of_this * 100'000);
  MPI_Put(values.data(), count, MPI_INT64_T, next, 0, count, MPI_INT64_T, window);
  MPI_Win_fence(0, window);
  std::vector<std::int64_t> back(count);
  MPI_Get(back.data(), count, MPI_INT64_T, next, 0, count, MPI_INT64_T, window);
  MPI_Win_fence(0, window);
  must(back == values, "what was put and got");

  MPI_Win_lock_all(0, window);
  const std::int64_t one = 1;
  for (int i = 0; i < 100; ++i) {
    std::int64_t old = -1;
    MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, count, MPI_SUM, window);
    MPI_Accumulate(&one, 1, MPI_INT64_T, 0, count + 1, 1, MPI_INT64_T, MPI_SUM, window);
    MPI_Win_flush(0, window);
    must(old >= 0 && old < 100 * ranks, "a fetched counter", old);
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  std::int64_t counters[2] = {};
  MPI_Get(counters, 2, MPI_INT64_T, 0, count, 2, MPI_INT64_T, window);
  MPI_Win_unlock(0, window);
  must(counters[0] == 100 * ranks, "the counter of fetches", counters[0]);
  must(counters[1] == 100 * ranks, "the counter of accumulations", counters[1]);
  MPI_Win_free(&window);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_this);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  messages_of_all_sizes();
  many_messages_under_way();
  collectives();
  one_sided();
  MPI_Barrier(MPI_COMM_WORLD);
  std::printf("rank %d of %d: all data is right\n", rank_of_this, ranks);
  MPI_Finalize();
  return 0;
}
