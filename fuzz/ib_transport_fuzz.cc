// The headers of InfiniBand. The input is the number of bytes that were cut off at the end, in one
// byte, and a packet from the BTH on.
#include "fuzz/fuzz.h"
#include "wire/ib_transport.h"
#include "wire/icrc.h"

namespace weft::fuzz {
namespace {

void check_headers(Bytes bytes) {
  const auto headers = wire::IbHeaders::parse(bytes);
  if (!headers) return;
  require_stable(*headers, headers->size());
  require(*wire::describe(headers->bth.opcode.transport) != '\0');
  require(*wire::describe(headers->bth.opcode.operation) != '\0');
  require(wire::rnr_timer_us(headers->aeth.value()) >= 10);
}

void check_view(Bytes bytes, std::size_t wire_bytes) {
  const auto view = wire::IbPacketView::check(bytes, wire_bytes);
  if (!view) return;
  const auto& headers = view->headers();
  require(headers.size() + view->payload_wire_bytes() + headers.bth.pad_bytes +
              wire::IbPacketView::icrc_bytes ==
          wire_bytes);
  require(view->payload().size() <= view->payload_wire_bytes());
  require(view->icrc().has_value() == (bytes.size() >= wire_bytes));
  (void)wire::Icrc::roce_v2(bytes, view->covered()).value();
  (void)wire::Icrc::native(bytes, view->covered()).value();
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  if (size == 0) return 0;
  const Bytes packet = fuzz::input_bytes(data, size).subspan(1);
  fuzz::check_headers(packet);
  fuzz::check_view(packet, packet.size() + data[0]);
  return 0;
}
