#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "weft/capture/nfs.hpp"

namespace weft::capture {
namespace {

struct Name {
  std::uint32_t status;
  std::string_view name;
};

// Status codes: RFC 1813 §2.6, RFC 7530 §13.1, RFC 8881 §15.1, RFC 7862 §11.1, RFC 8276 §8.5.
constexpr std::array statuses{
    Name{1, "PERM"},
    Name{2, "NOENT"},
    Name{5, "IO"},
    Name{6, "NXIO"},
    Name{13, "ACCES"},
    Name{17, "EXIST"},
    Name{18, "XDEV"},
    Name{19, "NODEV"},
    Name{20, "NOTDIR"},
    Name{21, "ISDIR"},
    Name{22, "INVAL"},
    Name{27, "FBIG"},
    Name{28, "NOSPC"},
    Name{30, "ROFS"},
    Name{31, "MLINK"},
    Name{63, "NAMETOOLONG"},
    Name{66, "NOTEMPTY"},
    Name{69, "DQUOT"},
    Name{70, "STALE"},
    Name{71, "REMOTE"},
    Name{10001, "BADHANDLE"},
    Name{10002, "NOT_SYNC"},
    Name{10003, "BAD_COOKIE"},
    Name{10004, "NOTSUPP"},
    Name{10005, "TOOSMALL"},
    Name{10006, "SERVERFAULT"},
    Name{10007, "BADTYPE"},
    Name{10008, "DELAY"},
    Name{10009, "SAME"},
    Name{10010, "DENIED"},
    Name{10011, "EXPIRED"},
    Name{10012, "LOCKED"},
    Name{10013, "GRACE"},
    Name{10014, "FHEXPIRED"},
    Name{10015, "SHARE_DENIED"},
    Name{10016, "WRONGSEC"},
    Name{10017, "CLID_INUSE"},
    Name{10018, "RESOURCE"},
    Name{10019, "MOVED"},
    Name{10020, "NOFILEHANDLE"},
    Name{10021, "MINOR_VERS_MISMATCH"},
    Name{10022, "STALE_CLIENTID"},
    Name{10023, "STALE_STATEID"},
    Name{10024, "OLD_STATEID"},
    Name{10025, "BAD_STATEID"},
    Name{10026, "BAD_SEQID"},
    Name{10027, "NOT_SAME"},
    Name{10028, "LOCK_RANGE"},
    Name{10029, "SYMLINK"},
    Name{10030, "RESTOREFH"},
    Name{10031, "LEASE_MOVED"},
    Name{10032, "ATTRNOTSUPP"},
    Name{10033, "NO_GRACE"},
    Name{10034, "RECLAIM_BAD"},
    Name{10035, "RECLAIM_CONFLICT"},
    Name{10036, "BADXDR"},
    Name{10037, "LOCKS_HELD"},
    Name{10038, "OPENMODE"},
    Name{10039, "BADOWNER"},
    Name{10040, "BADCHAR"},
    Name{10041, "BADNAME"},
    Name{10042, "BAD_RANGE"},
    Name{10043, "LOCK_NOTSUPP"},
    Name{10044, "OP_ILLEGAL"},
    Name{10045, "DEADLOCK"},
    Name{10046, "FILE_OPEN"},
    Name{10047, "ADMIN_REVOKED"},
    Name{10048, "CB_PATH_DOWN"},
    Name{10049, "BADIOMODE"},
    Name{10050, "BADLAYOUT"},
    Name{10051, "BAD_SESSION_DIGEST"},
    Name{10052, "BADSESSION"},
    Name{10053, "BADSLOT"},
    Name{10054, "COMPLETE_ALREADY"},
    Name{10055, "CONN_NOT_BOUND_TO_SESSION"},
    Name{10056, "DELEG_ALREADY_WANTED"},
    Name{10057, "BACK_CHAN_BUSY"},
    Name{10058, "LAYOUTTRYLATER"},
    Name{10059, "LAYOUTUNAVAILABLE"},
    Name{10060, "NOMATCHING_LAYOUT"},
    Name{10061, "RECALLCONFLICT"},
    Name{10062, "UNKNOWN_LAYOUTTYPE"},
    Name{10063, "SEQ_MISORDERED"},
    Name{10064, "SEQUENCE_POS"},
    Name{10065, "REQ_TOO_BIG"},
    Name{10066, "REP_TOO_BIG"},
    Name{10067, "REP_TOO_BIG_TO_CACHE"},
    Name{10068, "RETRY_UNCACHED_REP"},
    Name{10069, "UNSAFE_COMPOUND"},
    Name{10070, "TOO_MANY_OPS"},
    Name{10071, "OP_NOT_IN_SESSION"},
    Name{10072, "HASH_ALG_UNSUPP"},
    Name{10074, "CLIENTID_BUSY"},
    Name{10075, "PNFS_IO_HOLE"},
    Name{10076, "SEQ_FALSE_RETRY"},
    Name{10077, "BAD_HIGH_SLOT"},
    Name{10078, "DEADSESSION"},
    Name{10079, "ENCR_ALG_UNSUPP"},
    Name{10080, "PNFS_NO_LAYOUT"},
    Name{10081, "NOT_ONLY_OP"},
    Name{10082, "WRONG_CRED"},
    Name{10083, "WRONG_TYPE"},
    Name{10084, "DIRDELEG_UNAVAIL"},
    Name{10085, "REJECT_DELEG"},
    Name{10086, "RETURNCONFLICT"},
    Name{10087, "DELEG_REVOKED"},
    Name{10088, "PARTNER_NOTSUPP"},
    Name{10089, "PARTNER_NO_AUTH"},
    Name{10090, "UNION_NOTSUPP"},
    Name{10091, "OFFLOAD_DENIED"},
    Name{10092, "WRONG_LFS"},
    Name{10093, "BADLABEL"},
    Name{10094, "OFFLOAD_NO_REQS"},
    Name{10095, "NOXATTR"},
    Name{10096, "XATTR2BIG"},
};

}  // namespace

// Versions 3 and 4 share the numbers; version 3 has another name for 10008 only.
std::string nfs_status(std::uint32_t version, std::uint32_t status) {
  if (status == 0) return "OK";
  if (version == 3 && status == 10008) return "NFS3ERR_JUKEBOX";
  const auto found = std::ranges::find(statuses, status, &Name::status);
  if (found == statuses.end()) return fmt::format("status {}", status);
  return fmt::format("NFS{}ERR_{}", version == 3 ? 3 : 4, found->name);
}

std::string to_hex(Bytes bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

}  // namespace weft::capture
