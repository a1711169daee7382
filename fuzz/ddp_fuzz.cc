// DDP segments. Views and values must agree, and the values must be stable.
#include "fuzz/fuzz.h"
#include "wire/ddp.h"

namespace weft::fuzz {
namespace {

template <typename View, typename Header>
void check_segment(Bytes segment) {
  const auto view = View::check(segment);
  const auto header = Header::parse(segment);
  require(view.ok() == header.ok());
  if (!view) return require(view.error() == header.error());
  require(view->last() == header->last);
  require(view->rdmap_control() == header->rdmap_control);
  require(view->payload().size() + Header::header_bytes == segment.size());
  require_stable(*header, Header::header_bytes);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto segment = fuzz::input_bytes(data, size);
  fuzz::check_segment<wire::TaggedView, wire::DdpTagged>(segment);
  fuzz::check_segment<wire::UntaggedView, wire::DdpUntagged>(segment);
  return 0;
}
