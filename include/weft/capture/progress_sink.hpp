// A TrafficSink that reduces all traffic with new content to one event.
#pragma once

#include <cstdint>

#include "weft/capture/traffic.hpp"

namespace weft::capture {

class ProgressSink : public TrafficSink {
 public:
  void on_send(const Origin& origin, const SendPart& part) override { pass_on(origin, part); }
  void on_write(const Origin& origin, const WritePart& part) override { pass_on(origin, part); }
  void on_read_part(const Origin& origin, const ReadPart& part) override { pass_on(origin, part); }
  void on_read_request(const Origin& origin, const ReadRequest& request) override {
    if (!request.repeated) on_progress(origin, 0);
  }
  void on_atomic_request(const Origin& origin, const AtomicRequest& /*request*/) override {
    on_progress(origin, 0);
  }

 private:
  // The side of `origin` sent something for the first time: `bytes` of a message, captured or not,
  // or 0 for a request.
  virtual void on_progress(const Origin& origin, std::uint64_t bytes) = 0;

  template <typename Part>
  void pass_on(const Origin& origin, const Part& part) {
    on_progress(origin, part.bytes.size() + part.missing_bytes);
  }
};

}  // namespace weft::capture
