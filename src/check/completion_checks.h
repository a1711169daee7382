// Checks of completion queues, their events, and the receives that a queue pair has had.
#pragma once

#include <infiniband/verbs.h>

#include "check/checker.h"

namespace weft::check {

// After a request was noted: whether the queue can hold all completions that may come.
void check_room(Call& call, const ibv_cq& cq);
// The program has polled a completion, and at the end of a poll whether the queue was empty.
void note_polled(const ibv_cq* cq, ibv_wc_status status);
void note_drained(const ibv_cq* cq);
void note_armed(Call& call, ibv_cq* cq);
void note_event(const ibv_cq* cq);
void note_acknowledged(const ibv_cq* cq, unsigned events);
// Before the program waits at the channel.
void check_wait(const ibv_comp_channel* channel);
// Completions that were not polled are lost: before the queue is destroyed, all of them; before a
// queue pair is destroyed, or after it was reset, its own.
void check_unpolled(Call& call, ibv_cq* cq);
void check_unpolled(Call& call, ibv_qp* qp);
// Before an object is destroyed, which waits for acknowledgements: of the completion events of a
// queue; of the asynchronous events of a queue or queue pair, or the events of an id.
void check_acknowledged(Call& call, const ibv_cq* cq);
void check_events_acknowledged(Call& call, const void* object);
// Before a queue pair is destroyed: whether messages of the peer found no receive.
void check_receives(Call& call, ibv_qp* qp);

// The fields of a completion that ibv_poll_cq(3) does not define for each one.
enum class Field : std::uint8_t {
  opcode,
  byte_len,
  imm_data,
  wc_flags,
  src_qp,
  slid,
  sl,
  dlid_path_bits,
};
[[nodiscard]] bool is_defined(const ibv_wc& completion, ibv_qp_type type, Field field);
// What undefined fields are filled with: it gives no valid opcode and a very large length.
inline constexpr int undefined_byte = 0xA5;
// Fills those of a completion of a queue pair of this type.
void poison(ibv_wc& completion, ibv_qp_type type);

}  // namespace weft::check
