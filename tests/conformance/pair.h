// Two connected queue pairs of one device, made with libibverbs. The device is that of
// WEFT_TEST_DEVICE, or the first one; the GID index is WEFT_TEST_GID, or 0.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace conformance {

// Skips the test, with the reason, if the device lacks a feature. The embedded device has all
// features that these tests use, so there it is a failure.
#define NEEDS(what)                                             \
  if (!(what)) {                                                \
    if (embedded()) FAIL() << #what << ": " << strerror(errno); \
    GTEST_SKIP() << "the device does not have " #what;          \
  }

[[nodiscard]] bool embedded();

constexpr unsigned all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct Buffer {
  Buffer(ibv_pd* pd, std::size_t bytes, unsigned access = all_access);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::uint64_t address() const {
    return reinterpret_cast<std::uintptr_t>(bytes.data());
  }
  [[nodiscard]] ibv_sge slice(std::size_t offset, std::uint32_t length) const {
    return {address() + offset, length, mr->lkey};
  }

  std::vector<std::uint8_t> bytes;
  ibv_mr* mr;
};

struct End {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;

  int post(ibv_send_wr request, std::vector<ibv_sge> slices);
  int post_receive(std::vector<ibv_sge> slices);
  // Returns the next completion; fails the test after ten seconds.
  ibv_wc await();
  [[nodiscard]] bool quiet();
  [[nodiscard]] ibv_qp_ex* batch() { return ibv_qp_to_qp_ex(qp); }
};

class Pair : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Connects the queue pairs; without batches if `operations` (IBV_QP_EX_WITH_*) is 0. False with
  // errno set.
  bool connect(std::uint64_t operations = 0, ibv_qp_type type = IBV_QPT_RC);
  // Connects one more pair with the same completion queues as the first.
  bool connect(End& left, End& right, std::uint64_t operations, ibv_qp_type type);

  [[nodiscard]] static ibv_send_wr write_to(std::uint64_t address, std::uint32_t rkey);

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  End a_;
  End b_;

 private:
  bool make(End& end, std::uint64_t operations, ibv_qp_type type);
  bool to_rts(End& end, const End& peer, ibv_qp_type type);

  int gid_index_ = 0;
  std::vector<End> ends_;
};

}  // namespace conformance
