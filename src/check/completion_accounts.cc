#include "check/completion_accounts.h"

namespace weft::check {

CompletionAccount* CompletionAccounts::find(const ibv_cq* cq) {
  const auto found = by_handle_.find(cq);
  return found == by_handle_.end() ? nullptr : &found->second;
}

std::vector<CompletionAccount> CompletionAccounts::of(const ibv_comp_channel* channel) const {
  std::vector<CompletionAccount> found;
  for (const auto& [handle, account] : by_handle_) {
    if (handle->channel == channel) found.push_back(account);
  }
  return found;
}

std::vector<const ibv_cq*> CompletionAccounts::all() const {
  std::vector<const ibv_cq*> found;
  for (const auto& [handle, account] : by_handle_) found.push_back(handle);
  return found;
}

std::int64_t CompletionAccounts::add_outstanding(const ibv_cq* cq, std::int64_t change) {
  CompletionAccount* const account = find(cq);
  return account ? account->outstanding += change : 0;
}

}  // namespace weft::check
