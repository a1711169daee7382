// Where packets come from and what they are wrapped in: the same conversation comes out whatever
// the link layer, the fragments and the files are.
#include <bzlib.h>
#include <gtest/gtest.h>
#include <lz4frame.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "base/bytes.h"
#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "capture/traffic_log.h"
#include "weft/capture/packet_source.hpp"

namespace weft::capture::test {
namespace {

constexpr std::size_t ethernet_bytes = 14;
constexpr std::size_t ipv4_bytes = 20;
constexpr std::size_t ipv6_bytes = 40;

// Both transports, interleaved; every byte is known.
MadeCapture conversation(bool ipv6 = false) {
  MadeCapture capture;
  IwarpTalk iwarp(capture, {.ipv6 = ipv6}, {});
  iwarp.connect();
  Operator operations(iwarp, Side::a);
  RoceTalk roce(capture,
                {.carrier = ipv6 ? RoceOptions::Carrier::ipv6 : RoceOptions::Carrier::ipv4});
  roce.connect();
  for (const std::size_t size : {1U, 300U, 2'000U}) {
    operations.send(size);
    roce.write(Side::a, 7, 0x1000, size);
    operations.read(9, 0x2000, size);
    roce.read(Side::b, 8, 0x3000, size);
  }
  iwarp.close();
  std::int64_t time_ns = 1'000'000'000;
  for (MadePacket& packet : capture) packet.time_ns = time_ns += 1'000;
  return capture;
}

struct Seen {
  Analysis analysis;
  TrafficLog traffic;
  OperationLog operations;

  Seen() {
    analysis.add_sink(traffic);
    analysis.add_operations(operations);
  }
  explicit Seen(const MadeCapture& capture) : Seen() { feed(analysis, capture); }

  void read(PacketSource& source) {
    RawPacket packet;
    while (source.next(packet)) analysis.add(packet);
  }
};

void expect_all(const Seen& seen) {
  EXPECT_EQ(seen.analysis.connections().size(), 2U);
  EXPECT_EQ(seen.operations.operations.size(), 12U);
  EXPECT_TRUE(std::ranges::all_of(seen.operations.operations, [](const Operation& one) {
    return one.outcome == Operation::Outcome::complete;
  }));
  EXPECT_EQ(seen.traffic.lost_bytes + seen.traffic.lost_packets, 0U);
  EXPECT_TRUE(seen.traffic.violations.empty());
  expect_known_bytes(seen.traffic);
}

// --- Link layers ---------------------------------------------------------------------------------

void append_be16(Content& out, std::size_t value) {
  out.push_back(static_cast<std::byte>(value >> 8));
  out.push_back(static_cast<std::byte>(value));
}

// Ethernet's header replaced by another, with the type that was there.
using Header = std::function<Content(Bytes ethernet)>;

MadeCapture wrapped(std::uint16_t link_type, const Header& header, bool ipv6 = false) {
  MadeCapture capture = conversation(ipv6);
  for (MadePacket& packet : capture) {
    const Bytes whole = packet.bytes;
    Content bytes = header(whole);
    bytes.insert(bytes.end(), packet.bytes.begin() + ethernet_bytes, packet.bytes.end());
    packet.link_type = link_type;
    packet.wire_bytes = bytes.size();
    packet.bytes = std::move(bytes);
  }
  return capture;
}

Content tagged(Bytes ethernet, std::initializer_list<std::uint16_t> tags) {
  Content out(ethernet.begin(), ethernet.begin() + 12);
  for (const std::uint16_t tag : tags) {
    append_be16(out, tag);
    append_be16(out, 42);  // the VLAN
  }
  out.insert(out.end(), ethernet.begin() + 12, ethernet.begin() + ethernet_bytes);
  return out;
}

TEST(LinkLayers, EthernetMayHaveOneTagOrTwo) {
  expect_all(Seen(wrapped(1, [](Bytes ethernet) { return tagged(ethernet, {0x8100}); })));
  expect_all(Seen(wrapped(1, [](Bytes ethernet) { return tagged(ethernet, {0x88A8, 0x8100}); })));
  expect_all(Seen(wrapped(1, [](Bytes ethernet) { return tagged(ethernet, {0x9100, 0x8100}); })));
}

TEST(LinkLayers, LinuxCooked) {
  expect_all(Seen(wrapped(113, [](Bytes ethernet) {
    Content out(14);
    out.insert(out.end(), ethernet.begin() + 12, ethernet.begin() + 14);
    return out;
  })));
  expect_all(Seen(wrapped(276, [](Bytes ethernet) {
    Content out(ethernet.begin() + 12, ethernet.begin() + 14);
    out.resize(20);
    return out;
  })));
}

TEST(LinkLayers, RawIpAndLoopback) {
  for (const bool ipv6 : {false, true}) {
    expect_all(Seen(wrapped(
        101, [](Bytes) { return Content(); }, ipv6)));
    const auto family = static_cast<std::byte>(ipv6 ? 30 : 2);
    expect_all(Seen(wrapped(
        0,
        [family](Bytes) {
          return Content{family, {}, {}, {}};
        },
        ipv6)));
    expect_all(Seen(wrapped(
        108,
        [family](Bytes) {
          return Content{{}, {}, {}, family};
        },
        ipv6)));
  }
}

Content erf(std::uint8_t type, std::size_t wire_bytes, bool extension) {
  Content out(extension ? 24 : 16);  // first the time, which the capture file has too
  out[8] = static_cast<std::byte>(type | (extension ? 0x80U : 0U));
  store_be(&out[10], static_cast<std::uint16_t>(16 + wire_bytes));
  store_be(&out[14], static_cast<std::uint16_t>(wire_bytes));
  return out;
}

TEST(LinkLayers, ErfWithEthernetOrIpAndExtensions) {
  for (const bool extension : {false, true}) {
    MadeCapture capture = conversation();
    for (MadePacket& packet : capture) {
      Content bytes = erf(2, packet.bytes.size(), extension);
      bytes.resize(bytes.size() + 2);  // Ethernet's offset and padding
      bytes.insert(bytes.end(), packet.bytes.begin(), packet.bytes.end());
      packet.link_type = 197;
      packet.wire_bytes = bytes.size();
      packet.bytes = std::move(bytes);
    }
    expect_all(Seen(capture));
    // The capture file does not pad, so the length is that of the packet.
    MadeCapture of_ip = conversation();
    for (MadePacket& packet : of_ip) {
      Content bytes = erf(22, packet.bytes.size() - ethernet_bytes, extension);
      bytes.insert(bytes.end(), packet.bytes.begin() + ethernet_bytes, packet.bytes.end());
      packet.link_type = 197;
      packet.wire_bytes = bytes.size();
      packet.bytes = std::move(bytes);
    }
    expect_all(Seen(of_ip));
  }
}

TEST(LinkLayers, ErfWithNativeInfiniband) {
  MadeCapture capture;
  RoceTalk talk(capture, {.carrier = RoceOptions::Carrier::native_global});
  talk.write(Side::a, 7, 0x1000, 700);
  for (MadePacket& packet : capture) {
    Content bytes = erf(21, packet.bytes.size(), true);
    bytes.insert(bytes.end(), packet.bytes.begin(), packet.bytes.end());
    packet.link_type = 197;
    packet.wire_bytes = bytes.size();
    packet.bytes = std::move(bytes);
  }
  const Seen seen(capture);
  ASSERT_EQ(seen.operations.operations.size(), 1U);
  EXPECT_EQ(seen.operations.operations[0].bytes, 700U);
  expect_known_bytes(seen.traffic);
}

TEST(LinkLayers, WhatIsNotKnownIsCounted) {
  MadeCapture capture = conversation();
  for (MadePacket& packet : capture) packet.link_type = 147;  // of private use
  const Seen seen(capture);
  EXPECT_EQ(seen.analysis.packet_counts().unknown_link, capture.size());
  EXPECT_EQ(seen.analysis.connections().size(), 0U);
}

// --- Fragments -----------------------------------------------------------------------------------

// In pieces of at most `piece_bytes`, a multiple of 8.
MadeCapture fragmented(const MadeCapture& whole, std::size_t piece_bytes, bool ipv6) {
  MadeCapture out;
  std::uint16_t id = 0;
  for (const MadePacket& packet : whole) {
    ++id;
    const std::size_t header_bytes = ethernet_bytes + (ipv6 ? ipv6_bytes : ipv4_bytes);
    const Bytes payload = Bytes(packet.bytes).subspan(header_bytes);
    if (payload.size() <= piece_bytes) {
      out.push_back(packet);
      continue;
    }
    for (std::size_t at = 0; at < payload.size(); at += piece_bytes) {
      const Bytes piece = payload.subspan(at, std::min(piece_bytes, payload.size() - at));
      const bool more = at + piece.size() < payload.size();
      Content bytes(packet.bytes.begin(),
                    packet.bytes.begin() + static_cast<std::ptrdiff_t>(header_bytes));
      std::byte* ip = bytes.data() + ethernet_bytes;
      if (ipv6) {
        store_be(ip + 4, static_cast<std::uint16_t>(8 + piece.size()));
        bytes.push_back(ip[6]);
        bytes[ethernet_bytes + 6] = std::byte{44};
        bytes.push_back({});
        append_be16(bytes, at | (more ? 1U : 0U));
        append_be16(bytes, 0);
        append_be16(bytes, id);
      } else {
        store_be(ip + 2, static_cast<std::uint16_t>(ipv4_bytes + piece.size()));
        store_be(ip + 4, id);
        store_be(ip + 6, static_cast<std::uint16_t>(at / 8 | (more ? 0x2000U : 0U)));
      }
      bytes.insert(bytes.end(), piece.begin(), piece.end());
      out.push_back({.time_ns = packet.time_ns, .bytes = bytes, .wire_bytes = bytes.size()});
    }
  }
  return out;
}

class Fragments : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, Fragments, testing::Bool(),
                         [](const auto& test_case) { return test_case.param ? "Ipv6" : "Ipv4"; });

TEST_P(Fragments, ArePutTogether) {
  expect_all(Seen(fragmented(conversation(GetParam()), 128, GetParam())));
}

TEST_P(Fragments, MayComeInAnyOrder) {
  MadeCapture capture = fragmented(conversation(GetParam()), 128, GetParam());
  // The pieces of one packet in turn.
  for (auto begin = capture.begin(); begin != capture.end();) {
    const auto end = std::find_if(begin, capture.end(), [&](const MadePacket& packet) {
      return packet.time_ns != begin->time_ns;
    });
    std::reverse(begin, end);
    begin = end;
  }
  expect_all(Seen(capture));
}

TEST_P(Fragments, OneThatIsMissingIsNeverSilentlyWrong) {
  const MadeCapture whole = fragmented(conversation(GetParam()), 256, GetParam());
  for (std::size_t missing = 0; missing < whole.size(); ++missing) {
    MadeCapture capture = whole;
    capture.erase(capture.begin() + static_cast<std::ptrdiff_t>(missing));
    expect_known_bytes(Seen(capture).traffic);
  }
}

TEST(ExtensionHeaders, AreSkipped) {
  MadeCapture capture;
  IwarpTalk iwarp(capture, {.ipv6 = true}, {});
  iwarp.connect();
  Operator(iwarp, Side::a).send(500);
  for (MadePacket& packet : capture) {
    // Hop-by-hop and destination options, 8 bytes each, of padding (RFC 8200 §4.2).
    const std::byte next = packet.bytes[ethernet_bytes + 6];
    const Content options{std::byte{60}, {}, std::byte{1}, std::byte{4}, {}, {}, {}, {},
                          next,          {}, std::byte{1}, std::byte{4}, {}, {}, {}, {}};
    packet.bytes[ethernet_bytes + 6] = std::byte{0};
    packet.bytes.insert(packet.bytes.begin() + ethernet_bytes + ipv6_bytes, options.begin(),
                        options.end());
    std::byte* length = packet.bytes.data() + ethernet_bytes + 4;
    store_be(length, static_cast<std::uint16_t>(load_be<std::uint16_t>(length) + options.size()));
    packet.wire_bytes = packet.bytes.size();
  }
  const Seen seen(capture);
  ASSERT_EQ(seen.traffic.sends.size(), 1U);
  EXPECT_TRUE(seen.traffic.sends.begin()->second.whole());
  expect_known_bytes(seen.traffic);
}

// --- Files ---------------------------------------------------------------------------------------

class Files : public testing::Test {
 protected:
  Files() {
    std::string pattern = testing::TempDir() + "weft-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Files() override { (void)std::system(("rm -rf " + folder_).c_str()); }

  std::string write(const std::string& name, Bytes bytes) {
    std::string path = folder_ + "/" + name;
    append(path, bytes);
    return path;
  }
  static void append(const std::string& path, Bytes bytes) {
    std::ofstream(path, std::ios::binary | std::ios::app)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  std::string folder_;
};

Content gzipped(Bytes bytes) {
  Content out(compressBound(bytes.size()) + 64);
  z_stream stream{};
  constexpr int gzip_window = 15 + 16;
  deflateInit2(&stream, 6, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Microseconds in network order, as old big machines wrote it.
Content big_endian_pcap(const MadeCapture& capture) {
  Content out;
  const auto append = [&out](std::uint32_t value) {
    out.resize(out.size() + 4);
    store_be(out.data() + out.size() - 4, value);
  };
  append(0xA1B2C3D4);
  append(0x0002'0004);
  for (const std::uint32_t value : {0U, 0U, 262'144U, 1U}) append(value);
  for (const MadePacket& packet : capture) {
    append(static_cast<std::uint32_t>(packet.time_ns / 1'000'000'000));
    append(static_cast<std::uint32_t>(packet.time_ns % 1'000'000'000 / 1'000));
    append(static_cast<std::uint32_t>(packet.bytes.size()));
    append(static_cast<std::uint32_t>(packet.wire_bytes));
    out.insert(out.end(), packet.bytes.begin(), packet.bytes.end());
  }
  return out;
}

TEST_F(Files, PcapOfBothByteOrdersFromMemory) {
  for (const Content& file : {pcap_file(conversation()), big_endian_pcap(conversation())}) {
    Seen seen;
    const auto source = read_capture(bytes_in_memory(file), "made");
    seen.read(*source);
    seen.analysis.finish();
    EXPECT_EQ(source->problem() + source->leftover(), "");
    expect_all(seen);
  }
}

TEST_F(Files, GzipInSeveralMembers) {
  const Content file = pcap_file(conversation());
  Content packed = gzipped(Bytes(file).first(1'000));
  const Content rest = gzipped(Bytes(file).subspan(1'000));
  packed.insert(packed.end(), rest.begin(), rest.end());
  Seen seen;
  const auto source = open_capture(write("made.pcap.gz", packed));
  seen.read(*source);
  seen.analysis.finish();
  EXPECT_EQ(source->problem(), "");
  expect_all(seen);
}

Content xz(Bytes bytes) {
  Content packed(bytes.size() + 1'000);
  std::size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(
                6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const std::uint8_t*>(bytes.data()),
                bytes.size(), reinterpret_cast<std::uint8_t*>(packed.data()), &size, packed.size()),
            LZMA_OK);
  packed.resize(size);
  return packed;
}

Content bzip2(Bytes bytes) {
  Content packed(bytes.size() + 1'000);
  auto size = static_cast<unsigned>(packed.size());
  std::vector<char> plain(bytes.size());
  std::memcpy(plain.data(), bytes.data(), bytes.size());
  EXPECT_EQ(BZ2_bzBuffToBuffCompress(reinterpret_cast<char*>(packed.data()), &size, plain.data(),
                                     static_cast<unsigned>(plain.size()), 9, 0, 0),
            BZ_OK);
  packed.resize(size);
  return packed;
}

Content lz4(Bytes bytes) {
  LZ4F_preferences_t wanted{};
  wanted.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  Content packed(LZ4F_compressFrameBound(bytes.size(), &wanted));
  const std::size_t size =
      LZ4F_compressFrame(packed.data(), packed.size(), bytes.data(), bytes.size(), &wanted);
  EXPECT_EQ(LZ4F_isError(size), 0U);
  packed.resize(size);
  return packed;
}

// In two streams behind each other, as parallel compressors write them; and damaged.
TEST_F(Files, XzBzip2AndLz4) {
  const Content file = pcap_file(conversation());
  for (Content (*const pack)(Bytes) : {&xz, &bzip2, &lz4}) {
    Content packed = pack(Bytes(file).first(1'000));
    const std::size_t first = packed.size();
    const Content rest = pack(Bytes(file).subspan(1'000));
    packed.insert(packed.end(), rest.begin(), rest.end());
    Seen seen;
    const auto source = open_capture(write("made" + std::to_string(first), packed));
    seen.read(*source);
    seen.analysis.finish();
    EXPECT_EQ(source->problem() + source->leftover(), "");
    expect_all(seen);

    packed[first + rest.size() / 2] ^= std::byte{0x55};
    Seen partly;
    const auto damaged = open_capture(write("damaged" + std::to_string(first), packed));
    partly.read(*damaged);
    EXPECT_NE(damaged->problem(), "");
    expect_known_bytes(partly.traffic);
  }
}

// Each cut anywhere in the file: what was there is read, and the rest is taken when it comes.
TEST_F(Files, AFileMayGrow) {
  const Content file = pcap_file(conversation());
  for (const std::size_t first : {24U, 30U, 41U, 2'000U}) {
    const std::string path = write("growing" + std::to_string(first), Bytes(file).first(first));
    Seen seen;
    const auto source = open_capture(path);
    seen.read(*source);
    EXPECT_EQ(source->problem(), "");
    EXPECT_LT(seen.analysis.totals().frames, 30U);
    append(path, Bytes(file).subspan(first));
    seen.read(*source);
    seen.analysis.finish();
    EXPECT_EQ(source->problem() + source->leftover(), "");
    expect_all(seen);
  }
}

TEST_F(Files, APacketThatIsThereInPartIsSaid) {
  const Content file = pcap_file(conversation());
  const auto source = open_capture(write("cut", Bytes(file).first(file.size() - 1)));
  Seen seen;
  seen.read(*source);
  EXPECT_EQ(source->problem(), "");
  EXPECT_NE(source->leftover(), "");
}

// Rotated files, given in the wrong order, and two captures of the same time are one trace.
TEST_F(Files, SeveralAreOneTraceInTheOrderOfTime) {
  const MadeCapture whole = conversation();
  std::array<MadeCapture, 3> rotated;
  std::array<MadeCapture, 2> interleaved;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    rotated[3 * i / whole.size()].push_back(whole[i]);
    interleaved[i % 2].push_back(whole[i]);
  }
  const std::vector<std::string> in_turn{write("r3", pcap_file(rotated[2])),
                                         write("r1", pcap_file(rotated[0])),
                                         write("r2", pcap_file(rotated[1]))};
  const std::vector<std::string> at_a_time{write("i1", pcap_file(interleaved[0])),
                                           write("i2", pcap_file(interleaved[1]))};
  for (const auto& files : {in_turn, at_a_time}) {
    Seen seen;
    const auto source = merge_captures(files);
    seen.read(*source);
    seen.analysis.finish();
    EXPECT_EQ(source->problem(), "");
    EXPECT_EQ(seen.analysis.totals().frames, whole.size());
    expect_all(seen);
  }
}

// Writes `capture` with these times, and with the letter as the content of each packet.
Content lettered(char letter, const std::vector<std::int64_t>& times) {
  MadeCapture capture;
  for (const std::int64_t time_ns : times) {
    capture.push_back({.time_ns = time_ns, .bytes = Content(60, static_cast<std::byte>(letter))});
  }
  return pcap_file(capture);
}

std::string letters_of(const std::vector<std::string>& files) {
  std::string letters;
  const auto source = merge_captures(files);
  RawPacket packet;
  while (source->next(packet)) letters += static_cast<char>(packet.bytes[0]);
  return letters;
}

// Of packets with equal times, those of the file that begins first are first, and of files that
// begin at the same time those of the file that is named first.
TEST_F(Files, EqualTimesHaveADefinedOrder) {
  const std::string a = write("a", lettered('a', {5, 5, 7}));
  const std::string b = write("b", lettered('b', {5, 5, 7, 8}));
  const std::string c = write("c", lettered('c', {1, 5}));
  EXPECT_EQ(letters_of({a, b}), "aabbabb");
  EXPECT_EQ(letters_of({b, a}), "bbaabab");
  // The packets of c at 5 are the end of a rotated file, so they precede those of a and b.
  for (const auto& files : {std::vector{a, b, c}, std::vector{a, c, b}, std::vector{c, a, b}}) {
    EXPECT_EQ(letters_of(files), "ccaabbabb");
  }
}

}  // namespace
}  // namespace weft::capture::test
