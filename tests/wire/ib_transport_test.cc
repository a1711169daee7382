#include "wire/ib_transport.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "wire/roce_packets.h"

namespace weft::wire {
namespace {

using Operation = IbOperation;

constexpr IbOpcode rc(Operation operation) {
  return {IbTransport::rc, operation};
}

IbPacketView checked(Bytes packet) {
  const auto view = IbPacketView::check(transport_of(packet));
  EXPECT_TRUE(view.ok());
  return view.value();
}

TEST(Psn, WrapsAt24Bits) {
  EXPECT_EQ(psn_plus(0xFFFFFF, 1), 0U);
  EXPECT_EQ(psn_plus(0xFFFFFE, 5), 3U);
  EXPECT_EQ(psn_distance(0xFFFFFF, 0), 1);
  EXPECT_EQ(psn_distance(0, 0xFFFFFF), -1);
  EXPECT_EQ(psn_distance(7, 7), 0);
  EXPECT_EQ(psn_distance(0, 0x7FFFFF), 0x7FFFFF);
  EXPECT_EQ(psn_distance(0, 0x800000), -0x800000);
}

TEST(IbOpcode, KeepsEveryCode) {
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_EQ(IbOpcode::of(static_cast<std::uint8_t>(code)).code(), code);
  }
  EXPECT_EQ(congestion_notification.code(), 0x81);
  EXPECT_EQ((IbOpcode{IbTransport::ud, Operation::send_only}).code(), 0x64);
  EXPECT_EQ((IbOpcode{IbTransport::xrc, Operation::write_first}).code(), 0xA6);
}

TEST(IbOpcode, HasANameEach) {
  std::set<std::string> names{"unknown operation"};
  for (unsigned code = 0; code < 24; ++code) {
    EXPECT_TRUE(names.insert(describe(static_cast<Operation>(code))).second) << code;
  }
  EXPECT_STREQ(describe(Operation{24}), "unknown operation");
  std::set<std::string> transports{"unknown transport"};
  for (unsigned code = 0; code < 6; ++code) {
    EXPECT_TRUE(transports.insert(describe(static_cast<IbTransport>(code))).second) << code;
  }
}

// Volume 1, Table 38.
TEST(IbLayout, KnowsWhichOpcodesExist) {
  std::size_t known = 0;
  for (unsigned code = 0; code < 256; ++code) {
    if (IbLayout::of(IbOpcode::of(static_cast<std::uint8_t>(code))).known) ++known;
  }
  EXPECT_EQ(known, 23U + 12 + 22 + 2 + 1 + 23);
  EXPECT_FALSE(IbLayout::of(rc(Operation::resync)).known);
  EXPECT_FALSE(IbLayout::of({IbTransport::uc, Operation::read_request}).known);
  EXPECT_FALSE(IbLayout::of({IbTransport::ud, Operation::send_first}).known);
}

TEST(IbLayout, SaysWhatFollows) {
  const auto size = [](IbTransport transport, Operation operation) {
    return IbLayout::of({transport, operation}).size();
  };
  EXPECT_EQ(size(IbTransport::rc, Operation::send_middle), 0U);
  EXPECT_EQ(size(IbTransport::rc, Operation::write_first), 16U);
  EXPECT_EQ(size(IbTransport::rc, Operation::write_last), 0U);
  EXPECT_EQ(size(IbTransport::uc, Operation::write_only_immediate), 20U);
  EXPECT_EQ(size(IbTransport::rc, Operation::read_response_middle), 0U);
  EXPECT_EQ(size(IbTransport::rc, Operation::atomic_acknowledge), 12U);
  EXPECT_EQ(size(IbTransport::rc, Operation::compare_swap), 28U);
  EXPECT_EQ(size(IbTransport::ud, Operation::send_only_immediate), 12U);
  EXPECT_EQ(size(IbTransport::rd, Operation::fetch_add), 4U + 8 + 28);
  EXPECT_EQ(size(IbTransport::rd, Operation::acknowledge), 4U + 4);
  EXPECT_EQ(size(IbTransport::xrc, Operation::write_only), 4U + 16);
  EXPECT_EQ(size(IbTransport::xrc, Operation::acknowledge), 4U);
}

TEST(Bth, DeconstructsOneOfRxe) {
  const Bytes bytes = transport_of(rxe_write_last);
  EXPECT_EQ(*Bth::parse(bytes), (Bth{.opcode = rc(Operation::write_last),
                                     .migrated = false,
                                     .pad_bytes = 3,
                                     .destination_qp = 0x12,
                                     .acknowledge_request = true,
                                     .psn = 0x767DDB}));
  expect_truncated_below(Bth::header_bytes, bytes, [](Bytes cut) { return Bth::parse(cut); });
}

TEST(Bth, EveryFieldHasItsPlace) {
  const auto bytes = "64 ff 1234 c0 abcdef 80 fedcba"_hex;
  const Bth value{.opcode = {IbTransport::ud, Operation::send_only},
                  .solicited = true,
                  .migrated = true,
                  .pad_bytes = 3,
                  .version = 15,
                  .partition_key = 0x1234,
                  .fecn = true,
                  .becn = true,
                  .destination_qp = 0xABCDEF,
                  .acknowledge_request = true,
                  .psn = 0xFEDCBA};
  EXPECT_EQ(*Bth::parse(bytes), value);
  EXPECT_EQ(emitted(value), copy_of(bytes));
}

TEST(IbHeaders, OfRxeRoundTrip) {
  for (const Bytes packet :
       {Bytes(rxe_send_only), Bytes(rxe_send_immediate), Bytes(rxe_write_last),
        Bytes(rxe_write_only), Bytes(rxe_write_immediate), Bytes(rxe_read_request),
        Bytes(rxe_read_only), Bytes(rxe_acknowledge), Bytes(rxe_atomic_acknowledge),
        Bytes(rxe_compare_swap), Bytes(rxe_fetch_add)}) {
    const Bytes transport = transport_of(packet);
    const auto headers = IbHeaders::parse(transport);
    ASSERT_TRUE(headers);
    EXPECT_EQ(emitted(*headers, headers->size()), copy_of(transport.first(headers->size())));
    expect_truncated_below(headers->size(), transport,
                           [](Bytes cut) { return IbHeaders::parse(cut); });
  }
}

TEST(IbHeaders, OfAWriteHaveAReth) {
  const auto view = checked(rxe_write_only);
  EXPECT_EQ(view.headers().reth,
            (Reth{.address = 0x563E5D529005, .key = 0x40A, .length_bytes = 5}));
  EXPECT_EQ(copy_of(view.payload()), copy_of("464d545b62"_hex));
  EXPECT_EQ(view.icrc(), 0x5C51E0C3U);
}

TEST(IbHeaders, OfImmediatesAreNumbers) {
  EXPECT_EQ(checked(rxe_send_immediate).headers().immediate, 0x11223344U);
  const auto view = checked(rxe_write_immediate);
  EXPECT_EQ(view.headers().immediate, 0x55667788U);
  EXPECT_EQ(view.headers().reth.address, 0x563E5D595000U);
  EXPECT_TRUE(view.payload().empty());
}

TEST(IbHeaders, OfAtomicsHaveTheirOperands) {
  EXPECT_EQ(checked(rxe_compare_swap).headers().atomic,
            (AtomicEth{.address = 0x563E5D5B9000,
                       .key = 0x1429,
                       .swap_or_add = 0xA0A1A2A3A4A5A604,
                       .compare = 0xA0A1A2A3A4A5A601}));
  EXPECT_EQ(checked(rxe_fetch_add).headers().atomic.swap_or_add, 0x010203040506070CU);
  EXPECT_EQ(checked(rxe_atomic_acknowledge).headers().atomic_original, 0xA0A1A2A3A4A5A603U);
}

TEST(IbHeaders, OfUnknownOpcodesAreTheBthAlone) {
  auto bytes = copy_of(transport_of(rxe_send_only));
  bytes[0] = std::byte{0x1F};
  const auto view = IbPacketView::check(bytes);
  ASSERT_TRUE(view);
  EXPECT_FALSE(view->layout().known);
  EXPECT_EQ(view->bth().opcode.code(), 0x1F);
  EXPECT_EQ(view->payload().size(), 32U);
}

TEST(IbHeaders, WriteAllThatTheirOpcodeHas) {
  const IbHeaders value{.bth = {.opcode = {IbTransport::rd, Operation::send_only_immediate}},
                        .ee_context = 0x010203,
                        .deth = {.queue_key = 0x11111111, .source_qp = 0x222222},
                        .immediate = 0x33333333};
  const auto bytes = "4540ffff 00000000 00000000 00010203 11111111 00222222 33333333"_hex;
  EXPECT_EQ(emitted(value, value.size()), copy_of(bytes));
  EXPECT_EQ(*IbHeaders::parse(bytes), value);
}

// §9.7.5.2
TEST(Aeth, TellsKindsApart) {
  EXPECT_EQ(Aeth::ack(7).syndrome, 0x1F);
  EXPECT_EQ(Aeth::ack(7).credits(), std::nullopt);
  EXPECT_EQ(Aeth::rnr_nak(7, 12).syndrome, 0x2C);
  EXPECT_EQ(Aeth::rnr_nak(7, 12).kind(), Aeth::Kind::rnr_nak);
  const Aeth nak = Aeth::nak(0xABCDEF, Aeth::Nak::remote_access_error);
  EXPECT_EQ(emitted(nak), copy_of("62abcdef"_hex));
  EXPECT_EQ(nak.kind(), Aeth::Kind::nak);
  EXPECT_EQ(nak.nak_code(), Aeth::Nak::remote_access_error);
  EXPECT_EQ(*Aeth::parse("62abcdef"_hex), nak);
}

TEST(Aeth, NaksHaveNames) {
  std::set<std::string> names{"unknown NAK"};
  for (unsigned code = 0; code < 5; ++code) {
    EXPECT_TRUE(names.insert(describe(static_cast<Aeth::Nak>(code))).second) << code;
  }
  EXPECT_STREQ(describe(Aeth::Nak{31}), "unknown NAK");
}

TEST(Aeth, CreditsGrowByHalvesOfPowers) {
  const std::uint32_t expected[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
  for (std::uint8_t code = 0; code < std::size(expected); ++code) {
    EXPECT_EQ(Aeth::ack(0, code).credits(), expected[code]) << int{code};
  }
  EXPECT_EQ(Aeth::ack(0, 30).credits(), 32768U);
  EXPECT_EQ(Aeth::rnr_nak(0, 1).credits(), std::nullopt);
}

TEST(RnrTimer, HasTheSpecifiedTimes) {
  EXPECT_EQ(rnr_timer_us(0), 655'360U);
  EXPECT_EQ(rnr_timer_us(1), 10U);
  EXPECT_EQ(rnr_timer_us(12), 640U);
  EXPECT_EQ(rnr_timer_us(31), 491'520U);
  for (std::uint8_t code = 0; code < 32; ++code) {
    EXPECT_EQ(rnr_timer_code(rnr_timer_us(code)), code);
  }
  EXPECT_EQ(rnr_timer_code(0), 1);
  EXPECT_EQ(rnr_timer_code(11), 2);
  EXPECT_EQ(rnr_timer_code(500'000), 0);
}

TEST(IbPacketView, FindsThePayloadOfACutPacket) {
  const Bytes whole = transport_of(rxe_send_only);
  for (std::size_t kept = Bth::header_bytes; kept < whole.size(); ++kept) {
    const auto view = IbPacketView::check(whole.first(kept), whole.size());
    ASSERT_TRUE(view);
    EXPECT_EQ(view->payload_wire_bytes(), 32U);
    EXPECT_EQ(view->payload().size(), std::min<std::size_t>(kept - Bth::header_bytes, 32));
    EXPECT_FALSE(view->icrc());
    EXPECT_TRUE(view->covered().empty());
  }
  EXPECT_EQ(IbPacketView::check(whole.first(11), whole.size()).error(), WireError::truncated);
}

TEST(IbPacketView, RefusesWhatHasNoRoomForItsHeaders) {
  const Bytes whole = transport_of(rxe_acknowledge);
  for (std::size_t kept = 0; kept < whole.size(); ++kept) {
    const auto copy = copy_of(whole.first(kept));
    const auto view = IbPacketView::check(copy);
    ASSERT_FALSE(view);
    EXPECT_EQ(view.error(), WireError::bad_length) << kept;
  }
}

}  // namespace
}  // namespace weft::wire
