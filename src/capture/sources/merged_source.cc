#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "capture/sources/clock_meter.h"
#include "capture/tcp/byte_window.h"

namespace weft::capture {
namespace {

// Of standard input, a FIFO or the pipe of a shell's <(…), what was read once is gone. A file that
// does not exist counts as one that can be opened again, so that opening it reports the error.
bool can_be_opened_again(const std::string& path) {
  std::error_code error;
  return path != "-" && (std::filesystem::is_regular_file(path, error) || error);
}

class MergedSource final : public PacketSource {
 public:
  MergedSource(const std::vector<CaptureFile>& files, const std::atomic<bool>* stop) : stop_(stop) {
    for (const CaptureFile& file : files) add_file(file);
    std::ranges::stable_sort(waiting_, {}, &Waiting::first_ns);
  }

  // The packet that was returned last must stay valid until this call, so its source advances only
  // now.
  bool next(RawPacket& packet) override {
    if (last_) advance(*last_);
    last_ = nullptr;
    open_due();
    if (open_.empty()) return false;
    // Of packets with equal times, the one from the file that begins first: its packets at the time
    // of a rotation precede those of the next file. Of files that begin at the same time, the one
    // that was named first. This is the order of open_.
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
  struct Open {
    CaptureFile file;
    std::unique_ptr<PacketSource> source;
    RawPacket packet{};  // its next packet

    bool next() {
      if (!source->next(packet)) return false;
      packet.time_ns -= file.clock_ahead_ns;
      return true;
    }
  };
  struct Waiting {
    CaptureFile file;
    std::int64_t first_ns = 0;
    std::unique_ptr<Open> open;  // with the first packet; null: it is opened when that is due
  };

  // Reads the time of the first packet, from which the order of the files follows, and closes the
  // file again if it can be opened again.
  void add_file(const CaptureFile& file) {
    auto first = std::make_unique<Open>(Open{file, open_capture(file.path, stop_)});
    if (!first->next()) return note_end(file.path, *first->source);
    // Only files that next() reads count, so that bytes_read() can reach this sum.
    bytes_in_all_ += first->source->bytes_in_all();
    const std::int64_t first_ns = first->packet.time_ns;
    if (can_be_opened_again(file.path)) first.reset();
    waiting_.push_back({file, first_ns, std::move(first)});
  }

  // Opens the files with a first packet that is due. A long series of rotated files therefore needs
  // only a few descriptors and buffers at a time.
  void open_due() {
    while (next_waiting_ < waiting_.size() &&
           (open_.empty() || waiting_[next_waiting_].first_ns <= earliest_ns())) {
      Waiting& due = waiting_[next_waiting_++];
      if (due.open) {
        open_.push_back(std::move(due.open));
        continue;
      }
      auto open = std::make_unique<Open>(Open{due.file, open_capture(due.file.path, stop_)});
      if (open->next()) open_.push_back(std::move(open));
    }
  }

  [[nodiscard]] std::int64_t earliest_ns() const {
    return (*std::ranges::min_element(open_, {},
                                      [](const auto& open) { return open->packet.time_ns; }))
        ->packet.time_ns;
  }

  // Reads the next packet of a source. At its end the source is removed, but its bytes stay in the
  // count of those that were read.
  void advance(Open& open) {
    if (open.next()) return;
    note_end(open.file.path, *open.source);
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
  std::vector<std::unique_ptr<Open>> open_;  // in the order of waiting_
  Open* last_ = nullptr;                     // source of the packet that was returned last
  std::string problem_;
  std::string leftover_;
  std::uint64_t bytes_in_all_ = 0;
  std::uint64_t closed_bytes_ = 0;
};

}  // namespace

std::unique_ptr<PacketSource> merge_captures(const std::vector<CaptureFile>& files,
                                             const std::atomic<bool>* stop) {
  return std::make_unique<MergedSource>(files, stop);
}

std::unique_ptr<PacketSource> merge_captures(const std::vector<std::string>& paths,
                                             const std::atomic<bool>* stop) {
  std::vector<CaptureFile> files;
  for (const std::string& path : paths) files.push_back({path});
  return merge_captures(files, stop);
}

// Captures that were taken at the same time begin with the same traffic, so their first packets are
// enough. Of rotated files it is known soon that they have none in common.
std::vector<ClockDifference> measure_clocks(std::vector<CaptureFile>& files,
                                            const std::atomic<bool>* stop) {
  constexpr std::size_t most_files = 16;
  constexpr std::size_t first_packets = 50'000;
  std::vector<ClockDifference> differences;
  if (files.size() < 2 || files.size() > most_files) return differences;
  std::vector<std::unique_ptr<ClockTrack>> tracks;
  for (CaptureFile& file : files) {
    tracks.push_back(std::make_unique<ClockTrack>());
    // What can be read only once is left to the merge. The empty track keeps the indexes equal to
    // those of the files.
    if (!can_be_opened_again(file.path)) continue;
    const auto source = open_capture(file.path, stop);
    tracks.back()->read(*source, first_packets);
    for (std::size_t i = 0; i + 1 < tracks.size(); ++i) {
      const auto found = tracks[i]->compare(*tracks.back());
      if (!found) continue;
      // The reference may have a correction itself, so adding it makes all corrections relative to
      // the same clock.
      file.clock_ahead_ns = files[i].clock_ahead_ns + found->offset_ns;
      differences.push_back({file.path, files[i].path, found->offset_ns, found->samples});
      break;
    }
  }
  return differences;
}

}  // namespace weft::capture
