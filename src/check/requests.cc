#include "check/requests.h"

#include <algorithm>

namespace weft::check {

bool overlap(const MemoryRanges& some, const MemoryRanges& others) {
  return std::any_of(some.begin(), some.end(), [&](const MemoryRange& one) {
    return std::any_of(others.begin(), others.end(),
                       [&](const MemoryRange& other) { return one.overlaps(other); });
  });
}

std::uint64_t Writers::end(const MemoryRanges& ranges) {
  constexpr std::size_t most = 4096;
  if (ranges.empty()) return time_;
  ended_.push_back({++time_, ranges});
  if (ended_.size() <= most) return time_;
  forgotten_ = ended_.front().at;
  ended_.pop_front();
  return time_;
}

bool Writers::any_since(std::uint64_t time, const MemoryRanges& ranges,
                        std::uint64_t except) const {
  if (forgotten_ > time) return true;
  return std::any_of(ended_.begin(), ended_.end(), [&](const Ended& ended) {
    return ended.at > time && ended.at != except && overlap(ended.ranges, ranges);
  });
}

std::shared_ptr<QueuePairAccount> Requests::add(const ibv_qp& qp, bool signal_all) {
  auto account = std::make_shared<QueuePairAccount>();
  account->qp = &qp;
  account->number = qp.qp_num;
  account->signal_all = signal_all;
  by_handle_[&qp] = account;
  by_number_[qp.qp_num] = account;
  return account;
}

void Requests::remove(const ibv_qp& qp) {
  const auto found = by_handle_.find(&qp);
  if (found == by_handle_.end()) return;
  const auto numbered = by_number_.find(found->second->number);
  if (numbered != by_number_.end() && numbered->second == found->second) by_number_.erase(numbered);
  by_handle_.erase(found);
}

void Requests::add(const ibv_srq& srq, const ibv_cq* completions) {
  auto account = std::make_shared<SharedReceivesAccount>();
  account->srq = &srq;
  account->completions = completions;
  shared_[&srq] = account;
}

void Requests::remove(const ibv_srq& srq) {
  shared_.erase(&srq);
}

std::shared_ptr<QueuePairAccount> Requests::find(const ibv_qp* qp) const {
  const auto found = by_handle_.find(qp);
  return found == by_handle_.end() ? nullptr : found->second;
}

std::shared_ptr<QueuePairAccount> Requests::find(std::uint32_t number) const {
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? nullptr : found->second;
}

std::shared_ptr<SharedReceivesAccount> Requests::find(const ibv_srq* srq) const {
  const auto found = shared_.find(srq);
  return found == shared_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<QueuePairAccount>> Requests::queue_pairs() const {
  std::vector<std::shared_ptr<QueuePairAccount>> all;
  for (const auto& [handle, account] : by_handle_) all.push_back(account);
  return all;
}

std::vector<std::shared_ptr<SharedReceivesAccount>> Requests::shared() const {
  std::vector<std::shared_ptr<SharedReceivesAccount>> all;
  for (const auto& [handle, account] : shared_) all.push_back(account);
  return all;
}

bool Requests::any_writes(const MemoryRanges& ranges) const {
  const auto any = [&](const std::deque<Request>& requests) {
    return std::any_of(requests.begin(), requests.end(),
                       [&](const Request& request) { return overlap(request.writes, ranges); });
  };
  return std::any_of(by_handle_.begin(), by_handle_.end(),
                     [&](const auto& each) {
                       return any(each.second->sends) || any(each.second->receives);
                     }) ||
         std::any_of(shared_.begin(), shared_.end(),
                     [&](const auto& each) { return any(each.second->receives); });
}

}  // namespace weft::check
