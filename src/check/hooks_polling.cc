// Extended completion queues: ibv_start_poll(3), and the functions that read the fields of the
// current completion.
#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "check/completion_checks.h"
#include "check/hooks.h"
#include "check/retiring.h"

namespace weft::check {
namespace {

// All extended queues of the device have the same functions; each has those for which its program
// has asked. A member is set before the first queue has ours in its place, and never again.
ibv_cq_ex& below() {
  static ibv_cq_ex functions{};
  return functions;
}

// These readers are there always: see create_cq_ex().
ibv_wc current(ibv_cq_ex* cq) {
  ibv_wc completion{};
  completion.wr_id = cq->wr_id;
  completion.status = cq->status;
  completion.opcode = below().read_opcode(cq);
  completion.wc_flags = below().read_wc_flags(cq);
  completion.qp_num = below().read_qp_num(cq);
  completion.byte_len = below().read_byte_len(cq);
  return completion;
}

void check_current(Call& call, ibv_cq_ex* cq) {
  note_polled(ibv_cq_ex_to_cq(cq), cq->status);
  check_completion(call, ibv_cq_ex_to_cq(cq), current(cq));
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  Call call("ibv_start_poll");
  if (!call.may_use(cq)) return EINVAL;
  checker().polled_writes.look();
  const int failed = below().start_poll(cq, attributes);
  if (failed == 0) check_current(call, cq);
  if (failed == ENOENT) note_drained(ibv_cq_ex_to_cq(cq));
  return failed;
}

int next_poll(ibv_cq_ex* cq) {
  Call call("ibv_next_poll");
  const int failed = below().next_poll(cq);
  if (failed == 0) check_current(call, cq);
  if (failed == ENOENT) note_drained(ibv_cq_ex_to_cq(cq));
  return failed;
}

// --- The fields ----------------------------------------------------------------------------------

std::string_view name_of(Field field) {
  switch (field) {
    case Field::opcode:
      return "opcode";
    case Field::byte_len:
      return "byte_len";
    case Field::imm_data:
      return "imm_data";
    case Field::wc_flags:
      return "wc_flags";
    case Field::src_qp:
      return "src_qp";
    case Field::slid:
      return "slid";
    case Field::sl:
      return "sl";
    case Field::dlid_path_bits:
      return "dlid_path_bits";
  }
  return "field";
}

// The type of a queue pair that is not known counts as IBV_QPT_UD, which has all fields.
ibv_qp_type type_of(std::uint32_t queue_pair) {
  const std::lock_guard lock(checker().mutex);
  const auto account = checker().requests.find(queue_pair);
  return account ? account->qp->qp_type : IBV_QPT_UD;
}

void report_field(const ibv_wc& completion, Field field) {
  const std::string name = fmt::format("ibv_wc_read_{}", name_of(field));
  Call call(name.c_str());
  const std::string of =
      completion.status != IBV_WC_SUCCESS
          ? fmt::format("the status {}", static_cast<int>(completion.status))
          : fmt::format("the opcode {} and the flags {:#x}", static_cast<int>(completion.opcode),
                        static_cast<unsigned>(completion.wc_flags));
  call.report(
      Rule::undefined_field,
      fmt::format("{} was called for completion {:#x}, which has {}.", name, completion.wr_id, of),
      "It was read here");
}

template <auto member, Field field>
auto read(ibv_cq_ex* cq) {
  const ibv_wc completion = current(cq);
  auto value = (below().*member)(cq);
  if (is_defined(completion, type_of(completion.qp_num), field)) return value;
  report_field(completion, field);
  std::memset(static_cast<void*>(&value), undefined_byte, sizeof value);
  return value;
}

template <auto member, Field field>
void hook_reader(ibv_cq_ex& cq) {
  if (!(cq.*member)) return;
  if (!(below().*member)) below().*member = cq.*member;
  cq.*member = read<member, field>;
}

}  // namespace

void hook_polling(ibv_cq_ex& cq, std::uint64_t wanted) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!below().start_poll) below().start_poll = cq.start_poll;
  if (!below().next_poll) below().next_poll = cq.next_poll;
  if (!below().read_qp_num) below().read_qp_num = cq.read_qp_num;
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  hook_reader<&ibv_cq_ex::read_opcode, Field::opcode>(cq);
  hook_reader<&ibv_cq_ex::read_byte_len, Field::byte_len>(cq);
  hook_reader<&ibv_cq_ex::read_imm_data, Field::imm_data>(cq);
  hook_reader<&ibv_cq_ex::read_wc_flags, Field::wc_flags>(cq);
  hook_reader<&ibv_cq_ex::read_src_qp, Field::src_qp>(cq);
  hook_reader<&ibv_cq_ex::read_slid, Field::slid>(cq);
  hook_reader<&ibv_cq_ex::read_sl, Field::sl>(cq);
  hook_reader<&ibv_cq_ex::read_dlid_path_bits, Field::dlid_path_bits>(cq);
  if ((wanted & IBV_WC_EX_WITH_QP_NUM) == 0) cq.read_qp_num = nullptr;
  if ((wanted & IBV_WC_EX_WITH_BYTE_LEN) == 0) cq.read_byte_len = nullptr;
}

}  // namespace weft::check
