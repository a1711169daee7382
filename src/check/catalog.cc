#include "check/catalog.h"

#include <array>

namespace weft::check {
namespace {

// "IBA" is the InfiniBand Architecture Specification, volume 1.
constexpr std::array table{
    RuleText{Rule::dead_key, "dead-key", "a request uses memory that is no longer registered",
             "ibv_post_send(3), ibv_dereg_mr(3); IBA 10.6.7 \"Memory Region Deregistration\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state; if the key was given out again, other memory is read or written."},
    RuleText{Rule::unknown_key, "unknown-key", "a request uses an lkey that no region ever had",
             "ibv_post_send(3): lkey of struct ibv_sge; IBA 10.6.3 \"Memory Access Control\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state."},
    RuleText{Rule::wrong_domain, "wrong-domain",
             "a request uses a region of another protection domain",
             "ibv_alloc_pd(3), ibv_reg_mr(3); IBA 10.2.3 \"Protection Domains\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state."},
    RuleText{Rule::region_too_small, "region-too-small",
             "a request reaches beyond the region that its lkey names",
             "ibv_post_send(3): struct ibv_sge; IBA 10.6.3 \"Memory Access Control\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state."},
    RuleText{Rule::missing_right, "missing-right",
             "a request writes to memory that was registered without IBV_ACCESS_LOCAL_WRITE",
             "ibv_reg_mr(3): IBV_ACCESS_LOCAL_WRITE; IBA 10.6.3 \"Memory Access Control\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state."},
    RuleText{Rule::remote_refused, "remote-refused", "the peer refused an access to its memory",
             "ibv_poll_cq(3): IBV_WC_REM_ACCESS_ERR; ibv_reg_mr(3): remote access flags; "
             "ibv_modify_qp(3): qp_access_flags",
             "As here: both queue pairs go to the error state."},
    RuleText{Rule::changed_send, "changed-send",
             "the memory of a request was changed before its completion was polled",
             "ibv_post_send(3): \"The buffers used by a WR can only be safely reused after WR the "
             "request is fully executed and a work completion has been retrieved\"",
             "The peer receives the old bytes, the new ones, or a mixture; a retransmission may "
             "send other bytes than the first attempt."},
    RuleText{Rule::posted_region, "posted-region",
             "a region was deregistered while requests that use it were under way",
             "ibv_dereg_mr(3), ibv_post_send(3); IBA 10.6.7 \"Memory Region Deregistration\"",
             "The requests complete with IBV_WC_LOC_PROT_ERR, or a message that arrives for them "
             "ends the connection."},
    RuleText{Rule::leak, "leak", "objects were not destroyed before the program ended",
             "ibv_close_device(3), and the manual page of the function that made them",
             "The kernel frees them with the process; a program that runs on uses up the "
             "adapter's limits and the memory that may be locked."},
    RuleText{Rule::still_in_use, "still-in-use",
             "an object was to be destroyed while others use it",
             "ibv_dealloc_pd(3), ibv_destroy_cq(3), ibv_destroy_srq(3), "
             "ibv_create_comp_channel(3), ibv_close_device(3), rdma_destroy_id(3)",
             "The call fails with EBUSY and the object stays."},
    RuleText{Rule::destroyed_object, "destroyed-object",
             "a function was called with an object that is destroyed",
             "the manual page of the function that destroyed it",
             "The object's memory is freed: the program crashes, or uses another object that has "
             "taken its place."},
    RuleText{Rule::wrong_state, "wrong-state",
             "a request was posted in a state of the queue pair that does not allow it",
             "ibv_modify_qp(3), ibv_post_send(3), ibv_post_recv(3); IBA 10.3.1 \"Queue Pair and EE "
             "Context States\"",
             "The call fails with EINVAL. Some drivers do not look at the state: then the request "
             "is lost, or is sent when the state allows it."},
};

}  // namespace

std::span<const RuleText> rules() {
  return table;
}

const RuleText& text_of(Rule rule) {
  return table[static_cast<std::size_t>(rule)];
}

}  // namespace weft::check
