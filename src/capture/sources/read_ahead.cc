// A source that reads another one in a thread of its own, so that reading and decompressing use a
// second processor.
#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "weft/capture/packet_source.hpp"

namespace weft::capture {
namespace {

// What was read at a time. Large enough that handing it over costs nothing, and small enough that
// its bytes are still in the cache of the processor then.
struct Batch {
  static constexpr std::size_t full_bytes = 512 * 1024;
  static constexpr std::size_t full_packets = 8'192;

  std::vector<RawPacket> packets;
  std::vector<std::byte> bytes;
  std::uint64_t bytes_read = 0;
  bool last = false;
  // Of the last batch.
  std::string problem;
  std::string leftover;
  std::exception_ptr error;

  void fill(PacketSource& source);

 private:
  void add(const RawPacket& packet);
};

void Batch::add(const RawPacket& packet) {
  packets.push_back(packet);
  bytes.insert(bytes.end(), packet.bytes.begin(), packet.bytes.end());
}

void Batch::fill(PacketSource& source) {
  packets.clear();
  bytes.clear();
  try {
    RawPacket packet;
    while (!last && packets.size() < full_packets && bytes.size() < full_bytes) {
      if (source.next(packet)) {
        add(packet);
      } else {
        last = true;
      }
    }
    if (last) {
      problem = source.problem();
      leftover = source.leftover();
    }
    bytes_read = source.bytes_read();
  } catch (...) {
    last = true;
    error = std::current_exception();
  }
  // Only now the bytes do not move any more.
  std::size_t begin = 0;
  for (RawPacket& packet : packets) {
    packet.bytes = Bytes(bytes).subspan(begin, packet.bytes.size());
    begin += packet.bytes.size();
  }
}

class ReadAhead final : public PacketSource {
 public:
  explicit ReadAhead(std::unique_ptr<PacketSource> source)
      : source_(std::move(source)), bytes_in_all_(source_->bytes_in_all()) {
    thread_ = std::thread([this] { run(); });
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  bool next(RawPacket& packet) override {
    while (current_ == nullptr || next_ == current_->packets.size()) {
      if (current_ != nullptr && current_->last) return at_end();
      take();
    }
    packet = current_->packets[next_++];
    return true;
  }
  [[nodiscard]] std::string problem() const override {
    return current_ == nullptr ? std::string() : current_->problem;
  }
  [[nodiscard]] std::string leftover() const override {
    return current_ == nullptr ? std::string() : current_->leftover;
  }
  [[nodiscard]] std::uint64_t bytes_read() const override {
    return current_ == nullptr ? 0 : current_->bytes_read;
  }
  [[nodiscard]] std::uint64_t bytes_in_all() const override { return bytes_in_all_; }

 private:
  // An error comes after the packets before it.
  bool at_end() {
    if (current_->error) std::rethrow_exception(std::exchange(current_->error, nullptr));
    return false;
  }
  // Returns the batch in use to the thread, and waits for the next one.
  void take() {
    std::unique_lock lock(mutex_);
    if (current_ != nullptr) {
      ++taken_;
      changed_.notify_all();
    }
    changed_.wait(lock, [this] { return filled_ > taken_; });
    current_ = &batches_[taken_ % batches_.size()];
    next_ = 0;
  }
  // The thread.
  void run() {
    for (std::uint64_t number = 0;; ++number) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended_ || number - taken_ < batches_.size(); });
        if (ended_) return;
      }
      Batch& batch = batches_[number % batches_.size()];
      batch.fill(*source_);
      const bool last = batch.last;
      {
        const std::lock_guard lock(mutex_);
        filled_ = number + 1;
      }
      changed_.notify_all();
      if (last) return;
    }
  }

  // Used by the thread only, once it runs.
  std::unique_ptr<PacketSource> source_;
  std::uint64_t bytes_in_all_;
  // A batch belongs to the thread until it is filled, and then to next() until it is taken.
  std::array<Batch, 4> batches_;
  // Used by next() only.
  Batch* current_ = nullptr;
  std::size_t next_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t filled_ = 0;  // number of batches so far
  std::uint64_t taken_ = 0;   // of them, those of which next() has returned every packet
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<PacketSource> read_ahead(std::unique_ptr<PacketSource> source) {
  return std::make_unique<ReadAhead>(std::move(source));
}

}  // namespace weft::capture
