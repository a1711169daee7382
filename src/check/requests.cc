#include "check/requests.h"

namespace weft::check {

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

void Requests::add(const ibv_srq& srq) {
  auto account = std::make_shared<SharedReceivesAccount>();
  account->srq = &srq;
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

}  // namespace weft::check
