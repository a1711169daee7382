// Each rule of the transports that a capture can show to be broken is a finding: one capture that
// breaks it, and the name of what is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "capture/analysed.h"
#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "support/fpdu.h"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture::test {
namespace {

using wire::IbOperation;
using wire::IbTransport;

struct Broken {
  const char* name;
  const char* kind;
  std::function<void(MadeCapture&)> make;
};

void PrintTo(const Broken& broken, std::ostream* out) {
  *out << broken.name;
}

// --- iWARP ---------------------------------------------------------------------------------------

// A connection with one good message before what `act` does.
std::function<void(MadeCapture&)> iwarp(std::function<void(IwarpTalk&)> act,
                                        const MpaOptions& options = {}) {
  return [act = std::move(act), options](MadeCapture& capture) {
    IwarpTalk talk(capture, {}, options);
    talk.connect();
    talk.fpdu(Side::a, weft::test::send(1, Content(50)));
    act(talk);
    talk.close();
  };
}

void bad_crc(MadeCapture& capture) {
  iwarp([](IwarpTalk&) {})(capture);
  // The last byte of the FPDU is one of its CRC.
  const auto fpdu = std::ranges::max_element(
      capture, {}, [](const MadePacket& packet) { return packet.bytes.size(); });
  fpdu->bytes.back() ^= std::byte{1};
}

// With markers at every 512 bytes of the stream (RFC 5044 §4.3): that within the FPDU is damaged,
// and is not covered by the CRC of what is without markers.
void bad_marker(MadeCapture& capture) {
  IwarpTalk talk(capture, {}, {.crc = false, .markers_b = true});
  talk.connect();
  talk.fpdu(Side::a, weft::test::send(1, Content(900)));
  talk.close();
  const auto fpdu = std::ranges::max_element(
      capture, {}, [](const MadePacket& packet) { return packet.bytes.size(); });
  constexpr std::size_t headers_bytes = 14 + 20 + 20;
  constexpr std::size_t marker_at = 512;
  fpdu->bytes[headers_bytes + marker_at + 3] ^= std::byte{0x10};
}

Ulpdu changed(Ulpdu ulpdu, std::size_t at, std::uint8_t bits) {
  ulpdu.bytes[at] ^= std::byte{bits};
  return ulpdu;
}

constexpr wire::ReadRequest request{.sink_stag = 5,
                                    .sink_offset = 0x100,
                                    .size_bytes = 64,
                                    .source_stag = 6,
                                    .source_offset = 0x200};

const Broken broken_iwarp[] = {
    {"Crc", "bad-checksum", bad_crc},
    {"Marker", "bad-marker", bad_marker},
    {"Reset", "reset", iwarp([](IwarpTalk& talk) { talk.tcp().reset(Side::b); })},
    {"DdpVersion", "bad-version", iwarp([](IwarpTalk& talk) {
       talk.fpdu(Side::a, changed(weft::test::send(2, Content(9)), 0, 0x03));
     })},
    {"RdmapVersion", "bad-version", iwarp([](IwarpTalk& talk) {
       talk.fpdu(Side::a, changed(weft::test::send(2, Content(9)), 1, 0x80));
     })},
    {"Queue", "bad-header", iwarp([](IwarpTalk& talk) {
       talk.fpdu(Side::a, changed(weft::test::send(2, Content(9)), 9, 0x08));
     })},
    {"Msn", "unexpected-message",
     iwarp([](IwarpTalk& talk) { talk.fpdu(Side::a, weft::test::send(7, Content(9))); })},
    {"Mo", "unexpected-offset", iwarp([](IwarpTalk& talk) {
       talk.fpdu(Side::a, weft::test::send(2, Content(8), {.offset = 0, .last = false}));
       talk.fpdu(Side::a, weft::test::send(2, Content(8), {.offset = 12, .last = true}));
     })},
    {"AnswerToNobody", "answer-without-request", iwarp([](IwarpTalk& talk) {
       talk.fpdu(Side::b, weft::test::read_response(5, 0x100, Content(64)));
     })},
    // What is beyond the sink belongs to no request.
    {"AnswerTooLong", "answer-without-request", iwarp([](IwarpTalk& talk) {
       talk.fpdu(Side::a, weft::test::read_request(1, request));
       talk.fpdu(Side::b, weft::test::read_response(5, 0x100, Content(80)));
     })},
};

// --- InfiniBand ----------------------------------------------------------------------------------

std::function<void(MadeCapture&)> roce(std::function<void(RoceTalk&)> act) {
  return [act = std::move(act)](MadeCapture& capture) {
    RoceTalk talk(capture, {});
    talk.connect();
    talk.send(Side::a, 50);
    act(talk);
  };
}

wire::IbHeaders headers(IbOperation operation, std::uint32_t psn) {
  wire::IbHeaders out;
  out.bth.opcode = {IbTransport::rc, operation};
  out.bth.psn = psn;
  return out;
}

void write(RoceTalk& talk, IbOperation operation, std::uint32_t psn, std::uint32_t dma_bytes,
           std::size_t bytes) {
  wire::IbHeaders out = headers(operation, psn);
  out.reth = {.address = 0x1000, .key = 7, .length_bytes = dma_bytes};
  talk.packet(Side::a, out, Content(bytes));
}

// The PSN of the request.
std::uint32_t ask(RoceTalk& talk, std::uint32_t bytes, const Content& payload = {}) {
  wire::IbHeaders asked = headers(IbOperation::read_request, talk.next_psn(Side::a));
  asked.reth = {.address = 0x1000, .key = 7, .length_bytes = bytes};
  talk.packet(Side::a, asked, payload);
  return asked.bth.psn;
}

void answer(RoceTalk& talk, std::uint32_t psn,
            const std::vector<std::pair<IbOperation, std::size_t>>& packets) {
  for (const auto& [operation, bytes] : packets) {
    talk.packet(Side::b, headers(operation, psn++), Content(bytes));
  }
}

// The path MTU of the conversations here is 256.
const Broken broken_roce[] = {
    {"DmaLengthOfOnly", "wrong-length", roce([](RoceTalk& talk) {
       write(talk, IbOperation::write_only, talk.next_psn(Side::a), 50, 40);
     })},
    {"DmaLengthOfMany", "wrong-length", roce([](RoceTalk& talk) {
       const std::uint32_t psn = talk.next_psn(Side::a);
       write(talk, IbOperation::write_first, psn, 600, 256);
       write(talk, IbOperation::write_last, psn + 1, 600, 200);
     })},
    {"ShortMiddle", "wrong-length", roce([](RoceTalk& talk) {
       const std::uint32_t psn = talk.next_psn(Side::a);
       write(talk, IbOperation::write_first, psn, 600, 256);
       write(talk, IbOperation::write_middle, psn + 1, 600, 100);
       write(talk, IbOperation::write_last, psn + 2, 600, 244);
     })},
    // Its first packet may be what was not captured.
    {"MiddleWithoutFirst", "not-captured", roce([](RoceTalk& talk) {
       write(talk, IbOperation::write_middle, talk.next_psn(Side::a), 600, 256);
     })},
    {"FirstTwice", "bad-header", roce([](RoceTalk& talk) {
       const std::uint32_t psn = talk.next_psn(Side::a);
       write(talk, IbOperation::write_first, psn, 600, 256);
       write(talk, IbOperation::write_first, psn + 1, 600, 256);
     })},
    {"PsnLeftOut", "not-captured", roce([](RoceTalk& talk) {
       const std::uint32_t psn = talk.next_psn(Side::a);
       write(talk, IbOperation::write_first, psn, 600, 256);
       write(talk, IbOperation::write_last, psn + 2, 600, 88);
     })},
    {"AnswerTooLong", "answer-beyond-request", roce([](RoceTalk& talk) {
       answer(talk, ask(talk, 50), {{IbOperation::read_response_only, 60}});
     })},
    {"AnswerTooShort", "wrong-length", roce([](RoceTalk& talk) {
       answer(talk, ask(talk, 50), {{IbOperation::read_response_only, 40}});
     })},
    {"AnswerWithAShortMiddle", "wrong-length", roce([](RoceTalk& talk) {
       answer(talk, ask(talk, 600),
              {{IbOperation::read_response_first, 256},
               {IbOperation::read_response_middle, 100},
               {IbOperation::read_response_last, 88}});
     })},
    {"AnswerWithAShortLast", "wrong-length", roce([](RoceTalk& talk) {
       answer(talk, ask(talk, 600),
              {{IbOperation::read_response_first, 256},
               {IbOperation::read_response_middle, 256},
               {IbOperation::read_response_last, 80}});
     })},
    {"AnswerWithoutFirst", "bad-header", roce([](RoceTalk& talk) {
       answer(talk, ask(talk, 512),
              {{IbOperation::read_response_middle, 256}, {IbOperation::read_response_last, 256}});
     })},
    {"AnswerWithoutLast", "bad-header", roce([](RoceTalk& talk) {
       answer(talk, ask(talk, 512),
              {{IbOperation::read_response_first, 256}, {IbOperation::read_response_middle, 256}});
     })},
    {"AnswerWithTwoFirsts", "bad-header", roce([](RoceTalk& talk) {
       answer(talk, ask(talk, 600),
              {{IbOperation::read_response_first, 256},
               {IbOperation::read_response_first, 256},
               {IbOperation::read_response_last, 88}});
     })},
    {"AnswerThatEndsEarly", "bad-header", roce([](RoceTalk& talk) {
       answer(talk, ask(talk, 600),
              {{IbOperation::read_response_first, 256}, {IbOperation::read_response_last, 256}});
     })},
    {"RequestWithPayload", "wrong-length",
     roce([](RoceTalk& talk) { (void)ask(talk, 50, Content(20)); })},
    {"ShortFirstOfSend", "wrong-length", roce([](RoceTalk& talk) {
       const std::uint32_t psn = talk.next_psn(Side::a);
       talk.packet(Side::a, headers(IbOperation::send_first, psn), Content(254));
       talk.packet(Side::a, headers(IbOperation::send_last, psn + 1), Content(20));
     })},
    {"SendFirstTwice", "bad-header", roce([](RoceTalk& talk) {
       const std::uint32_t psn = talk.next_psn(Side::a);
       talk.packet(Side::a, headers(IbOperation::send_first, psn), Content(256));
       talk.packet(Side::a, headers(IbOperation::send_first, psn + 1), Content(256));
     })},
    {"Pad", "wrong-length", roce([](RoceTalk& talk) {
       talk.set_pad(0);
       talk.packet(Side::a, headers(IbOperation::send_only, talk.next_psn(Side::a)), Content(50));
     })},
    {"PadOfDatagram", "wrong-length",
     [](MadeCapture& capture) {
       RoceTalk talk(capture, {.transport = IbTransport::ud});
       talk.set_pad(1);
       wire::IbHeaders datagram;
       datagram.bth.opcode = {IbTransport::ud, IbOperation::send_only};
       datagram.deth = {.queue_key = 1, .source_qp = 0x11};
       talk.packet(Side::a, datagram, Content(50));
     }},
};

// --- All of them ---------------------------------------------------------------------------------

class RuleFindings : public testing::TestWithParam<Broken> {};

TEST_P(RuleFindings, WhatBreaksARuleIsFound) {
  struct Log final : FindingSink {
    void on_finding(const Finding& finding) override {
      kinds.insert(std::string(finding.kind));
      EXPECT_FALSE(finding.stamps.empty()) << finding.sentence;
    }
    std::set<std::string> kinds;
  } log;
  MadeCapture capture;
  GetParam().make(capture);
  find_in(capture, log);
  EXPECT_EQ(log.kinds.count(GetParam().kind), 1U)
      << "found instead: " << testing::PrintToString(log.kinds);
}

std::string name_of(const testing::TestParamInfo<Broken>& test_case) {
  return test_case.param.name;
}

INSTANTIATE_TEST_SUITE_P(Iwarp, RuleFindings, testing::ValuesIn(broken_iwarp), name_of);
INSTANTIATE_TEST_SUITE_P(Roce, RuleFindings, testing::ValuesIn(broken_roce), name_of);

}  // namespace
}  // namespace weft::capture::test
