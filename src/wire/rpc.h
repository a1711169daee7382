// ONC RPC version 2: RFC 5531, with AUTH_SYS, and with RPCSEC_GSS (RFC 2203) as far as captured
// traffic can be read without its keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "weft/wire/values.hpp"
#include "wire/error.h"

namespace weft::wire {

inline constexpr std::uint32_t rpc_version = 2;

enum class RpcKind : std::uint32_t { call = 0, reply = 1 };

// A credential or a verifier. Borrows its body.
struct RpcAuth {
  static constexpr std::size_t max_body_bytes = 400;  // RFC 5531 §8.2

  AuthFlavor flavor = AuthFlavor::none;
  Bytes body;
};

// The header of a call, up to the arguments of the procedure.
struct RpcCall {
  std::uint32_t xid = 0;
  std::uint32_t program = 0;
  std::uint32_t version = 0;  // of the program
  std::uint32_t procedure = 0;
  RpcAuth credential;
  RpcAuth verifier;

  // Fails with bad_value if the message is not a call, with bad_version if the version of RPC is
  // not 2.
  [[nodiscard]] static Result<RpcCall, WireError> parse(Bytes bytes);
  [[nodiscard]] std::size_t size() const;
  // Writes size() bytes.
  void emit(MutableBytes out) const;
};

[[nodiscard]] const char* describe(RpcStatus status);

// The header of a reply, up to the results of the procedure, which only follow if it succeeded.
struct RpcReply {
  std::uint32_t xid = 0;
  RpcStatus status = RpcStatus::success;
  RpcAuth verifier;       // of accepted calls
  std::uint32_t low = 0;  // of a mismatch: the versions that the server supports
  std::uint32_t high = 0;
  std::uint32_t auth_status = 0;  // of auth_error

  [[nodiscard]] static Result<RpcReply, WireError> parse(Bytes bytes);
  [[nodiscard]] std::size_t size() const;
  // Writes size() bytes.
  void emit(MutableBytes out) const;
};

// The first two words, which calls and replies have in common.
struct RpcStart {
  std::uint32_t xid = 0;
  RpcKind kind = RpcKind::call;

  [[nodiscard]] static Result<RpcStart, WireError> parse(Bytes bytes);
};

// The body of an AUTH_SYS credential (RFC 5531, appendix A). Borrows the name.
struct AuthSys {
  static constexpr std::size_t max_groups = 16;

  std::uint32_t stamp = 0;
  std::string_view machine;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::size_t group_count = 0;
  std::array<std::uint32_t, max_groups> groups{};

  [[nodiscard]] static Result<AuthSys, WireError> parse(Bytes body);
};

enum class GssProcedure : std::uint32_t { data = 0, init = 1, continue_init = 2, destroy = 3 };
enum class GssService : std::uint32_t { none = 1, integrity = 2, privacy = 3 };

// The body of an RPCSEC_GSS credential, version 1 (RFC 2203 §5.3). Borrows the handle.
struct GssCredential {
  GssProcedure procedure = GssProcedure::data;
  std::uint32_t sequence = 0;
  GssService service = GssService::none;
  Bytes handle;

  [[nodiscard]] static Result<GssCredential, WireError> parse(Bytes body);
};

}  // namespace weft::wire
