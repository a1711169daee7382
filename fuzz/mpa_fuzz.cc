// MPA: request and reply frames, FPDUs and markers.
#include "fuzz/fuzz.h"
#include "wire/mpa.h"

namespace weft::fuzz {
namespace {

void check_frame(Bytes bytes) {
  const auto view = wire::MpaFrameView::check(bytes);
  if (!view) return;
  require(view->size() <= bytes.size());
  const std::size_t enhanced_bytes = view->enhanced() ? wire::MpaEnhanced::header_bytes : 0;
  require(wire::MpaFrame::header_bytes + enhanced_bytes + view->user_data().size() == view->size());
}

void check_fpdu(Bytes bytes) {
  const auto view = wire::FpduView::check(bytes);
  if (!view) return;
  require(view->size() <= bytes.size());
  require(view->size() == wire::fpdu_bytes(view->ulpdu().size()));
  require(view->crc_good() == wire::fpdu_crc_good(bytes.first(view->size())));
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto bytes = fuzz::input_bytes(data, size);
  fuzz::require_stable_parse<wire::MpaFrame>(bytes);
  fuzz::require_stable_parse<wire::MpaEnhanced>(bytes);
  if (const auto marker = wire::Marker::parse(bytes)) {
    fuzz::require_stable(*marker, wire::marker_bytes);
  }
  fuzz::check_frame(bytes);
  fuzz::check_fpdu(bytes);
  return 0;
}
