#include "random_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace weft::test {

using iwarp::LocalSlice;
using iwarp::Operation;
using iwarp::Requester;
using iwarp::Status;

RandomWork::RandomWork(Random& random, Endpoint& self, Endpoint& peer, std::size_t requests,
                       Receives receives)
    : random_(random),
      self_(self),
      peer_(peer),
      requests_(requests),
      source_(self.host.add(pattern(2 * largest, random.next()))),
      sink_(self.host.add(sink_bytes)),
      target_(peer.host.add(2 * largest)),
      origin_(peer.host.add(pattern(2 * largest, random.next()))),
      counter_(peer.host.add(8)),
      target_model_(2 * largest),
      sink_model_(sink_bytes) {
  for (std::size_t i = 0; i < requests; ++i) {
    Region& region = peer.host.add(receive_bytes);
    receive_regions_.push_back(&region);
    const std::size_t first = random.below(100);
    late_receives_.push_back({region.slice(0, first), region.slice(first, receive_bytes - first)});
  }
  if (receives == Receives::at_once) post_receives(requests);
}

std::size_t RandomWork::post_receives(std::size_t most) {
  const std::size_t count = std::min(most, late_receives_.size() - receives_posted_);
  for (std::size_t i = 0; i < count; ++i, ++receives_posted_) {
    peer_.host.posted_receives.push_back(
        {.wr_id = receives_posted_, .slices = late_receives_[receives_posted_]});
  }
  if (count > 0 && peer_.connected()) peer_.connection().receives_posted(0);
  return count;
}

// Mostly small sizes, some around the size of a segment, few large ones.
std::size_t RandomWork::random_size() {
  switch (random_.below(8)) {
    case 0:
      return 0;
    case 1:
      return random_.between(1, largest);
    case 2:
      return random_.between(1400, 1450);
    case 3:
      return random_.between(1, 10'000);
    default:
      return random_.between(1, 200);
  }
}

std::vector<LocalSlice> RandomWork::random_slices(const Region& region, std::size_t offset,
                                                  std::size_t size) {
  std::vector<LocalSlice> slices;
  const std::size_t pieces = random_.between(size == 0 ? 0 : 1, 4);
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::size_t part = i + 1 == pieces ? size : random_.below(size + 1);
    slices.push_back(region.slice(offset, part));
    offset += part;
    size -= part;
  }
  return slices;
}

bool RandomWork::post(iwarp::WorkRequest request, std::span<const LocalSlice> slices) {
  request.slices = slices;
  return self_.connection().post(request) == Requester::Posted::ok;
}

void RandomWork::post_one() {
  const iwarp::WorkRequest request{.wr_id = posted_.size(),
                                   .signaled = !random_.chance(3),
                                   .solicited = random_.chance(2),
                                   .fence = random_.chance(10)};
  if (posted_.size() == fault_after_) return post_fault(request);
  switch (random_.below(10)) {
    case 0:
    case 1:
    case 2:
      return post_send(request);
    case 3:
    case 4:
    case 5:
      return post_write(request);
    case 6:
      return post_atomic(request);
    default:
      return post_read(request);
  }
}

void RandomWork::post_send(iwarp::WorkRequest request) {
  const std::size_t size = random_size();
  const std::size_t from = random_.below(source_.size() - size + 1);
  const bool immediate = send_immediate_ && random_.chance(2);
  request.operation = immediate ? Operation::send_immediate : Operation::send;
  if (immediate) request.immediate_be = static_cast<std::uint32_t>(random_.next());
  request.inline_data = size <= 256 && random_.chance(2);
  auto slices = random_slices(source_, from, size);
  if (!post(request, slices)) return;
  expected_.push_back({.content = source_.copy(from, size),
                       .solicited = request.solicited,
                       .has_immediate = immediate,
                       .immediate = request.immediate_be,
                       .length = static_cast<std::uint32_t>(size)});
  posted_.push_back({.wr_id = request.wr_id,
                     .operation = request.operation,
                     .signaled = request.signaled,
                     .receives_before = expected_.size(),
                     .written = {}});
}

void RandomWork::post_write(iwarp::WorkRequest request) {
  const std::size_t size = random_size();
  const std::size_t from = random_.below(source_.size() - size + 1);
  const std::size_t to = random_.below(target_.size() - size + 1);
  request.operation = random_.chance(3) ? Operation::write_immediate : Operation::write;
  request.immediate_be = static_cast<std::uint32_t>(random_.next());
  request.remote_address = target_.address(to);
  request.rkey = target_.rkey();
  if (!post(request, random_slices(source_, from, size))) return;
  auto written = source_.copy(from, size);
  std::ranges::copy(written, target_model_.begin() + static_cast<std::ptrdiff_t>(to));
  if (request.operation == Operation::write_immediate) {
    expected_.push_back({.content = {},
                         .solicited = request.solicited,
                         .from_write = true,
                         .has_immediate = true,
                         .immediate = request.immediate_be,
                         .length = static_cast<std::uint32_t>(size)});
  }
  posted_.push_back({.wr_id = request.wr_id,
                     .operation = request.operation,
                     .signaled = request.signaled,
                     .receives_before = expected_.size(),
                     .target_offset = to,
                     .written = std::move(written)});
}

void RandomWork::post_read(iwarp::WorkRequest request) {
  const std::size_t size = std::min(random_size(), sink_.size() - sink_used_);
  const std::size_t from = random_.below(origin_.size() - size + 1);
  request.operation = Operation::read;
  request.remote_address = origin_.address(from);
  request.rkey = origin_.rkey();
  if (!post(request, random_slices(sink_, sink_used_, size))) return;
  std::ranges::copy(origin_.copy(from, size),
                    sink_model_.begin() + static_cast<std::ptrdiff_t>(sink_used_));
  sink_used_ += size;
  posted_.push_back({.wr_id = request.wr_id,
                     .operation = request.operation,
                     .signaled = request.signaled,
                     .receives_before = expected_.size(),
                     .written = {}});
}

void RandomWork::post_atomic(iwarp::WorkRequest request) {
  if (sink_.size() - sink_used_ < 8) return post_send(request);
  request.operation = random_.chance(2) ? Operation::fetch_add : Operation::compare_swap;
  request.remote_address = counter_.address();
  request.rkey = counter_.rkey();
  const bool add = request.operation == Operation::fetch_add;
  request.compare_or_add = add || random_.chance(2) ? random_.next() : counter_model_;
  request.swap = random_.next();
  const LocalSlice slice = sink_.slice(sink_used_, 8);
  if (!post(request, {&slice, 1})) return;
  std::memcpy(&sink_model_[sink_used_], &counter_model_, 8);
  sink_used_ += 8;
  if (add) {
    counter_model_ += request.compare_or_add;
  } else if (counter_model_ == request.compare_or_add) {
    counter_model_ = request.swap;
  }
  posted_.push_back({.wr_id = request.wr_id,
                     .operation = request.operation,
                     .signaled = request.signaled,
                     .receives_before = expected_.size(),
                     .written = {}});
}

// It looks like the other requests, but is always signaled.
void RandomWork::post_fault(iwarp::WorkRequest request) {
  constexpr std::size_t size = 100;
  request.signaled = true;
  const bool read = random_.chance(3);
  request.operation = read ? Operation::read : Operation::write;
  request.remote_address = read ? origin_.address(origin_.size() - size + 1)
                                : target_.address(target_.size() - size + 1);
  request.rkey = read ? origin_.rkey() : target_.rkey();
  const LocalSlice slice = read ? sink_.slice(0, size) : source_.slice(0, size);
  if (!post(request, {&slice, 1})) return;
  posted_.push_back({.wr_id = request.wr_id,
                     .operation = request.operation,
                     .receives_before = expected_.size(),
                     .written = {}});
}

// Collects the first `count` receives of the peer, which must have succeeded.
void RandomWork::check_receives(std::size_t count) const {
  ASSERT_LE(count, expected_.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto& completion = peer_.host.receives.at(i);
    const Expected& expected = expected_[i];
    EXPECT_EQ(completion.wr_id, i);
    if (completion.status != Status::success) {
      EXPECT_EQ(i + 1, peer_.host.receives.size()) << "something follows a failed receive";
      return;
    }
    EXPECT_EQ(completion.length_bytes, expected.length);
    EXPECT_EQ(completion.solicited, expected.solicited);
    EXPECT_EQ(completion.from_write, expected.from_write);
    EXPECT_EQ(completion.has_immediate, expected.has_immediate);
    EXPECT_EQ(completion.immediate_be, expected.immediate);
    EXPECT_TRUE(receive_regions_[i]->copy(0, expected.content.size()) == expected.content) << i;
  }
}

void RandomWork::check_success() const {
  std::vector<std::uint64_t> ids;
  for (const auto& request : posted_) {
    if (request.signaled) ids.push_back(request.wr_id);
  }
  EXPECT_EQ(self_.send_ids(), ids);
  EXPECT_EQ(self_.send_statuses(), std::vector(ids.size(), Status::success));
  ASSERT_EQ(peer_.host.receives.size(), expected_.size());
  check_receives(expected_.size());
  EXPECT_TRUE(target_.copy() == target_model_);
  EXPECT_TRUE(sink_.copy() == sink_model_);
  std::uint64_t counter = 0;
  std::memcpy(&counter, counter_.copy().data(), 8);
  EXPECT_EQ(counter, counter_model_);
}

void RandomWork::check_consistent() const {
  std::size_t next = 0;
  bool failed = false;
  for (const auto& completion : self_.host.sends) {
    // Unsignaled requests that succeeded have no completion.
    while (next < posted_.size() && posted_[next].wr_id != completion.wr_id) {
      EXPECT_FALSE(posted_[next].signaled || failed) << "no completion of " << next;
      ++next;
    }
    ASSERT_LT(next, posted_.size()) << "completed twice or out of order: " << completion.wr_id;
    ++next;
    if (failed) {
      EXPECT_EQ(completion.status, Status::flushed);
    } else if (completion.status == Status::success) {
      EXPECT_TRUE(completion.signaled);
    }
    failed |= completion.status != Status::success;
  }
  for (; next < posted_.size(); ++next) {
    EXPECT_FALSE(posted_[next].signaled || failed) << "no completion of " << next;
  }
  check_receives(peer_.host.receives.size());
}

void RandomWork::check_blame() const {
  check_consistent();
  const auto failed = std::ranges::find_if(self_.host.sends, [](const auto& completion) {
    return completion.status != Status::success;
  });
  if (failed == self_.host.sends.end()) return;
  const std::size_t received = static_cast<std::size_t>(
      std::ranges::count(peer_.host.receives, Status::success, &iwarp::ReceiveCompletion::status));
  if (failed->status == Status::rnr_retry_exceeded) {
    EXPECT_EQ(posted_.at(failed->wr_id).receives_before, received + 1);
  } else if (failed->status == Status::remote_access) {
    EXPECT_EQ(failed->wr_id, fault_after_);
    const Posted& fault = posted_.at(failed->wr_id);
    EXPECT_GE(received, fault.receives_before);
    // A read is refused when it is answered; later requests may be placed before that.
    if (fault.operation == Operation::write) {
      EXPECT_EQ(received, fault.receives_before);
    }
  } else {
    EXPECT_EQ(failed->status, Status::flushed);
  }
}

void RandomWork::check_placed() const {
  if (self_.host.sends.empty() || self_.host.sends.back().status != Status::success) return;
  const Posted& last = posted_.at(self_.host.sends.back().wr_id);
  ASSERT_GE(peer_.host.receives.size(), last.receives_before)
      << "request " << last.wr_id << " is complete and was not received";
  if (last.written.empty() || last.wr_id + 1 != posted_.size()) return;  // or it is overwritten
  EXPECT_TRUE(target_.copy(last.target_offset, last.written.size()) == last.written);
}

}  // namespace weft::test
