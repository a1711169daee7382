// Memory windows: access to parts of regions, granted to a peer and revoked again.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <optional>

#include "support/needs.h"
#include "verbs/pair.h"

namespace weft::verbs::testing {
namespace {

constexpr std::size_t offset = 16;
constexpr std::size_t bytes = 32;

class Window : public ::testing::Test {
 protected:
  void SetUp() override { WEFT_NEEDS(b.domain.allocate_window(IBV_MW_TYPE_2)); }
  void prepare(ibv_mw_type type) {
    window.emplace(b.domain.allocate_window(type));
    a.region[0] = 7;
  }
  // Binds on queue pair b and returns the status.
  ibv_wc_status bind(Access access = Access::remote_read_write) {
    EXPECT_EQ(b.queue_pair.post_bind(*window, {memory, offset, bytes, access}, 1), 0);
    return b.await().status();
  }
  ibv_wc_status write(const RemoteSlice& to, const QueuePair& from) {
    EXPECT_EQ(from.post_write(a.region.slice(0, 8), to, 2), 0);
    return a.await().status();
  }
  ibv_wc_status write(const RemoteSlice& to) { return write(to, a.queue_pair); }

  Pair pair;
  End& a = *pair.a;
  End& b = *pair.b;
  TypedRegion<std::uint8_t> memory =
      b.domain.allocate<std::uint8_t>(64, Access::local | Access::bindable);
  std::optional<MemoryWindow> window;
};

class AnyWindow : public Window, public ::testing::WithParamInterface<ibv_mw_type> {
 protected:
  void SetUp() override {
    Window::SetUp();
    if (!IsSkipped()) prepare(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(, AnyWindow, ::testing::Values(IBV_MW_TYPE_1, IBV_MW_TYPE_2),
                         [](const auto& kind) {
                           return kind.param == IBV_MW_TYPE_1 ? "OfType1" : "OfType2";
                         });

TEST_P(AnyWindow, OpensAPartOfARegion) {
  EXPECT_EQ(window->remote().size_bytes(), 0U);
  ASSERT_EQ(b.queue_pair.post_bind(*window, {memory, offset, bytes}, 5), 0);
  const Completion bound = b.await();
  EXPECT_EQ(bound.opcode(), IBV_WC_BIND_MW);
  EXPECT_EQ(bound.id(), 5U);
  EXPECT_EQ(window->remote().address(), memory.remote().address() + offset);
  EXPECT_EQ(window->remote().size_bytes(), bytes);
  EXPECT_NE(window->remote().rkey(), memory.rkey());
  EXPECT_EQ(write(window->remote()), IBV_WC_SUCCESS);
  EXPECT_EQ(memory[offset], 7);
  const RemoteSlice before(window->remote().address() - 8, 8, window->remote().rkey());
  EXPECT_EQ(write(before), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(memory[offset - 8], 0);
}

TEST_P(AnyWindow, GrantsOnlyWhatTheBindSays) {
  ASSERT_EQ(bind(Access::remote_read), IBV_WC_SUCCESS);
  EXPECT_EQ(write(window->remote()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(memory[offset], 0);
}

TEST_P(AnyWindow, ClosesWhenItIsUnbound) {
  ASSERT_EQ(bind(), IBV_WC_SUCCESS);
  const RemoteSlice open = window->remote();
  ASSERT_EQ(b.queue_pair.post_unbind(*window, 3), 0);
  EXPECT_TRUE(b.await().ok());
  EXPECT_EQ(window->remote().size_bytes(), 0U);
  EXPECT_EQ(write(open), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(memory[offset], 0);
}

// The bind that unbinds it names the region, and there is none yet.
TEST_F(Window, OfTypeOneCannotBeUnboundBeforeItWasBound) {
  prepare(IBV_MW_TYPE_1);
  EXPECT_EQ(b.queue_pair.post_unbind(*window, 3), EINVAL);
}

TEST_P(AnyWindow, LosesItsOldKeyWhenItIsBoundAgain) {
  ASSERT_EQ(bind(), IBV_WC_SUCCESS);
  const RemoteSlice old = window->remote();
  ASSERT_EQ(b.queue_pair.post_unbind(*window, 3), 0);
  ASSERT_TRUE(b.await().ok());
  ASSERT_EQ(bind(), IBV_WC_SUCCESS);
  EXPECT_NE(window->remote().rkey(), old.rkey());
  EXPECT_EQ(write(window->remote()), IBV_WC_SUCCESS);
  EXPECT_EQ(write(old), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(AnyWindow, ClosesWhenItIsDestroyed) {
  ASSERT_EQ(bind(), IBV_WC_SUCCESS);
  const RemoteSlice open = window->remote();
  window.reset();
  EXPECT_EQ(write(open), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(AnyWindow, KeepsTheRegionThatItIsBoundTo) {
  ASSERT_EQ(bind(), IBV_WC_SUCCESS);
  const std::uint8_t* first = memory.elements().data();
  { const auto gone = std::move(memory); }
  EXPECT_EQ(write(window->remote()), IBV_WC_SUCCESS);
  EXPECT_EQ(first[offset], 7);
}

TEST_P(AnyWindow, IsNotBoundToWhatForbidsItOrIsNotThere) {
  EXPECT_EQ(b.queue_pair.post_bind(*window, {memory, 33, bytes}, 1), EINVAL);
  EXPECT_EQ(b.queue_pair.post_bind(*window, {memory, 0, 0}, 1), EINVAL);
  EXPECT_EQ(b.queue_pair.post_bind(*window, {memory, std::size_t(-1), 2}, 1), EINVAL);
  EXPECT_EQ(window->remote().size_bytes(), 0U);
  const auto closed = b.domain.allocate<std::uint8_t>(64, Access::remote_read_write);
  // The device may report the error when the request is posted or when it is executed.
  if (b.queue_pair.post_bind(*window, {closed, offset, bytes}, 1) == 0) {
    EXPECT_EQ(b.await().status(), IBV_WC_MW_BIND_ERR);
  }
}

TEST_F(Window, OfTypeTwoIsInvalidatedByThePeer) {
  prepare(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(), IBV_WC_SUCCESS);
  const std::uint32_t rkey = window->remote().rkey();
  ASSERT_EQ(b.queue_pair.post_receive(b.region.slice(0, 8), 1), 0);
  ASSERT_EQ(a.queue_pair.post_send_with_invalidate(a.region.slice(0, 8), rkey, 2), 0);
  ASSERT_TRUE(a.await().ok());
  EXPECT_EQ(b.await().invalidated_rkey(), rkey);
  EXPECT_EQ(write(window->remote()), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Window, OfTypeTwoIsInvalidatedByItsKey) {
  prepare(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(), IBV_WC_SUCCESS);
  ASSERT_EQ(b.queue_pair.post_invalidate(window->remote().rkey(), 9), 0);
  const Completion done = b.await();
  EXPECT_TRUE(done.ok()) << done.status_name();
  EXPECT_EQ(done.opcode(), IBV_WC_LOCAL_INV);
  EXPECT_EQ(write(window->remote()), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Window, OfAnUnknownTypeIsAnErrorThatNamesTheDevice) {
  try {
    (void)b.domain.allocate_window(static_cast<ibv_mw_type>(3));
    FAIL() << "allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
    EXPECT_NE(std::string(error.what()).find(b.context.device_name()), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace weft::verbs::testing
