#include "weft/capture/rpc.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace weft::capture {
namespace {

struct Program {
  std::uint32_t number;
  std::string_view name;
};

constexpr std::array programs{
    Program{100000, "PORTMAP"}, Program{nfs_program, "NFS"}, Program{100005, "MOUNT"},
    Program{100021, "NLM"},     Program{100024, "STAT"},     Program{100227, "NFSACL"},
};

// Names the version and the operations of an NFS exchange.
std::string describe_nfs(const Rpc& rpc) {
  const NfsExchange& nfs = *rpc.nfs;
  std::string text = nfs.callback       ? "NFS callback"
                     : nfs.version == 4 ? fmt::format("NFSv4.{}", nfs.minor)
                                        : fmt::format("NFSv{}", nfs.version);
  // Without operations it is either the NULL procedure, or a COMPOUND that was not decoded.
  if (nfs.operations.empty()) text += rpc.procedure == 0 ? " NULL" : " COMPOUND";
  for (const NfsOperation& operation : nfs.operations) {
    text += ' ';
    text += operation.name;
  }
  return text;
}

}  // namespace

bool RpcMessage::complete() const {
  if (whole) return whole->whole();
  return message.whole() &&
         std::ranges::all_of(chunks, [](const Assembled& chunk) { return chunk.whole(); });
}

std::string program_name(std::uint32_t program) {
  const auto found = std::ranges::find(programs, program, &Program::number);
  if (found != programs.end()) return std::string(found->name);
  return fmt::format("program {}", program);
}

std::string describe(const Rpc& rpc) {
  if (!rpc.has_header) return "RPC without its call";
  if (rpc.nfs) return describe_nfs(rpc);
  return fmt::format("{} version {} procedure {}", program_name(rpc.program), rpc.version,
                     rpc.procedure);
}

}  // namespace weft::capture
