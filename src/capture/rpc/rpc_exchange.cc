#include "capture/rpc/rpc_exchange.h"

#include <optional>

#include "capture/rpc/nfs4_table.h"
#include "capture/rpc/nfs_decode.h"
#include "wire/rpc.h"
#include "wire/xdr.h"

namespace weft::capture {
namespace {

// Program numbers of NFS callbacks: servers use numbers that RFC 5531 §13.1 leaves to be chosen at
// run time.
constexpr std::uint32_t first_transient_program = 0x40000000;
constexpr std::uint32_t last_transient_program = 0x5FFFFFFF;
constexpr std::uint32_t callback_version = 1;
constexpr std::uint32_t compound = 1;

bool is_callback(const Rpc& rpc) {
  return rpc.program >= first_transient_program && rpc.program <= last_transient_program &&
         rpc.version == callback_version && rpc.procedure <= compound;
}

bool is_nfs(const Rpc& rpc) {
  return is_callback(rpc) || (rpc.program == nfs_program && (rpc.version == 3 || rpc.version == 4));
}

struct Gss {
  bool present = false;
  wire::GssCredential credential;
};

// Returns where the arguments or results begin after a header of `header_bytes`; nothing if they
// are encrypted or are tokens of the security mechanism (RFC 2203 §5.3.2.2).
std::optional<std::size_t> body_begin(const Assembled& message, std::size_t header_bytes,
                                      const Gss& gss) {
  if (!gss.present) return header_bytes;
  if (gss.credential.procedure != wire::GssProcedure::data) return {};
  if (gss.credential.service == wire::GssService::none) return header_bytes;
  if (gss.credential.service != wire::GssService::integrity) return {};
  // The protected part begins with its length and a copy of the sequence number.
  if (message.size() < header_bytes + 8) return {};
  return header_bytes + 8;
}

// Reads the fields of AUTH_SYS or RPCSEC_GSS; other flavours have nothing to show.
void read_credential(Rpc& rpc, const wire::RpcAuth& auth, Gss& gss) {
  rpc.flavor = auth.flavor;
  if (auth.flavor == wire::AuthFlavor::sys) {
    if (const auto sys = wire::AuthSys::parse(auth.body)) {
      rpc.uid = sys->uid;
      rpc.gid = sys->gid;
    }
  }
  if (auth.flavor != wire::AuthFlavor::gss) return;
  const auto credential = wire::GssCredential::parse(auth.body);
  if (!credential) return;
  gss = {true, *credential};
  if (credential->service == wire::GssService::integrity) rpc.gss = GssProtection::integrity;
  if (credential->service == wire::GssService::privacy) rpc.gss = GssProtection::privacy;
}

// Decodes the header of a call and returns its size, or 0 if it is damaged.
std::size_t decode_call_header(const Assembled& message, Rpc& rpc, Gss& gss) {
  const auto call = wire::RpcCall::parse(message.bytes());
  // Missing bytes are zeros in the message, so a header with gaps could be parsed, but not trusted.
  if (!call || !message.whole(0, call->size())) return 0;
  rpc.has_header = true;
  rpc.program = call->program;
  rpc.version = call->version;
  rpc.procedure = call->procedure;
  read_credential(rpc, call->credential, gss);
  return call->size();
}

// Decodes the call as far as its protection allows. NFS calls get an exchange even if the rest
// cannot be decoded.
void decode_call(Rpc& rpc, Gss& gss) {
  const Assembled& message = rpc.call->message;
  const std::size_t header_bytes = decode_call_header(message, rpc, gss);
  if (header_bytes == 0 || !is_nfs(rpc)) return;
  const auto begin = body_begin(message, header_bytes, gss);
  rpc.nfs.emplace();
  rpc.nfs->version = is_callback(rpc) ? 4 : rpc.version;
  rpc.nfs->callback = is_callback(rpc);
  if (!begin) return;
  const std::vector<Assembled> no_chunks;
  MessageReader in(message, *begin, no_chunks);
  if (rpc.nfs->version == 3) {
    decode_nfs3_call(in, rpc.procedure, *rpc.nfs);
  } else if (rpc.procedure == compound) {
    decode_nfs4_call(in, *rpc.nfs);
  } else {
    rpc.nfs->call_decoded = true;
  }
}

// Restores the reply as it was before the responder reduced it.
Assembled put_together(const RpcMessage& reply,
                       const std::vector<MessageReader::Placement>& placements) {
  std::vector<ReadChunk> chunks;
  std::uint64_t inserted = 0;
  for (const auto& placement : placements) {
    const auto position = static_cast<std::uint32_t>(placement.position + inserted);
    chunks.push_back({position, reply.chunks[placement.chunk]});
    inserted += wire::xdr_padded(reply.chunks[placement.chunk].size());
  }
  return splice(reply.message, chunks).message;
}

// Decodes the results, and restores the whole reply if that succeeded. Chunks with bytes that no
// result uses are faults.
void decode_results(Rpc& rpc, std::size_t begin, ExchangeFaults& faults) {
  RpcMessage& reply = *rpc.reply;
  MessageReader in(reply.message, begin, reply.chunks);
  if (rpc.nfs->version == 3) {
    decode_nfs3_reply(in, rpc.procedure, *rpc.nfs);
  } else if (rpc.procedure == compound) {
    decode_nfs4_reply(in, *rpc.nfs);
  } else {
    rpc.nfs->reply_decoded = true;
  }
  faults.lengths = in.mismatches();
  if (!rpc.nfs->reply_decoded) return;
  reply.whole = put_together(reply, in.placements());
  for (std::size_t i = reply.chunks.size() - in.chunks_left(); i < reply.chunks.size(); ++i) {
    if (reply.chunks[i].size() != 0 || !reply.chunks[i].whole()) ++faults.unused_chunks;
  }
}

// A reply without chunks is whole as it is. Only a successful status has results.
void decode_reply(Rpc& rpc, const Gss& gss, ExchangeFaults& faults) {
  const Assembled& message = rpc.reply->message;
  const auto reply = wire::RpcReply::parse(message.bytes());
  if (!reply || !message.whole(0, reply->size())) return;
  rpc.status = reply->status;
  if (rpc.reply->chunks.empty()) rpc.reply->whole = message;
  if (!rpc.nfs || reply->status != wire::RpcStatus::success) return;
  if (const auto begin = body_begin(message, reply->size(), gss)) {
    decode_results(rpc, *begin, faults);
  }
}

}  // namespace

void decode_header(Rpc& rpc) {
  Gss gss;
  if (rpc.call) decode_call_header(rpc.call->message, rpc, gss);
}

ExchangeFaults decode_exchange(Rpc& rpc) {
  ExchangeFaults faults;
  Gss gss;
  if (rpc.call) decode_call(rpc, gss);
  if (rpc.reply && !rpc.error) decode_reply(rpc, gss, faults);
  return faults;
}

// The credential was decoded before, and is read again because an Rpc does not keep it.
std::optional<NfsSession> session_of_call(const Rpc& rpc) {
  if (rpc.program != nfs_program || rpc.version != 4 || rpc.procedure != compound) return {};
  Rpc copy_of_header;
  Gss gss;
  const Assembled& message = rpc.call->message;
  const std::size_t header_bytes = decode_call_header(message, copy_of_header, gss);
  const auto begin = header_bytes == 0 ? std::nullopt : body_begin(message, header_bytes, gss);
  if (!begin) return {};
  wire::XdrReader in(message.bytes().subspan(*begin));
  in.opaque();
  const std::uint32_t minor = in.u32();
  if (minor == 0 || in.u32() == 0 || in.u32() != nfs4::sequence) return {};
  NfsSession session = decode_session(in);
  if (!in.ok() || !message.whole(*begin, *begin + in.position())) return {};
  return session;
}

std::optional<std::uint32_t> slots_of_reply(const Rpc& rpc, const Assembled& reply) {
  Rpc copy_of_header;
  Gss gss;
  if (!rpc.call || decode_call_header(rpc.call->message, copy_of_header, gss) == 0) return {};
  const auto header = wire::RpcReply::parse(reply.bytes());
  if (!header || header->status != wire::RpcStatus::success) return {};
  const auto begin = body_begin(reply, header->size(), gss);
  if (!begin) return {};
  wire::XdrReader in(reply.bytes().subspan(*begin));
  in.u32();  // status of the whole
  in.opaque();
  if (in.u32() == 0 || in.u32() != nfs4::sequence || in.u32() != 0) return {};
  constexpr std::size_t id_bytes = 16;
  in.fixed(id_bytes);
  for (int skipped = 0; skipped < 3; ++skipped) in.u32();  // sequence, slot, highest slot
  const std::uint32_t target = in.u32();
  if (!in.ok() || !reply.whole(*begin, *begin + in.position())) return {};
  constexpr std::uint32_t most = 0xFFFF;
  return target < most ? std::optional(target + 1) : std::nullopt;
}

}  // namespace weft::capture
