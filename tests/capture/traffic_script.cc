#include "capture/traffic_script.h"

#include <algorithm>

namespace weft::capture::test {
namespace {

struct Feeder {
  TrafficSink& sink;
  const Origin& origin;
  Bytes bytes;

  void operator()(SendPart part) const {
    part.bytes = bytes;
    sink.on_send(origin, part);
  }
  void operator()(WritePart part) const {
    part.bytes = bytes;
    sink.on_write(origin, part);
  }
  void operator()(const ReadRequest& request) const { sink.on_read_request(origin, request); }
  void operator()(ReadPart part) const {
    part.bytes = bytes;
    sink.on_read_part(origin, part);
  }
};

}  // namespace

// From memory of its own, so that a sanitizer sees every later access.
void Event::feed(TrafficSink& sink) const {
  const Buffer copy = bytes;
  std::visit(Feeder{sink, origin, copy}, part);
}

void TrafficScript::feed_without(std::size_t dropped, TrafficSink& sink) const {
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (i != dropped) events[i].feed(sink);
  }
}

Origin TrafficScript::origin(Side side) {
  ++frame_;
  time_ns_ += 1000;
  return {connection_, side, {frame_, time_ns_}, frame_};
}

template <typename Part, typename Fill>
void TrafficScript::parts(Side side, const Buffer& bytes, Fill fill) {
  ++message_;
  std::size_t at = 0;
  do {
    const std::size_t size = std::min(part_bytes_, bytes.size() - at);
    Part part;
    const bool last = at + size == bytes.size();
    fill(part, at, last);
    part.last = last;
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    events.push_back(
        {origin(side), part, Buffer(begin, begin + static_cast<std::ptrdiff_t>(size))});
    at += size;
  } while (at < bytes.size());
}

TrafficScript& TrafficScript::send(Side side, Buffer message) {
  parts<SendPart>(side, message, [&](SendPart& part, std::size_t at, bool) {
    part.message = message_;
    part.offset = at;
  });
  return *this;
}

TrafficScript& TrafficScript::write(Side side, std::uint32_t key, std::uint64_t address,
                                    const Buffer& bytes) {
  parts<WritePart>(side, bytes, [&](WritePart& part, std::size_t at, bool) {
    part.message = message_;
    part.key = key;
    part.address = address + at;
    part.first = at == 0;
    part.message_bytes = bytes.size();
  });
  return *this;
}

TrafficScript& TrafficScript::read_request(Side side, std::uint32_t key, std::uint64_t address,
                                           std::uint64_t length) {
  ReadRequest request;
  request.request = ++message_;
  request.key = key;
  request.address = address;
  request.length = length;
  events.push_back({origin(side), request, {}});
  return *this;
}

TrafficScript& TrafficScript::read_answer(Side side, std::uint32_t key, std::uint64_t address,
                                          const Buffer& bytes) {
  const std::uint64_t request = message_;
  parts<ReadPart>(side, bytes, [&](ReadPart& part, std::size_t at, bool) {
    part.request = request;
    part.key = key;
    part.address = address + at;
  });
  return *this;
}

TrafficScript& TrafficScript::read(Side side, std::uint32_t key, std::uint64_t address,
                                   const Buffer& bytes) {
  return read_request(side, key, address, bytes.size())
      .read_answer(other(side), key, address, bytes);
}

}  // namespace weft::capture::test
