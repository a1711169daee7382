// Checks captures with an independent reader: tshark, which verifies every checksum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "capture_support.h"
#include "device/tap/capture_tap.h"

namespace weft::device {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::string output;
  char buffer[4096];
  while (const std::size_t bytes = ::fread(buffer, 1, sizeof buffer, pipe.get())) {
    output.append(buffer, bytes);
  }
  return output;
}

bool have_tshark() {
  return !output_of("command -v tshark").empty();
}

std::string tshark(const std::string& file, const std::string& arguments) {
  return output_of("tshark -n -r '" + file +
                   "' -o tcp.check_checksum:TRUE -o ip.check_checksum:TRUE "
                   "--disable-protocol rpcordma " +
                   arguments + " 2>/dev/null");
}

std::vector<std::string> lines_with(const std::string& text, const std::string& what) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(what) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

constexpr std::size_t mpa_bytes = 20;

// RFC 5044 §7.1: key, flags with C, revision 1, no private data.
std::vector<std::byte> mpa_frame(const char* key) {
  std::vector<std::byte> bytes(mpa_bytes);
  std::memcpy(bytes.data(), key, 16);
  bytes[16] = std::byte{0x40};
  bytes[17] = std::byte{1};
  return bytes;
}

// One FPDU: an RDMAP Send of `payload_bytes` on queue 0, message `msn`.
std::vector<std::byte> send_fpdu(std::size_t payload_bytes, std::uint32_t msn) {
  const std::size_t ulpdu_bytes = 18 + payload_bytes;
  const std::size_t padded = (2 + ulpdu_bytes + 3) / 4 * 4;
  std::vector<std::byte> bytes(padded + 4);
  store_be(bytes.data(), static_cast<std::uint16_t>(ulpdu_bytes));
  bytes[2] = std::byte{0x41};  // untagged, last, DDP version 1
  bytes[3] = std::byte{0x43};  // RDMAP version 1, Send
  store_be(bytes.data() + 12, msn);
  const auto payload = pattern(payload_bytes);
  std::copy(payload.begin(), payload.end(), bytes.begin() + 20);
  store_le(bytes.data() + padded, crc32c(Bytes(bytes).first(padded)));
  return bytes;
}

class CaptureTshark : public CaptureTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (!have_tshark()) GTEST_SKIP() << "tshark is not installed";
    CaptureTest::SetUp();
    file_ = open(path());
    tap_ = std::make_unique<ConnectionTap>(file_, address_of(GetParam(), 40'000),
                                           address_of(GetParam(), 7471), true);
    send(mpa_frame("MPA ID Req Frame"));
    receive(mpa_frame("MPA ID Rep Frame"));
  }

  void tap_other_end() {
    // Behind the MPA frames.
    peer_ = std::make_unique<ConnectionTap>(
        file_, address_of(GetParam(), 7471), address_of(GetParam(), 40'000), false,
        StreamPosition{.sent = mpa_bytes, .received = mpa_bytes});
  }
  void send(Bytes bytes) {
    const iovec piece = piece_of(bytes);
    tap_->sent({&piece, 1}, bytes.size());
    if (peer_) peer_->received({&piece, 1}, bytes.size());
  }
  void receive(Bytes bytes) {
    const iovec piece = piece_of(bytes);
    if (peer_) peer_->sent({&piece, 1}, bytes.size());
    tap_->received({&piece, 1}, bytes.size());
  }

  // Closes the connection and lets tshark check the whole capture.
  void expect_good_fpdus(int count) {
    tap_.reset();
    peer_.reset();
    const auto crc = lines_with(tshark(path(), "-V -Y iwarp_mpa"), "CRC check:");
    EXPECT_EQ(crc.size(), static_cast<std::size_t>(count));
    EXPECT_THAT(crc, testing::Each(HasSubstr("(Good CRC32)")));
    // Bad and unverified checksums; retransmissions, lost segments and full windows.
    EXPECT_EQ(tshark(path(),
                     "-Y '_ws.malformed || tcp.checksum.status != 1 || "
                     "(ip && ip.checksum.status != 1) || tcp.analysis.flags'"),
              "");
  }

 private:
  std::shared_ptr<CaptureFile> file_;
  std::unique_ptr<ConnectionTap> tap_;
  std::unique_ptr<ConnectionTap> peer_;  // of the other end, if that is captured as well
};

TEST_P(CaptureTshark, ReadsAnIwarpConnection) {
  send(send_fpdu(61, 1));
  send(send_fpdu(60'000, 2));
  receive(send_fpdu(1, 1));
  expect_good_fpdus(3);
  const auto protocols = tshark(path(), "-Y iwarp_mpa -T fields -e frame.protocols");
  EXPECT_THAT(lines_with(protocols, "iwarp_mpa"), SizeIs(5));
  EXPECT_THAT(lines_with(protocols, "iwarp_mpa:iwarp_ddp_rdmap"), SizeIs(3));
  EXPECT_THAT(lines_with(tshark(path(), "-T fields -e frame.interface_name"), "weft0"), SizeIs(11));
}

TEST_P(CaptureTshark, FollowsFpdusOverSegments) {
  for (const std::size_t first : {8, 30, 120, 123}) {  // 123: all but one byte of the CRC
    const auto fpdu = send_fpdu(100, 1);
    send(Bytes(fpdu).first(first));
    send(Bytes(fpdu).subspan(first));
  }
  // One write of whole FPDUs; the TCP segments end anywhere inside them.
  std::vector<std::byte> many;
  for (std::uint32_t msn = 5; msn < 25; ++msn) {
    const auto fpdu = send_fpdu(64'746, msn);
    many.insert(many.end(), fpdu.begin(), fpdu.end());
  }
  send(many);
  expect_good_fpdus(24);
}

// A client and a server in one process.
TEST_P(CaptureTshark, ReadsAConnectionWithTapsAtBothEnds) {
  tap_other_end();
  for (std::uint32_t msn = 1; msn <= 20; ++msn) {
    send(send_fpdu(100 * msn, msn));
    receive(send_fpdu(60'000, msn));
  }
  expect_good_fpdus(40);
}

INSTANTIATE_TEST_SUITE_P(Families, CaptureTshark, testing::Values("10.1.2.3", "fd00::3"),
                         [](const auto& family) { return family.index == 0 ? "Ipv4" : "Ipv6"; });

}  // namespace
}  // namespace weft::device
