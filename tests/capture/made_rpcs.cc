#include "capture/made_rpcs.h"

#include <array>
#include <unordered_map>

#include "capture/made_roce.h"
#include "support/fpdu.h"

namespace weft::capture::test {
namespace {

constexpr std::int64_t first_ns = 1'700'000'000'000'000'000;

std::size_t index_of(Side side) {
  return side == Side::a ? 0 : 1;
}

// Tells each event to `talk`; what comes of it gets the event's time.
void play(const TrafficScript& script, MadeCapture& capture, auto& talk) {
  for (const Event& event : script.events) {
    const std::size_t before = capture.size();
    std::visit([&](const auto& part) { talk.tell(event.origin.side, part, event.bytes); },
               event.part);
    for (std::size_t i = before; i < capture.size(); ++i) {
      capture[i].time_ns = first_ns + event.origin.stamp.time_ns;
    }
  }
}

class IwarpPlayer {
 public:
  explicit IwarpPlayer(IwarpTalk& talk) : talk_(talk) {}

  void tell(Side side, const SendPart& part, Bytes bytes) {
    if (part.offset == 0) ++sends_[index_of(side)];
    talk_.fpdu(side, weft::test::send(sends_[index_of(side)], bytes,
                                      {static_cast<std::uint32_t>(part.offset), part.last}));
  }
  void tell(Side side, const WritePart& part, Bytes bytes) {
    talk_.fpdu(side, weft::test::write(part.key, part.address, bytes, part.last));
  }
  // Each into memory of its own.
  void tell(Side side, const ReadRequest& request, Bytes) {
    const auto sink = static_cast<std::uint32_t>(0x5000 + request.request);
    sources_[request.request] = request.address;
    talk_.fpdu(side,
               weft::test::read_request(++requests_[index_of(side)],
                                        {.sink_stag = sink,
                                         .sink_offset = 0,
                                         .size_bytes = static_cast<std::uint32_t>(request.length),
                                         .source_stag = request.key,
                                         .source_offset = request.address}));
  }
  void tell(Side side, const ReadPart& part, Bytes bytes) {
    const auto sink = static_cast<std::uint32_t>(0x5000 + part.request);
    const std::uint64_t offset = part.address - sources_[part.request];
    talk_.fpdu(side, weft::test::read_response(sink, offset, bytes, part.last));
  }

 private:
  IwarpTalk& talk_;
  std::array<std::uint32_t, 2> sends_{};
  std::array<std::uint32_t, 2> requests_{};
  std::unordered_map<std::uint64_t, std::uint64_t> sources_;  // addresses, by request
};

// For parts that are whole messages.
class RocePlayer {
 public:
  explicit RocePlayer(RoceTalk& talk) : talk_(talk) {}

  void tell(Side side, const SendPart&, Bytes bytes) { talk_.send(side, bytes); }
  void tell(Side side, const WritePart& part, Bytes bytes) {
    talk_.write(side, part.key, part.address, bytes);
  }
  void tell(Side side, const ReadRequest& request, Bytes) {
    psns_[request.request] = talk_.read_request(side, request.key, request.address,
                                                static_cast<std::uint32_t>(request.length));
  }
  void tell(Side side, const ReadPart& part, Bytes bytes) {
    talk_.read_answer(side, psns_[part.request], bytes);
  }

 private:
  RoceTalk& talk_;
  std::unordered_map<std::uint64_t, std::uint32_t> psns_;  // by request
};

}  // namespace

MadeCapture iwarp_capture(const TrafficScript& script) {
  MadeCapture capture;
  IwarpTalk talk(capture, {.mss_bytes = 8'000}, {});
  talk.connect();
  IwarpPlayer player(talk);
  play(script, capture, player);
  talk.close();
  return capture;
}

MadeCapture roce_capture(const TrafficScript& script) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 4'096});
  talk.connect();
  RocePlayer player(talk);
  play(script, capture, player);
  talk.disconnect();
  return capture;
}

}  // namespace weft::capture::test
