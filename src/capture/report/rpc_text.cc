#include "weft/capture/rpc_text.hpp"

#include <fmt/format.h>

#include "capture/text/units.h"
#include "wire/rpc.h"

namespace weft::capture {

// The NFS status is preferred to the RPC status, which is success in this case. The NULL procedure
// has no status. A reply without its call may have chunks whose bytes were not captured.
std::string outcome_text(const Rpc& rpc) {
  if (!rpc.reply) return "no reply";
  if (rpc.error) {
    return rpc.error->code == wire::RpcRdmaErrorCode::version ? "RDMA_ERROR: version"
                                                              : "RDMA_ERROR: chunk";
  }
  if (rpc.gss == GssProtection::privacy) return "encrypted";
  if (!rpc.status) return "reply incomplete";
  if (*rpc.status != wire::RpcStatus::success) return wire::describe(*rpc.status);
  if (rpc.nfs && rpc.nfs->reply_decoded && rpc.procedure != 0) {
    return nfs_status(rpc.nfs->version, rpc.nfs->status);
  }
  return rpc.call || rpc.reply->complete() ? "OK" : "reply incomplete";
}

bool succeeded(const Rpc& rpc) {
  return rpc.reply && !rpc.error && rpc.status == wire::RpcStatus::success &&
         (!rpc.nfs || rpc.nfs->status == 0);
}

std::string detail_text(const NfsOperation& operation) {
  std::string text;
  const auto add = [&text](const std::string& words) {
    if (!text.empty()) text += ' ';
    text += words;
  };
  if (!operation.entry.empty()) add(fmt::format("\"{}\"", printable(operation.entry)));
  if (!operation.target.empty()) add(fmt::format("→ \"{}\"", printable(operation.target)));
  if (operation.has_range) add(fmt::format("{} B at {}", operation.count, operation.offset));
  if (operation.new_size) add(fmt::format("size {}", *operation.new_size));
  if (!operation.entries.empty()) add(count_text(operation.entries.size(), "name"));
  if (operation.bulk.size() > 0 && !operation.bulk.whole()) {
    add(fmt::format("({})", describe_flaws(operation.bulk)));
  }
  return text;
}

std::string detail_text(const Rpc& rpc) {
  if (!rpc.nfs) return {};
  const auto& operations = rpc.nfs->operations;
  std::string text;
  for (const NfsOperation& operation : operations) {
    const std::string detail = detail_text(operation);
    if (detail.empty()) continue;
    if (!text.empty()) text += ", ";
    if (operations.size() > 1) text += fmt::format("{} ", operation.name);
    text += detail;
  }
  return text;
}

}  // namespace weft::capture
