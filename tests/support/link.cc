#include "support/link.h"

#include <algorithm>

namespace weft::test {
namespace {

// Splits a batch into pieces that arrive one nanosecond apart, so that each is read alone.
class Chunk final : public Node {
 public:
  explicit Chunk(std::function<std::size_t()> size) : size_(std::move(size)) {}

  void pass(Batch batch, const Emit& emit) override {
    next_ns_ = std::max(next_ns_, batch.at_ns);
    if (batch.end) return emit({.at_ns = next_ns_, .end = true});
    Bytes rest = batch.bytes;
    while (!rest.empty()) {
      const auto part = rest.first(std::min(rest.size(), std::max<std::size_t>(size_(), 1)));
      emit({.at_ns = next_ns_++, .bytes = {part.begin(), part.end()}});
      rest = rest.subspan(part.size());
    }
  }

 private:
  std::function<std::size_t()> size_;
  std::uint64_t next_ns_ = 0;
};

// Changes the arrival time of a batch and nothing else.
class Retime final : public Node {
 public:
  explicit Retime(std::function<std::uint64_t(std::uint64_t)> change)
      : change_(std::move(change)) {}
  void pass(Batch batch, const Emit& emit) override {
    batch.at_ns = change_(batch.at_ns);
    emit(std::move(batch));
  }

 private:
  std::function<std::uint64_t(std::uint64_t)> change_;
};

// Does something at one offset of the stream; splits the batch that contains it.
class AtOffset : public Node {
 public:
  explicit AtOffset(std::uint64_t offset) : offset_(offset) {}

  void pass(Batch batch, const Emit& emit) override {
    const std::uint64_t begin = position_;
    position_ += batch.bytes.size();
    if (position_ <= offset_ || begin > offset_) {
      return begin > offset_ ? behind(std::move(batch), emit) : emit(std::move(batch));
    }
    const auto middle = batch.bytes.begin() + static_cast<std::ptrdiff_t>(offset_ - begin);
    Batch rest{.at_ns = batch.at_ns, .bytes = {middle, batch.bytes.end()}};
    batch.bytes.erase(middle, batch.bytes.end());
    if (!batch.bytes.empty()) emit(std::move(batch));
    reached(std::move(rest), emit);
  }

 protected:
  // reached() gets the batch that begins at the offset, behind() every later one.
  virtual void reached(Batch batch, const Emit& emit) = 0;
  virtual void behind(Batch batch, const Emit& emit) = 0;

 private:
  std::uint64_t offset_;
  std::uint64_t position_ = 0;
};

class Stall final : public AtOffset {
 public:
  Stall(std::uint64_t offset, std::uint64_t ns) : AtOffset(offset), ns_(ns) {}

 private:
  void reached(Batch batch, const Emit& emit) override { behind(std::move(batch), emit); }
  void behind(Batch batch, const Emit& emit) override {
    batch.at_ns += ns_;
    emit(std::move(batch));
  }
  std::uint64_t ns_;
};

class Corrupt final : public AtOffset {
 public:
  Corrupt(std::uint64_t offset, std::byte mask) : AtOffset(offset), mask_(mask) {}

 private:
  void reached(Batch batch, const Emit& emit) override {
    batch.bytes.front() ^= mask_;
    emit(std::move(batch));
  }
  void behind(Batch batch, const Emit& emit) override { emit(std::move(batch)); }
  std::byte mask_;
};

class Cut final : public AtOffset {
 public:
  using AtOffset::AtOffset;

 private:
  void reached(Batch batch, const Emit& emit) override {
    emit({.at_ns = batch.at_ns, .end = true});
  }
  void behind(Batch /*batch*/, const Emit& /*emit*/) override {}
};

}  // namespace

NodePtr chunk(std::size_t bytes) {
  return std::make_unique<Chunk>([bytes] { return bytes; });
}

NodePtr chunk_random(Random random, std::size_t most) {
  return std::make_unique<Chunk>(
      [random, most]() mutable { return static_cast<std::size_t>(random.between(1, most)); });
}

NodePtr delay(std::uint64_t ns) {
  return std::make_unique<Retime>([ns](std::uint64_t at) { return at + ns; });
}

NodePtr jitter(Random random, std::uint64_t most_ns) {
  return std::make_unique<Retime>(
      [random, most_ns](std::uint64_t at) mutable { return at + random.below(most_ns + 1); });
}

NodePtr coalesce(std::uint64_t interval_ns) {
  return std::make_unique<Retime>(
      [interval_ns](std::uint64_t at) { return (at / interval_ns + 1) * interval_ns; });
}

NodePtr stall(std::uint64_t offset, std::uint64_t ns) {
  return std::make_unique<Stall>(offset, ns);
}

NodePtr corrupt(std::uint64_t offset, std::byte mask) {
  return std::make_unique<Corrupt>(offset, mask);
}

NodePtr cut(std::uint64_t offset) {
  return std::make_unique<Cut>(offset);
}

std::size_t Link::room() const {
  if (closed_ || ended_) return SIZE_MAX;  // the reader has ended; nothing limits the writer
  const std::uint64_t under_way = sent_bytes_ - delivered_bytes_;
  return under_way < window_bytes_ ? static_cast<std::size_t>(window_bytes_ - under_way) : 0;
}

std::size_t Link::send(std::uint64_t now_ns, Bytes bytes) {
  if (closed_) return bytes.size();
  const auto taken = bytes.first(std::min(bytes.size(), room()));
  if (taken.empty()) return 0;
  sent_bytes_ += taken.size();
  pass(0, {.at_ns = now_ns, .bytes = {taken.begin(), taken.end()}});
  return taken.size();
}

void Link::close(std::uint64_t now_ns) {
  if (closed_) return;
  closed_ = true;
  pass(0, {.at_ns = now_ns, .end = true});
}

void Link::pass(std::size_t node, Batch batch) {
  if (node == nodes_.size()) return arrive(std::move(batch));
  nodes_[node]->pass(std::move(batch),
                     [this, node](Batch next) { pass(node + 1, std::move(next)); });
}

void Link::arrive(Batch batch) {
  if (ended_) return;
  ended_ = batch.end;
  latest_ns_ = batch.at_ns = std::max(batch.at_ns, latest_ns_);
  const bool joins = !arrived_.empty() && arrived_.back().at_ns == batch.at_ns && !batch.end;
  if (!joins) return arrived_.push_back(std::move(batch));
  auto& bytes = arrived_.back().bytes;
  bytes.insert(bytes.end(), batch.bytes.begin(), batch.bytes.end());
}

std::uint64_t Link::next_ns() const {
  return arrived_.empty() ? never : arrived_.front().at_ns;
}

std::optional<Batch> Link::take(std::uint64_t now_ns) {
  if (next_ns() > now_ns || arrived_.empty()) return std::nullopt;
  Batch batch = std::move(arrived_.front());
  arrived_.pop_front();
  delivered_bytes_ += batch.bytes.size();
  return batch;
}

}  // namespace weft::test
