// Devices, contexts, GIDs; named after what rust-ibverbs's own device tests show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/device.h"
#include "support/error_of.h"
#include "support/needs.h"
#include "verbs/device_search.h"
#include "verbs/state.h"
#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

TEST(Devices, AreListedByNameAndBackend) {
  if (!test::own_device()) GTEST_SKIP() << "another device is tested";
  const auto all = devices();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name(), "weft0");
  EXPECT_EQ(all[0].backend(), Backend::embedded);
  EXPECT_FALSE(all[0].guid().is_reserved());
}

TEST(Devices, TheWrongNameIsAnErrorThatNamesTheOthers) {
  try {
    (void)open_device("mlx5_7");
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), ENODEV);
    EXPECT_NE(std::string(error.what()).find("mlx5_7"), std::string::npos);
    const std::string there = test::open_device().device_name();
    EXPECT_NE(std::string(error.what()).find(there), std::string::npos);
    EXPECT_EQ(error.detail().attribute, "name");
  }
}

TEST(Backend, ComesFromTheEnvironment) {
  ASSERT_EQ(setenv("WEFT_BACKEND", "auto", 1), 0);
  EXPECT_EQ(default_backend(), Backend::automatic);
  ASSERT_EQ(setenv("WEFT_BACKEND", "mellanox", 1), 0);
  EXPECT_THROW((void)default_backend(), Error);
  ASSERT_EQ(unsetenv("WEFT_BACKEND"), 0);
  EXPECT_EQ(default_backend(), Backend::embedded);
}

TEST(Context, query_device_and_port) {
  const Context context = test::open_device();
  EXPECT_EQ(context.device_name(), test::variable("WEFT_TEST_DEVICE", "weft0"));
  EXPECT_GT(context.query().max_qp, 0);
  const auto extended = context.query_extended();
  EXPECT_EQ(extended.orig_attr.max_qp, context.query().max_qp);
  const auto port = context.query_port();
  EXPECT_TRUE(port.is_usable());
  EXPECT_TRUE(port.is_ethernet());
  EXPECT_GT(port.lane_gbps(), 0);
  EXPECT_GT(port.lanes(), 0);
  EXPECT_THROW((void)context.query_port(2), Error);
}

TEST(Context, gid_table) {
  const Context context = test::open_device();
  const auto rows = context.gids();
  ASSERT_FALSE(rows.empty());
  for (const auto& row : rows) {
    EXPECT_EQ(context.query_gid(static_cast<std::uint8_t>(row.port), static_cast<int>(row.index)),
              row.gid);
    EXPECT_FALSE(row.gid.is_zero());
  }
  EXPECT_THROW((void)context.query_gid(1, 100000), Error);
}

TEST(Context, BestGidSaysWhy) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto choice = context.best_gid(test::host());
  EXPECT_TRUE(choice.entry.gid.is_ipv4_mapped());
  EXPECT_NE(choice.reason.find(choice.entry.gid.to_string()), std::string::npos);
  try {
    (void)context.best_gid("somewhere");
    FAIL() << "found";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
  }
}

TEST(Devices, TheOneTowardsAPeerIsOpened) {
  const Context context = open_device_towards(test::host());
  EXPECT_EQ(context.device_name(), test::variable("WEFT_TEST_DEVICE", "weft0"));
  const auto error_of = [](const char* peer) {
    try {
      (void)open_device_towards(peer);
    } catch (const Error& error) {
      return std::pair(error.error_number(), std::string(error.what()));
    }
    return std::pair(0, std::string());
  };
  EXPECT_EQ(error_of("somewhere").first, EINVAL);
  if (!test::own_device()) return;  // it has IPv4 addresses only
  const auto [number, what] = error_of("2001:db8::1");
  EXPECT_EQ(number, ENETUNREACH);
  EXPECT_NE(what.find("weft0"), std::string::npos) << what;
}

TEST(Devices, OneThatCannotBeOpenedIsPassedOver) {
  const auto refuse = []() -> Context { throw Error(EACCES, "it is not yours"); };
  const auto error_of = [](const detail::DeviceSearch& search) {
    try {
      search.fail(ENODEV, "none will do");
    } catch (const Error& error) {
      return std::pair(error.error_number(), std::string(error.what()));
    }
  };
  detail::DeviceSearch search;
  EXPECT_EQ(error_of(search).first, ENODEV);
  EXPECT_FALSE(search.open("first", refuse));
  EXPECT_EQ(error_of(search).first, EACCES);
  EXPECT_TRUE(search.open(devices().front()));
  const auto [number, what] = error_of(search);
  EXPECT_EQ(number, ENODEV);
  EXPECT_THAT(what, ::testing::HasSubstr("none will do: first (it is not yours: "));
  EXPECT_THAT(what, ::testing::HasSubstr("), " + devices().front().name()));
}

TEST(Context, NoAsynchronousEventWaits) {
  const Context context = test::open_device();
  EXPECT_FALSE(context.next_event(Deadline::now()));
}

TEST(Memory, register_from_raw) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  std::vector<std::uint32_t> words(16, 7);
  const auto region = domain.register_memory(std::span(words), Access::remote_read_write);
  EXPECT_EQ(region.size(), 16U);
  EXPECT_EQ(region.elements().data(), words.data());
  EXPECT_EQ(region.remote().size_bytes(), 64U);
  EXPECT_EQ(region.slice(1, 2).address(), reinterpret_cast<std::uint64_t>(&words[1]));
  EXPECT_EQ(region.slice(1, 2).size_bytes(), 8U);
  EXPECT_THROW((void)region.slice(15, 2), std::out_of_range);
  EXPECT_THROW((void)domain.allocate<int>(0), Error);
}

TEST(Memory, RangesInOnePieceAreRegistered) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  std::vector<std::uint32_t> words(16, 7);
  std::array<std::uint16_t, 8> shorts{};
  std::string text = "characters";
  char plain[32] = {};
  EXPECT_EQ(domain.register_memory(words).elements().data(), words.data());
  EXPECT_EQ(domain.register_memory(shorts, Access::remote_write).size(), 8U);
  EXPECT_EQ(domain.register_memory(text).bytes().size(), text.size());
  EXPECT_EQ(domain.register_memory(plain).size(), 32U);
  EXPECT_EQ(domain.register_memory(std::span<std::uint16_t, 8>(shorts)).size_bytes(), 16U);
  EXPECT_EQ(domain.register_memory(std::span(words).first(3)).size(), 3U);
  std::vector<int> none;
  EXPECT_THROW((void)domain.register_memory(none), Error);
}

template <typename Range>
concept Registrable = requires(const ProtectionDomain& domain, Range&& range) {
  domain.register_memory(std::forward<Range>(range));
};
// The memory of a temporary container ends with the statement.
static_assert(Registrable<std::vector<int>&>);
static_assert(Registrable<std::span<int>>);
static_assert(!Registrable<std::vector<int>>);
static_assert(!Registrable<std::vector<std::string>&>);

TEST(Memory, ConstMemoryIsReadOnly) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  const std::vector<std::uint32_t> words(16, 7);
  const auto region = domain.register_memory(words);
  static_assert(std::is_same_v<decltype(region.elements()), std::span<const std::uint32_t>>);
  static_assert(std::is_same_v<decltype(region.bytes()), std::span<const std::byte>>);
  EXPECT_EQ(region[3], 7U);
  EXPECT_EQ(region.slice(1, 2).address(), reinterpret_cast<std::uint64_t>(&words[1]));
  // In a section that no process can write to.
  static const std::array<char, 4096> constant{1};
  EXPECT_EQ(domain.register_memory(constant, Access::remote_read_only).size(), 4096U);
  for (const Access access : {Access::local, Access::remote_read, Access::all}) {
    try {
      (void)domain.register_memory(words, access);
      ADD_FAILURE() << "registered for writing";
    } catch (const Error& error) {
      EXPECT_EQ(error.error_number(), EINVAL);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("const memory"));
    }
  }
}

template <typename Region>
concept Sliceable = requires(Region&& region) {
  std::forward<Region>(region).slice();
};
template <typename Region>
concept HasParts = requires(Region&& region) {
  std::forward<Region>(region).slice(0, 1);
};
template <typename Region>
concept Advertisable = requires(Region&& region) {
  std::forward<Region>(region).remote();
};
// A slice of a temporary would refer to memory that is deregistered already.
static_assert(Sliceable<TypedRegion<int>&> && Sliceable<const MemoryRegion&>);
static_assert(HasParts<const TypedRegion<int>&> && Advertisable<const MemoryRegion&>);
static_assert(!Sliceable<TypedRegion<int>> && !Sliceable<MemoryRegion>);
static_assert(!HasParts<TypedRegion<int>> && !HasParts<const MemoryRegion>);
static_assert(!Advertisable<TypedRegion<int>> && !Advertisable<MemoryRegion>);

TEST(Limits, AreNamedByTheError) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  const auto attributes = context.query();
  const auto expect = [](const std::function<void()>& work, const std::string& attribute,
                         std::uint64_t requested, int limit) {
    const auto [text, detail] = test::error_of(work);
    EXPECT_THAT(text, ::testing::HasSubstr(std::to_string(limit)));
    EXPECT_THAT(text, ::testing::HasSubstr(attribute));
    EXPECT_EQ(detail.attribute, attribute);
    EXPECT_EQ(detail.requested, requested);
    EXPECT_EQ(detail.limit, static_cast<std::uint64_t>(limit));
  };
  constexpr int many = 1 << 30;
  expect([&] { (void)context.create_completion_queue(many); }, "max_cqe", many, attributes.max_cqe);
  const auto builder = [&] { return domain.queue_pair(queue, queue); };
  expect([&] { (void)builder().max_send_requests(many).build(); }, "max_send_wr", many,
         attributes.max_qp_wr);
  expect([&] { (void)builder().max_receive_requests(many).build(); }, "max_recv_wr", many,
         attributes.max_qp_wr);
  expect([&] { (void)builder().max_send_slices(many).build(); }, "max_send_sge", many,
         attributes.max_sge);
  expect([&] { (void)builder().max_receive_slices(many).build(); }, "max_recv_sge", many,
         attributes.max_sge);
  const auto [text, detail] =
      test::error_of([&] { (void)builder().max_inline_bytes(many).build(); });
  EXPECT_THAT(text, ::testing::HasSubstr("inline data"));
  EXPECT_EQ(detail.attribute, "max_inline_data");
  // Memory that does not exist.
  const auto [fault, region] = test::error_of(
      [&] { (void)domain.register_memory(std::span(reinterpret_cast<std::byte*>(0x1000), 4096)); });
  EXPECT_THAT(fault, ::testing::HasSubstr("does not exist"));
  EXPECT_EQ(region.object, "memory region");
  EXPECT_EQ(region.attribute, "address");
  const auto [few, none] = test::error_of([&] { (void)context.create_completion_queue(0); });
  EXPECT_THAT(few, ::testing::HasSubstr("one entry at least"));
  EXPECT_EQ(none.object, "completion queue");
}

TEST(Limits, OfNumbersAreNamedByTheError) {
  using ::testing::HasSubstr;
  const Context context = test::open_device();
  const int vectors = context.completion_vectors();
  const auto [vector, queue] =
      test::error_of([&] { (void)context.create_completion_queue(4, {.vector = vectors + 98}); });
  EXPECT_THAT(vector, HasSubstr(std::to_string(vectors + 98)));
  EXPECT_EQ(queue.attribute, "comp_vector");
  EXPECT_EQ(queue.limit, static_cast<std::uint64_t>(vectors - 1));
  const auto [port, of_port] = test::error_of([&] { (void)context.query_port(200); });
  EXPECT_THAT(port, HasSubstr("ports are 1 to"));
  EXPECT_EQ(of_port.attribute, "port_num");
  EXPECT_EQ(of_port.requested, 200U);
  const int rows = context.query_port().gid_table_length();
  const auto [row, of_row] = test::error_of([&] { (void)context.query_gid(1, rows); });
  EXPECT_THAT(row, HasSubstr(std::to_string(rows) + " rows"));
  EXPECT_EQ(of_row.attribute, "gid_index");
  EXPECT_EQ(of_row.limit, static_cast<std::uint64_t>(rows - 1));
}

TEST(Limits, OfQueuePairsAreNamedByTheError) {
  const Context context = open_own_device({.limits = {.max_qp = 1}});
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  const auto first = domain.queue_pair(queue, queue).build();
  const auto [text, detail] =
      test::error_of([&] { (void)domain.queue_pair(queue, queue).build(); });
  EXPECT_THAT(text, ::testing::HasSubstr("max_qp"));
  EXPECT_EQ(detail.attribute, "max_qp");
  EXPECT_EQ(detail.limit, 1U);
}

TEST(QueuePair, AHandshakeWithoutAGidSaysSo) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  if (!context.query_port(1).is_ethernet()) GTEST_SKIP() << "needs a port on Ethernet";
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  auto prepared = domain.queue_pair(queue, queue).build();
  Endpoint peer = prepared.endpoint();
  peer.gid.reset();
  const auto [text, detail] = test::error_of([&] { (void)std::move(prepared).handshake(peer); });
  EXPECT_THAT(text, ::testing::HasSubstr("GID"));
  EXPECT_EQ(detail.attribute, "AV");
}

// The device looks the route up in the transition to RTR. From 127.0.0.1 there is none to others.
TEST(QueuePair, AHandshakeWithoutARouteSaysSo) {
  const Context context =
      test::own_device() ? open_own_device({.address = "127.0.0.1"}) : test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  if (!context.query_port(1).is_ethernet()) GTEST_SKIP() << "needs a port on Ethernet";
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  auto prepared = domain.queue_pair(queue, queue).build();
  Endpoint peer = prepared.endpoint();
  peer.gid = Gid::parse("::ffff:198.51.100.7");  // RFC 5737 §3: an address of no host
  const auto [text, detail] = test::error_of([&] { (void)std::move(prepared).handshake(peer); });
  EXPECT_THAT(text, ::testing::HasSubstr("198.51.100.7, must be reachable from row"));
  EXPECT_EQ(detail.attribute, "AV");
  EXPECT_THAT(detail.peer, ::testing::HasSubstr("198.51.100.7"));
}

TEST(QueuePair, AWrongAttributeIsNamed) {
  const Context context = test::open_device();
  WEFT_NEEDS_STATES(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  const auto made = domain.queue_pair(queue, queue).build().release();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  const auto [text, detail] =
      test::error_of([&] { made.modify(attributes, IBV_QP_STATE | IBV_QP_PORT); });
  EXPECT_EQ(detail.attribute, "ACCESS_FLAGS, PKEY_INDEX") << text;
}

TEST(RdmaCm, AnIdWithoutARequestCannotBeAccepted) {
  const EventChannel channel;
  const Id id(channel);
  const auto [text, detail] = test::error_of([&] { id.accept({}); });
  EXPECT_THAT(text, ::testing::HasSubstr("id of a connect request"));
  EXPECT_EQ(detail.object, "connection");
}

TEST(Devices, OfTheSystemNeedTheKernelsSupport) {
  try {
    (void)devices(Backend::system);
    GTEST_SKIP() << "this kernel has it";
  } catch (const Error& error) {
    if (error.error_number() != ENOSYS) GTEST_SKIP() << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr("modprobe ib_uverbs"));
  }
}

TEST(Memory, advise_mr) {
  const Context context = test::open_device();
  if ((context.query_extended().odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) {
    GTEST_SKIP() << "the device has no on-demand memory";
  }
  const auto domain = context.create_domain();
  const auto region = domain.allocate<char>(8192, Access::local | Access::on_demand);
  const std::array parts{region.slice(0, 4096), region.slice(4096, 4096)};
  domain.advise(IBV_ADVISE_MR_ADVICE_PREFETCH, parts);
  domain.advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, std::span(parts).first(1), 0);
  const LocalSlice beyond(parts[1].address(), 4097, region.lkey());
  EXPECT_THROW(domain.advise(IBV_ADVISE_MR_ADVICE_PREFETCH, std::span(&beyond, 1)), Error);
}

TEST(Devices, gid_and_device_introspection) {
  if (!test::own_device() || test::open_device().backend() != Backend::embedded) {
    GTEST_SKIP() << "these are the embedded device's";
  }
  const auto device = devices().front();
  EXPECT_EQ(device.node_type(), IBV_NODE_CA);
  EXPECT_EQ(device.transport(), IBV_TRANSPORT_IB);
  EXPECT_NE(device.guid().oui(), 0U);
  EXPECT_EQ(device.index(), 0);
  const Context context = device.open();
  const auto rows = context.gids();
  ASSERT_EQ(rows.size(), 2U) << "the same address as RoCE v1 and v2, as adapters show it";
  EXPECT_EQ(rows[0].type, IBV_GID_TYPE_ROCE_V1);
  EXPECT_EQ(rows[0].gid, rows[1].gid);
  const auto& row = rows[1];
  EXPECT_EQ(row.port, 1U);
  EXPECT_EQ(row.type, IBV_GID_TYPE_ROCE_V2);
  EXPECT_TRUE(row.gid.is_ipv4_mapped());
  EXPECT_FALSE(row.interface_name().empty());
}

TEST(Context, query_device_extended) {
  const Context context = test::open_device();
  const auto extended = context.query_extended();
  EXPECT_EQ(extended.orig_attr.max_qp, context.query().max_qp);
  EXPECT_EQ(extended.orig_attr.phys_port_cnt, 1);
  if (!test::own_device()) return;  // the rest is not on every device
  EXPECT_GT(extended.completion_timestamp_mask, 0U);
  EXPECT_GT(extended.max_dm_size, 0U);
}

TEST(QueuePair, queue_pair_on_explicit_port) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  auto prepared = domain.queue_pair(queue, queue, IBV_QPT_RC, 1).build();
  const Endpoint endpoint = prepared.endpoint();
  const QueuePair queue_pair = std::move(prepared).handshake(endpoint);
  EXPECT_EQ(queue_pair.query(IBV_QP_PORT).current.port_num, 1);
  const auto elsewhere = domain.queue_pair(queue, queue, IBV_QPT_RC, 2).build();
  EXPECT_THROW((void)elsewhere.endpoint(), Error) << "there is no second port";
}

// The error must name the device, and not only contain the text of the errno.
template <typename Call>
void expect_unsupported(const Context& context, Call call) {
  if (!test::own_device()) GTEST_SKIP() << "another device is tested, which may have it";
  try {
    call();
    FAIL() << "it is there";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EOPNOTSUPP) << error.what();
    const std::string name = context.device_name();
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
  }
}

TEST(Memory, ADmaBufIsRefusedByTheNameOfTheDevice) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  expect_unsupported(context, [&] { (void)domain.register_dmabuf(0, 0, 4096, 0x10000); });
}

// An adapter has it, or refuses it by its name; an iWARP device has none.
TEST(Context, XrcDomainsAreOpenedOrRefusedByTheNameOfTheDevice) {
  const Context context = test::open_device();
  if ((context.query().device_cap_flags & IBV_DEVICE_XRC) != 0) {
    const XrcDomain first = context.open_xrc_domain();
    const XrcDomain second = context.open_xrc_domain();
    EXPECT_NE(first.raw(), second.raw());
    return;
  }
  expect_unsupported(context, [&] { (void)context.open_xrc_domain(); });
}

// Simulates a device that supports dma-bufs: requests use the iova in place of an address.
TEST(Memory, RequestsNameADmaBufByItsIova) {
  class Region : public MemoryRegion {
   public:
    explicit Region(std::shared_ptr<detail::MemoryState> state) : MemoryRegion(std::move(state)) {}
  };
  provider::Table table{};
  table.dereg_mr = [](ibv_mr*) { return 0; };
  table.dealloc_pd = [](ibv_pd*) { return 0; };
  ibv_mr registered{};
  registered.addr = reinterpret_cast<void*>(0x40);
  registered.length = 64;
  const auto context =
      std::make_shared<detail::ContextState>(table, Backend::system, nullptr, /*own=*/false);
  const auto domain = std::make_shared<detail::DomainState>(context, nullptr);
  const Region region(std::make_shared<detail::MemoryState>(domain, &registered, 0x7000'0000));
  EXPECT_TRUE(region.bytes().empty());
  EXPECT_EQ(region.size_bytes(), 64U);
  EXPECT_EQ(region.slice(8, 8).address(), 0x7000'0008U);
  EXPECT_EQ(region.remote().address(), 0x7000'0000U);
}

TEST(CompletionQueue, GrowsAndRefuses) {
  const Context context = test::open_device();
  const auto queue = context.create_completion_queue(8);
  EXPECT_GE(queue.capacity(), 8);
  WEFT_NEEDS(queue.resize(100));
  EXPECT_GE(queue.capacity(), 100);
  EXPECT_THROW((void)context.create_completion_queue(0), Error);
  std::array<Completion, 4> some;
  EXPECT_TRUE(queue.poll(some).empty());
  EXPECT_TRUE(queue.wait(some, Deadline::now()).empty());
}

TEST(SharedReceiveQueue, IsQueriedAndChanged) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  const auto queue = domain.create_shared_receive_queue({.receives = 8, .slices = 2});
  WEFT_NEEDS(queue.query());
  EXPECT_GE(queue.query().max_wr, 8U);
  queue.set_limit(3);
  EXPECT_EQ(queue.query().srq_limit, 3U);
  const auto region = domain.allocate<char>(64);
  EXPECT_EQ(queue.post_receive(region.slice(), 1), 0);
}

TEST(QueuePairBuilder, HasTheDefaultsItPromises) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  const auto builder = domain.queue_pair(queue, queue);
  const auto& settings = builder.settings();
  EXPECT_EQ(settings.access, Access::local);
  EXPECT_EQ(settings.capacity.max_send_wr, 1U);
  EXPECT_EQ(settings.capacity.max_recv_wr, 1U);
  EXPECT_EQ(settings.capacity.max_send_sge, 1U);
  EXPECT_EQ(settings.capacity.max_recv_sge, 1U);
  EXPECT_EQ(settings.capacity.max_inline_data, 0U);
  EXPECT_EQ(settings.service_level, 0);
  EXPECT_FALSE(settings.gid_index);
  EXPECT_EQ(settings.traffic_class, 0);
  EXPECT_EQ(settings.min_rnr_timer, 16);
  EXPECT_EQ(settings.timeout, 4);
  EXPECT_EQ(settings.retry_count, 6);
  EXPECT_EQ(settings.rnr_retry, 6);
  EXPECT_EQ(settings.max_rd_atomic, 1);
  EXPECT_EQ(settings.max_dest_rd_atomic, 1);
  EXPECT_FALSE(settings.path_mtu);
  EXPECT_FALSE(settings.send_psn);
  EXPECT_FALSE(settings.receive_psn);
  EXPECT_EQ(settings.user_context, nullptr);
}

TEST(QueuePairBuilder, RefusesWhatIsOutOfRange) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  auto builder = domain.queue_pair(queue, queue);
  EXPECT_THROW(builder.retry_count(8), std::invalid_argument);
  EXPECT_THROW(builder.rnr_retry(8), std::invalid_argument);
  EXPECT_THROW(builder.timeout(32), std::invalid_argument);
  EXPECT_THROW(builder.min_rnr_timer(32), std::invalid_argument);
  EXPECT_THROW(builder.service_level(16), std::invalid_argument);
  EXPECT_THROW(builder.send_psn(1 << 24), std::invalid_argument);
  EXPECT_THROW(builder.receive_psn(1 << 24), std::invalid_argument);
  EXPECT_THROW(builder.path_mtu(static_cast<ibv_mtu>(0)), std::invalid_argument);
  EXPECT_THROW(builder.path_mtu(static_cast<ibv_mtu>(6)), std::invalid_argument);
  EXPECT_THROW((void)builder.max_send_requests(1 << 30).build(), Error);
}

TEST(QueuePair, EndpointHasARandomPsn) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  const auto builder = domain.queue_pair(queue, queue);
  const auto one = builder.build();
  const auto other = builder.build();
  EXPECT_NE(one.endpoint().number, other.endpoint().number);
  EXPECT_LT(one.endpoint().psn, 1U << 24);
  EXPECT_TRUE(one.endpoint().gid);
  // Equal by chance once in 16 million runs.
  EXPECT_NE(one.endpoint().psn, other.endpoint().psn);
}

std::string what_modify_says(const QueuePair& queue_pair, ibv_qp_state state, int mask) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  attributes.port_num = 1;
  try {
    queue_pair.modify(attributes, IBV_QP_STATE | mask);
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
    return error.what();
  }
  return "nothing";
}

// Of the personality iwarp: the test verbs_test.iwarp runs these.
class IwarpDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (context_.raw()->device->transport_type != IBV_TRANSPORT_IWARP) {
      GTEST_SKIP() << "the device is none for iWARP";
    }
  }

  const Context context_ = test::open_device();
};

// The GIDs of an adapter name no route, so they are not asked.
TEST_F(IwarpDevice, TowardsAPeerIsFoundByRdmaCm) {
  const std::string host = test::host();
  EXPECT_EQ(open_device_towards(host).device_name(), context_.device_name());
  EXPECT_EQ(open_device_towards("::ffff:" + host).device_name(), context_.device_name());
}

TEST_F(IwarpDevice, RefusesToConnectByNumberAndNamesRdmaCm) {
  const auto domain = context_.create_domain();
  const auto queue = context_.create_completion_queue(8);
  const auto queue_pair = domain.queue_pair(queue, queue).build().release();
  const std::string what = what_modify_says(queue_pair, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_DEST_QPN);
  EXPECT_THAT(what, ::testing::HasSubstr("rdma_cm"));
  EXPECT_THAT(what, ::testing::Not(::testing::HasSubstr("from")));
}

// Of the personality ib: the test verbs_test.ib runs these.
class InfinibandDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (context_.query_port(1).is_ethernet()) GTEST_SKIP() << "the port is none of InfiniBand";
  }

  const Context context_ = test::open_device();
};

// The GIDs of a port name no IP address.
TEST_F(InfinibandDevice, TowardsAPeerIsFoundByRdmaCm) {
  EXPECT_EQ(open_device_towards("127.0.0.1").device_name(), context_.device_name());
}

TEST_F(InfinibandDevice, TheGidTowardsAnIpAddressIsFoundByRdmaCm) {
  const auto choice = context_.best_gid("127.0.0.1");
  EXPECT_EQ(choice.entry.gid, context_.query_gid(1, 0));
  EXPECT_THAT(choice.reason, ::testing::HasSubstr("rdma_cm"));
}

TEST_F(InfinibandDevice, QueuePairsConnectByLid) {
  const auto domain = context_.create_domain();
  const auto queue = context_.create_completion_queue(8);
  auto prepared = domain.queue_pair(queue, queue).build();
  const Endpoint endpoint = prepared.endpoint();
  EXPECT_EQ(endpoint.lid, context_.query_port(1).lid());
  EXPECT_NE(endpoint.lid, 0);
  EXPECT_FALSE(endpoint.gid);
  const QueuePair itself = std::move(prepared).handshake(endpoint);
  EXPECT_EQ(itself.state(), IBV_QPS_RTS);
}

TEST(QueuePair, IllegalTransitionsAreExplained) {
  const Context context = test::open_device();
  WEFT_NEEDS_STATES(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  const auto queue_pair = domain.queue_pair(queue, queue).build().release();
  EXPECT_EQ(queue_pair.state(), IBV_QPS_RESET);
  using ::testing::HasSubstr;
  EXPECT_THAT(what_modify_says(queue_pair, IBV_QPS_RTS, 0),
              HasSubstr("there is no transition from RESET to RTS"));
  constexpr int most = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  EXPECT_THAT(what_modify_says(queue_pair, IBV_QPS_INIT, most),
              HasSubstr("attributes that are missing: ACCESS_FLAGS"));
  EXPECT_THAT(what_modify_says(queue_pair, IBV_QPS_INIT, most | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY),
              HasSubstr("attributes that do not belong there: QKEY"));
}

}  // namespace
}  // namespace weft::verbs
