// An independent reader's opinion of a capture: tshark, with every checksum verified.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "capture_support.h"
#include "device/capture_tap.h"

namespace weft::device {
namespace {

using testing::HasSubstr;
using testing::Not;

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

// RFC 5044 §7.1: key, flags with C, revision 1, no private data.
std::vector<std::byte> mpa_frame(const char* key) {
  std::vector<std::byte> bytes(20);
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
  }
};

TEST_P(CaptureTshark, ReadsAnIwarpConnection) {
  {
    const auto file = open(path());
    ConnectionTap tap(file, address_of(GetParam(), 40'000), address_of(GetParam(), 7471), true);
    const auto request = mpa_frame("MPA ID Req Frame");
    const auto reply = mpa_frame("MPA ID Rep Frame");
    const auto first = send_fpdu(61, 1);
    const auto second = send_fpdu(60'000, 2);
    const auto answer = send_fpdu(1, 1);
    const iovec pieces[] = {piece_of(request), piece_of(reply), piece_of(first), piece_of(second),
                            piece_of(answer)};
    tap.sent({&pieces[0], 1}, request.size());
    tap.received({&pieces[1], 1}, reply.size());
    tap.sent({&pieces[2], 1}, first.size());
    tap.sent({&pieces[3], 1}, second.size());
    tap.received({&pieces[4], 1}, answer.size());
  }
  const auto all = tshark(path(), "-V");
  EXPECT_THAT(all, HasSubstr("[Good CRC32]"));
  EXPECT_THAT(all, Not(HasSubstr("Bad CRC32")));
  EXPECT_THAT(all, Not(HasSubstr("Malformed")));
  EXPECT_THAT(all, HasSubstr("[Checksum Status: Good]"));
  EXPECT_EQ(tshark(path(),
                   "-Y '_ws.malformed || tcp.checksum.status == 0 || "
                   "ip.checksum.status == 0 || tcp.analysis.flags'"),
            "");
  EXPECT_EQ(tshark(path(), "-Y iwarp_mpa.req -T fields -e tcp.payload").substr(0, 8), "4d504120");
  const auto protocols = tshark(path(), "-Y iwarp_mpa -T fields -e frame.protocols");
  EXPECT_EQ(std::count(protocols.begin(), protocols.end(), '\n'), 5) << protocols;
  EXPECT_THAT(protocols, HasSubstr("iwarp_mpa:iwarp_ddp_rdmap"));
  EXPECT_THAT(all, HasSubstr("Interface name: weft0"));
}

INSTANTIATE_TEST_SUITE_P(Families, CaptureTshark, testing::Values("10.1.2.3", "fd00::3"),
                         [](const auto& parameter) {
                           return parameter.index == 0 ? "Ipv4" : "Ipv6";
                         });

}  // namespace
}  // namespace weft::device
