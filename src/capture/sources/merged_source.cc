#include "capture/tcp/byte_window.h"

#include <algorithm>

namespace weft::capture {
namespace {

class MergedSource final : public PacketSource {
 public:
  MergedSource(const std::vector<std::string>& paths, const std::atomic<bool>* stop) : stop_(stop) {
    for (const std::string& path : paths) add_file(path);
    std::ranges::stable_sort(waiting_, {}, &Waiting::first_ns);
  }

  // The packet that was returned last must stay valid until this call, so its source advances only
  // now.
  bool next(RawPacket& packet) override {
    if (last_) advance(*last_);
    last_ = nullptr;
    open_due();
    if (open_.empty()) return false;
    // Of packets with equal times, the one from the file that was named first.
    const auto earliest = std::ranges::min_element(
        open_, [](const auto& x, const auto& y) { return x->packet.time_ns < y->packet.time_ns; });
    last_ = earliest->get();
    packet = last_->packet;
    return true;
  }
  [[nodiscard]] std::string problem() const override { return problem_; }
  [[nodiscard]] std::string leftover() const override { return leftover_; }
  [[nodiscard]] std::uint64_t bytes_read() const override {
    std::uint64_t bytes = closed_bytes_;
    for (const auto& open : open_) bytes += open->source->bytes_read();
    return bytes;
  }
  [[nodiscard]] std::uint64_t bytes_in_all() const override { return bytes_in_all_; }

 private:
  struct Waiting {
    std::string path;
    std::int64_t first_ns = 0;
  };
  struct Open {
    std::string path;
    std::unique_ptr<PacketSource> source;
    RawPacket packet;  // its next packet
  };

  // Reads the time of the first packet and closes the file again. The order of the files follows
  // from it.
  void add_file(const std::string& path) {
    const auto source = open_capture(path, stop_);
    RawPacket packet;
    if (source->next(packet)) {
      waiting_.push_back({path, packet.time_ns});
      bytes_in_all_ += source->bytes_in_all();
    } else {
      note_end(path, *source);
    }
  }

  // Opens the files with a first packet that is due.
  void open_due() {
    while (next_waiting_ < waiting_.size() &&
           (open_.empty() || waiting_[next_waiting_].first_ns <= earliest_ns())) {
      const std::string& path = waiting_[next_waiting_++].path;
      auto open = std::make_unique<Open>(Open{path, open_capture(path, stop_), {}});
      if (open->source->next(open->packet)) open_.push_back(std::move(open));
    }
  }

  [[nodiscard]] std::int64_t earliest_ns() const {
    return (*std::ranges::min_element(open_, {},
                                      [](const auto& open) { return open->packet.time_ns; }))
        ->packet.time_ns;
  }

  void advance(Open& open) {
    if (open.source->next(open.packet)) return;
    note_end(open.path, *open.source);
    closed_bytes_ += open.source->bytes_read();
    std::erase_if(open_, [&](const auto& one) { return one.get() == &open; });
  }

  // The first message of each kind is sufficient.
  void note_end(const std::string& path, const PacketSource& source) {
    if (problem_.empty() && !source.problem().empty()) problem_ = path + ": " + source.problem();
    if (leftover_.empty() && !source.leftover().empty()) {
      leftover_ = path + ": " + source.leftover();
    }
  }

  const std::atomic<bool>* stop_;
  std::vector<Waiting> waiting_;
  std::size_t next_waiting_ = 0;
  std::vector<std::unique_ptr<Open>> open_;
  Open* last_ = nullptr;  // source of the packet that was returned last
  std::string problem_;
  std::string leftover_;
  std::uint64_t bytes_in_all_ = 0;
  std::uint64_t closed_bytes_ = 0;
};

}  // namespace

std::unique_ptr<PacketSource> merge_captures(const std::vector<std::string>& paths,
                                             const std::atomic<bool>* stop) {
  return std::make_unique<MergedSource>(paths, stop);
}

}  // namespace weft::capture
