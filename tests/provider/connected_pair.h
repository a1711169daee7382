// Connects two queue pairs of this process with rdma_cm over loopback, through the table.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "provider/embedded.h"

namespace weft::provider::testing {

// One end: its id, queues and a registered buffer.
struct End {
  rdma_cm_id* id = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::array<char, 4096> buffer{};

  [[nodiscard]] ibv_sge slice(std::uint32_t bytes) {
    return {reinterpret_cast<std::uintptr_t>(buffer.data()), bytes, mr->lkey};
  }
  int post_receive(ibv_srq* srq = nullptr);
  int post_send();
  // Waits for one completion by its event.
  ibv_wc await_completion();
};

class ConnectedPair : public ::testing::Test {
 protected:
  // Creates the queue pairs; `srq_size` > 0: the passive side receives from a shared queue of that
  // size.
  void connect(std::uint32_t srq_size = 0);
  // Destroys everything, in the order that a program would use; nothing is in use at the end.
  void destroy();
  void TearDown() override { destroy(); }

  const Table& table_ = embedded();
  // Set before connect(): completion queues are made with ibv_create_cq_ex() and these attributes.
  ibv_cq_init_attr_ex* extended_ = nullptr;
  End active_;
  End passive_;
  ibv_srq* srq_ = nullptr;

 private:
  void make_queues(End& end, ibv_srq* srq);
  rdma_cm_id* expect(rdma_cm_event_type wanted);

  rdma_event_channel* events_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
};

}  // namespace weft::provider::testing
