#include "capture/rpc/nfs4_table.h"

#include <algorithm>
#include <array>

namespace weft::capture {
namespace {

// Formats that several operations share.
#define WEFT_ACE "444o"
#define WEFT_SPACE_LIMIT "{1:8|2:44}"
#define WEFT_READ_DELEGATION "S4" WEFT_ACE
#define WEFT_WRITE_DELEGATION "S4" WEFT_SPACE_LIMIT WEFT_ACE
#define WEFT_DELEGATION                                     \
  "{0:|1:" WEFT_READ_DELEGATION "|2:" WEFT_WRITE_DELEGATION \
  "|3:{1:4|2:4|*:}|4:" WEFT_READ_DELEGATION "|5:" WEFT_WRITE_DELEGATION "}"
#define WEFT_CHANNEL "444444[4]"
#define WEFT_CALLBACK_SECURITY "[{0:|1:4o44[4]|6:4oo}]"
#define WEFT_SECURITY "[{6:o44|*:}]"
#define WEFT_IMPLEMENTATION "[oo84]"
#define WEFT_WRITE_RESPONSE "[S]84V"
#define WEFT_SERVER "{1:o|2:o|3:oo}"

// Operations: RFC 7530 §16, RFC 8881 §18, RFC 7862 §15, RFC 8276 §8.4. A format is empty if the
// operation has no such content, or if decode_arguments() or decode_result() in nfs4.cc reads all
// of it.
constexpr std::array operations{
    Nfs4Operation{3, "ACCESS", "4", "44"},
    Nfs4Operation{4, "CLOSE", "4S", "S"},
    Nfs4Operation{5, "COMMIT", "84", "V"},
    Nfs4Operation{6, "CREATE", "", "cb"},
    Nfs4Operation{7, "DELEGPURGE", "8", ""},
    Nfs4Operation{8, "DELEGRETURN", "S", ""},
    Nfs4Operation{9, "GETATTR", "b", ""},
    Nfs4Operation{10, "GETFH", "", ""},
    Nfs4Operation{11, "LINK", "", "c"},
    Nfs4Operation{12, "LOCK", "4488{0:S4|1:4S48o}", "S"},
    Nfs4Operation{13, "LOCKT", "4888o", ""},
    Nfs4Operation{14, "LOCKU", "44S88", "S"},
    Nfs4Operation{15, "LOOKUP", "", ""},
    Nfs4Operation{16, "LOOKUPP", "", ""},
    Nfs4Operation{17, "NVERIFY", "a", ""},
    Nfs4Operation{18, "OPEN", "", "Sc4b" WEFT_DELEGATION},
    Nfs4Operation{19, "OPENATTR", "4", ""},
    Nfs4Operation{20, "OPEN_CONFIRM", "S4", "S"},
    Nfs4Operation{21, "OPEN_DOWNGRADE", "S444", "S"},
    Nfs4Operation{22, "PUTFH", "", ""},
    Nfs4Operation{23, "PUTPUBFH", "", ""},
    Nfs4Operation{24, "PUTROOTFH", "", ""},
    Nfs4Operation{25, "READ", "", ""},
    Nfs4Operation{26, "READDIR", "8V44b", ""},
    Nfs4Operation{27, "READLINK", "", ""},
    Nfs4Operation{28, "REMOVE", "", "c"},
    Nfs4Operation{29, "RENAME", "", "cc"},
    Nfs4Operation{30, "RENEW", "8", ""},
    Nfs4Operation{31, "RESTOREFH", "", ""},
    Nfs4Operation{32, "SAVEFH", "", ""},
    Nfs4Operation{33, "SECINFO", "o", WEFT_SECURITY},
    Nfs4Operation{34, "SETATTR", "S", "b"},
    Nfs4Operation{35, "SETCLIENTID", "Vo4oo4", "8V"},
    Nfs4Operation{36, "SETCLIENTID_CONFIRM", "8V", ""},
    Nfs4Operation{37, "VERIFY", "a", ""},
    Nfs4Operation{38, "WRITE", "", "44V"},
    Nfs4Operation{39, "RELEASE_LOCKOWNER", "8o", ""},
    Nfs4Operation{40, "BACKCHANNEL_CTL", "4" WEFT_CALLBACK_SECURITY, ""},
    Nfs4Operation{41, "BIND_CONN_TO_SESSION", "K44", "K44"},
    Nfs4Operation{42, "EXCHANGE_ID", "Vo4{0:|1:bb|2:bb[o][o]44}" WEFT_IMPLEMENTATION,
                  "844{0:|1:bb|2:bb4444[o]}8oo" WEFT_IMPLEMENTATION},
    Nfs4Operation{43, "CREATE_SESSION", "844" WEFT_CHANNEL WEFT_CHANNEL "4" WEFT_CALLBACK_SECURITY,
                  "K44" WEFT_CHANNEL WEFT_CHANNEL},
    Nfs4Operation{44, "DESTROY_SESSION", "K", ""},
    Nfs4Operation{45, "FREE_STATEID", "S", ""},
    Nfs4Operation{46, "GET_DIR_DELEGATION", "4b8484bb", "{0:VSbbb|1:4}"},
    Nfs4Operation{47, "GETDEVICEINFO", "K44b", "4ob"},
    Nfs4Operation{48, "GETDEVICELIST", "448V", "8V[K]4"},
    Nfs4Operation{49, "LAYOUTCOMMIT", "884S?(8)?(84)4o", "?(8)"},
    Nfs4Operation{50, "LAYOUTGET", "444888S4", "4S[8844o]"},
    Nfs4Operation{51, "LAYOUTRETURN", "444{1:88So|*:}", "?(S)"},
    Nfs4Operation{52, "SECINFO_NO_NAME", "4", WEFT_SECURITY},
    Nfs4Operation{53, "SEQUENCE", "K4444", "K44444"},
    Nfs4Operation{54, "SET_SSV", "oo", "o"},
    Nfs4Operation{55, "TEST_STATEID", "[S]", "[4]"},
    Nfs4Operation{56, "WANT_DELEGATION", "4{1:4|*:}", WEFT_DELEGATION},
    Nfs4Operation{57, "DESTROY_CLIENTID", "8", ""},
    Nfs4Operation{58, "RECLAIM_COMPLETE", "4", ""},
    Nfs4Operation{59, "ALLOCATE", "S88", ""},
    Nfs4Operation{60, "COPY", "SS88844[" WEFT_SERVER "]", WEFT_WRITE_RESPONSE "44"},
    Nfs4Operation{61, "COPY_NOTIFY", "S" WEFT_SERVER, "84S[" WEFT_SERVER "]"},
    Nfs4Operation{62, "DEALLOCATE", "S88", ""},
    Nfs4Operation{63, "IO_ADVISE", "S88b", "b"},
    Nfs4Operation{64, "LAYOUTERROR", "88S[K44]", ""},
    Nfs4Operation{65, "LAYOUTSTATS", "88S8888K4o", ""},
    Nfs4Operation{66, "OFFLOAD_CANCEL", "S", ""},
    Nfs4Operation{67, "OFFLOAD_STATUS", "S", "8[4]"},
    Nfs4Operation{68, "READ_PLUS", "S84", "4[{0:8o|1:88}]"},
    Nfs4Operation{69, "SEEK", "S84", "48"},
    Nfs4Operation{70, "WRITE_SAME", "S4888848o", WEFT_WRITE_RESPONSE},
    Nfs4Operation{71, "CLONE", "SS888", ""},
    Nfs4Operation{72, "GETXATTR", "o", "o"},
    Nfs4Operation{73, "SETXATTR", "4oo", "c"},
    Nfs4Operation{74, "LISTXATTRS", "84", "8[o]4"},
    Nfs4Operation{75, "REMOVEXATTR", "o", "c"},
};

// Callback operations: RFC 7530 §17, RFC 8881 §20, RFC 7862 §16.
constexpr std::array callbacks{
    Nfs4Operation{3, "CB_GETATTR", "ob", "a"},
    Nfs4Operation{4, "CB_RECALL", "S4o", ""},
    Nfs4Operation{5, "CB_LAYOUTRECALL", "444{1:o88S|2:88|*:}", ""},
    Nfs4Operation{6, "CB_NOTIFY", "So[bo]", ""},
    Nfs4Operation{7, "CB_PUSH_DELEG", "o" WEFT_DELEGATION, ""},
    Nfs4Operation{8, "CB_RECALL_ANY", "4b", ""},
    Nfs4Operation{9, "CB_RECALLABLE_OBJ_AVAIL", "4b", ""},
    Nfs4Operation{10, "CB_RECALL_SLOT", "4", ""},
    Nfs4Operation{11, "CB_SEQUENCE", "K4444[K[44]]", "K4444"},
    Nfs4Operation{12, "CB_WANTS_CANCELLED", "44", ""},
    Nfs4Operation{13, "CB_NOTIFY_LOCK", "o8o", ""},
    Nfs4Operation{14, "CB_NOTIFY_DEVICEID", "[bo]", ""},
    Nfs4Operation{15, "CB_OFFLOAD", "oS{0:" WEFT_WRITE_RESPONSE "|*:8}", ""},
};

// The statuses other than OK that have a result.
constexpr std::uint32_t status_toosmall = 10005;
constexpr std::uint32_t status_denied = 10010;
constexpr std::uint32_t status_clid_inuse = 10017;
constexpr std::uint32_t status_layouttrylater = 10058;
constexpr std::uint32_t status_offload_no_reqs = 10094;

}  // namespace

const Nfs4Operation* find_nfs4_operation(std::uint32_t number, bool callback) {
  const auto in = [&](const auto& table) -> const Nfs4Operation* {
    const auto found = std::ranges::find(table, number, &Nfs4Operation::number);
    return found == table.end() ? nullptr : &*found;
  };
  return callback ? in(callbacks) : in(operations);
}

// Returns the format of a result that follows a failure. SETATTR has its bitmap with every status.
// The others have one case with content, such as the conflicting lock of LOCK and LOCKT.
std::string_view nfs4_failure_format(std::uint32_t number, std::uint32_t status) {
  constexpr std::uint32_t lock = 12;
  constexpr std::uint32_t lockt = 13;
  constexpr std::uint32_t setclientid = 35;
  constexpr std::uint32_t getdeviceinfo = 47;
  constexpr std::uint32_t layoutget = 50;
  constexpr std::uint32_t copy = 60;
  if (number == nfs4::setattr) return "b";
  if ((number == lock || number == lockt) && status == status_denied) return "8848o";
  if (number == setclientid && status == status_clid_inuse) return "oo";
  if (number == getdeviceinfo && status == status_toosmall) return "4";
  if (number == layoutget && status == status_layouttrylater) return "4";
  if (number == copy && status == status_offload_no_reqs) return "44";
  return "";
}

}  // namespace weft::capture
