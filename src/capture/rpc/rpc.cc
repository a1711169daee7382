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

// Procedures of programs that are not decoded, by number: MOUNT (RFC 1813 §5.2), and NFSACL as
// Solaris and Linux have it.
constexpr std::array<std::string_view, 6> mount_procedures{"NULL", "MNT",     "DUMP",
                                                           "UMNT", "UMNTALL", "EXPORT"};
constexpr std::array<std::string_view, 5> acl2_procedures{"NULL", "GETACL", "SETACL", "GETATTR",
                                                          "ACCESS"};
constexpr std::array<std::string_view, 3> acl3_procedures{"NULL", "GETACL", "SETACL"};

std::string_view name_of(std::uint32_t program) {
  const auto found = std::ranges::find(programs, program, &Program::number);
  return found == programs.end() ? std::string_view() : found->name;
}

template <std::size_t Count>
std::string_view name_in(const std::array<std::string_view, Count>& names, std::uint32_t number) {
  return number < Count ? names[number] : std::string_view();
}

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
  if (const std::string_view name = name_of(program); !name.empty()) return std::string(name);
  return fmt::format("program {}", program);
}

std::string_view procedure_name(const Rpc& rpc) {
  constexpr std::uint32_t mount_program = 100'005;
  constexpr std::uint32_t acl_program = 100'227;
  if (rpc.procedure == 0) return "NULL";
  if (rpc.program == mount_program) return name_in(mount_procedures, rpc.procedure);
  if (rpc.program != acl_program) return {};
  if (rpc.version == 2) return name_in(acl2_procedures, rpc.procedure);
  return rpc.version == 3 ? name_in(acl3_procedures, rpc.procedure) : std::string_view();
}

std::string describe(const Rpc& rpc) {
  if (!rpc.has_header) return "RPC without its call";
  if (rpc.nfs) return describe_nfs(rpc);
  const std::string_view name = procedure_name(rpc);
  if (!name_of(rpc.program).empty() && !name.empty()) {
    return fmt::format("{}v{} {}", program_name(rpc.program), rpc.version, name);
  }
  return fmt::format("{} version {} procedure {}", program_name(rpc.program), rpc.version,
                     rpc.procedure);
}

}  // namespace weft::capture
