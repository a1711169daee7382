// ONC RPC version 2 (RFC 5531) with AUTH_SYS and RPCSEC_GSS credentials (RFC 2203).
#include "wire/rpc.h"

#include "base/size.h"
#include "wire/xdr.h"

namespace weft::wire {
namespace {

// RFC 5531, appendix A: authsys_parms limits the name of the machine.
constexpr std::size_t max_machine_name_bytes = 255;
// RPCSEC_GSS_VERS_1 of RFC 2203 §5.
constexpr std::uint32_t gss_version = 1;

// The discriminators of RFC 5531 §9.
enum class ReplyState : std::uint32_t { accepted = 0, denied = 1 };
constexpr std::uint32_t denied_mismatch = 0;
constexpr std::uint32_t denied_auth = 1;

// RFC 5531 limits the body of credentials and verifiers to 400 bytes.
RpcAuth read_auth(XdrReader& in) {
  RpcAuth auth;
  auth.flavor = static_cast<AuthFlavor>(in.u32());
  auth.body = in.opaque(RpcAuth::max_body_bytes);
  return auth;
}

void write_auth(XdrWriter& out, const RpcAuth& auth) {
  out.u32(static_cast<std::uint32_t>(auth.flavor));
  out.opaque(auth.body);
}

// The flavor and the length of the body take a unit each; the body is padded to whole units.
std::size_t size_of(const RpcAuth& auth) {
  return to_size(2 * xdr_unit_bytes + xdr_padded(auth.body.size()));
}

void expect(XdrReader& in, RpcKind kind) {
  if (in.u32() != static_cast<std::uint32_t>(kind)) in.fail(WireError::bad_value);
}

// Both kinds of mismatch carry the lowest and the highest version that the server supports.
bool has_range(RpcStatus status) {
  return status == RpcStatus::program_mismatch || status == RpcStatus::rpc_mismatch;
}

// Values beyond the list make the reply invalid: what follows them is not known.
RpcStatus read_accepted(XdrReader& in) {
  const std::uint32_t status = in.u32();
  if (status > static_cast<std::uint32_t>(RpcStatus::system_error)) in.fail(WireError::bad_value);
  return static_cast<RpcStatus>(status);
}

// The two causes of a denial share RpcStatus with the accepted states, so that callers have one
// list.
RpcStatus read_denied(XdrReader& in) {
  const std::uint32_t status = in.u32();
  if (status > denied_auth) in.fail(WireError::bad_value);
  return status == denied_mismatch ? RpcStatus::rpc_mismatch : RpcStatus::auth_error;
}

}  // namespace

const char* describe(RpcStatus status) {
  switch (status) {
    case RpcStatus::success:
      return "success";
    case RpcStatus::program_unavailable:
      return "program unavailable";
    case RpcStatus::program_mismatch:
      return "program version mismatch";
    case RpcStatus::procedure_unavailable:
      return "procedure unavailable";
    case RpcStatus::garbage_arguments:
      return "garbage arguments";
    case RpcStatus::system_error:
      return "system error";
    case RpcStatus::rpc_mismatch:
      return "RPC version mismatch";
    case RpcStatus::auth_error:
      return "authentication error";
  }
  return "unknown status";
}

Result<RpcCall, WireError> RpcCall::parse(Bytes bytes) {
  XdrReader in(bytes);
  RpcCall call;
  call.xid = in.u32();
  expect(in, RpcKind::call);
  if (in.u32() != rpc_version) in.fail(WireError::bad_version);
  call.program = in.u32();
  call.version = in.u32();
  call.procedure = in.u32();
  call.credential = read_auth(in);
  call.verifier = read_auth(in);
  if (!in.ok()) return in.error();
  return call;
}

std::size_t RpcCall::size() const {
  return 6 * xdr_unit_bytes + size_of(credential) + size_of(verifier);
}

void RpcCall::emit(MutableBytes buffer) const {
  XdrWriter out(buffer);
  out.u32(xid);
  out.u32(static_cast<std::uint32_t>(RpcKind::call));
  out.u32(rpc_version);
  out.u32(program);
  out.u32(version);
  out.u32(procedure);
  write_auth(out, credential);
  write_auth(out, verifier);
}

Result<RpcReply, WireError> RpcReply::parse(Bytes bytes) {
  XdrReader in(bytes);
  RpcReply reply;
  reply.xid = in.u32();
  expect(in, RpcKind::reply);
  const auto state = static_cast<ReplyState>(in.u32());
  if (state > ReplyState::denied) in.fail(WireError::bad_value);
  if (state == ReplyState::accepted) {
    reply.verifier = read_auth(in);
    reply.status = read_accepted(in);
  } else {
    // A denied reply has no verifier (RFC 5531 §9).
    reply.status = read_denied(in);
  }
  if (has_range(reply.status)) {
    reply.low = in.u32();
    reply.high = in.u32();
  }
  if (reply.status == RpcStatus::auth_error) reply.auth_status = in.u32();
  if (!in.ok()) return in.error();
  return reply;
}

// A denied reply has no verifier, so its two sizes do not include one.
std::size_t RpcReply::size() const {
  constexpr std::size_t begin = 3 * xdr_unit_bytes;  // xid, kind, state
  constexpr std::size_t status_bytes = xdr_unit_bytes;
  constexpr std::size_t range_bytes = 2 * xdr_unit_bytes;
  if (status == RpcStatus::rpc_mismatch) return begin + status_bytes + range_bytes;
  if (status == RpcStatus::auth_error) return begin + status_bytes + xdr_unit_bytes;
  return begin + size_of(verifier) + status_bytes + (has_range(status) ? range_bytes : 0);
}

void RpcReply::emit(MutableBytes buffer) const {
  XdrWriter out(buffer);
  // The statuses of denied replies are the last ones of RpcStatus.
  const bool denied = status >= RpcStatus::rpc_mismatch;
  out.u32(xid);
  out.u32(static_cast<std::uint32_t>(RpcKind::reply));
  out.u32(static_cast<std::uint32_t>(denied ? ReplyState::denied : ReplyState::accepted));
  if (!denied) {
    write_auth(out, verifier);
    out.u32(static_cast<std::uint32_t>(status));
  } else {
    out.u32(status == RpcStatus::rpc_mismatch ? denied_mismatch : denied_auth);
  }
  if (has_range(status)) {
    out.u32(low);
    out.u32(high);
  }
  if (status == RpcStatus::auth_error) out.u32(auth_status);
}

// The part that calls and replies have in common, by which they are distinguished.
Result<RpcStart, WireError> RpcStart::parse(Bytes bytes) {
  XdrReader in(bytes);
  RpcStart start;
  start.xid = in.u32();
  start.kind = static_cast<RpcKind>(in.u32());
  if (start.kind > RpcKind::reply) in.fail(WireError::bad_value);
  if (!in.ok()) return in.error();
  return start;
}

Result<AuthSys, WireError> AuthSys::parse(Bytes body) {
  XdrReader in(body);
  AuthSys sys;
  sys.stamp = in.u32();
  sys.machine = in.text(max_machine_name_bytes);
  sys.uid = in.u32();
  sys.gid = in.u32();
  // The limit also keeps the loop within the array: count() returns 0 for a larger number.
  sys.group_count = in.count(xdr_unit_bytes, max_groups);
  for (std::size_t i = 0; i < sys.group_count; ++i) sys.groups[i] = in.u32();
  if (!in.ok()) return in.error();
  return sys;
}

Result<GssCredential, WireError> GssCredential::parse(Bytes body) {
  XdrReader in(body);
  GssCredential credential;
  // The version selects the layout of what follows, which is known for version 1 only.
  if (in.u32() != gss_version) in.fail(WireError::bad_version);
  credential.procedure = static_cast<GssProcedure>(in.u32());
  credential.sequence = in.u32();
  credential.service = static_cast<GssService>(in.u32());
  credential.handle = in.opaque(RpcAuth::max_body_bytes);
  if (!in.ok()) return in.error();
  return credential;
}

}  // namespace weft::wire
