#include "flow.h"

#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace weft::test {
namespace {

Content inflated(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  const std::string packed{std::istreambuf_iterator<char>(file), {}};
  constexpr std::size_t most_bytes = 4'000'000;
  Content bytes(most_bytes);
  uLongf size = most_bytes;
  if (uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size,
                 reinterpret_cast<const Bytef*>(packed.data()), packed.size()) != Z_OK) {
    throw std::runtime_error("damaged: " + path);
  }
  bytes.resize(size);
  return bytes;
}

class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_(bytes) {}
  Bytes take(std::size_t bytes) {
    if (rest_.size() < bytes) throw std::runtime_error("a flow is cut off");
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  std::uint32_t number() { return load_be<std::uint32_t>(take(4).data()); }

 private:
  Bytes rest_;
};

}  // namespace

std::vector<Flow> load_flows(const std::string& name) {
  const auto bytes = inflated(std::string(WEFT_TEST_DATA) + "/" + name + ".flow");
  Reader reader(bytes);
  if (!std::ranges::equal(reader.take(8), text("WEFTFLOW"))) {
    throw std::runtime_error("not a flow: " + name);
  }
  std::vector<Flow> flows(reader.number());
  for (auto& flow : flows) {
    flow.resize(reader.number());
    for (auto& record : flow) {
      record.from = Side{std::to_integer<std::uint8_t>(reader.take(1)[0])};
      const auto payload = reader.take(reader.number());
      record.bytes.assign(payload.begin(), payload.end());
    }
  }
  return flows;
}

Stream stream_of(const Flow& flow, Side side) {
  Content all;
  std::vector<std::size_t> record_of;  // for each byte
  for (std::size_t i = 0; i < flow.size(); ++i) {
    if (flow[i].from != side) continue;
    all = joined(all, flow[i].bytes);
    record_of.resize(all.size(), i);
  }
  const auto frame = wire::MpaFrameView::check(all);
  if (!frame) throw std::runtime_error("no MPA frame");
  Stream stream{.frame = {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(frame->size())},
                .fpdus = {}};
  std::size_t at = frame->size();
  while (at < all.size()) {
    const auto view = wire::FpduView::check(Bytes(all).subspan(at));
    if (!view) throw std::runtime_error("an FPDU is cut off");
    const auto ulpdu = view->ulpdu();
    stream.fpdus.push_back({{{ulpdu.begin(), ulpdu.end()}}, record_of[at]});
    at += view->size();
  }
  return stream;
}

}  // namespace weft::test
