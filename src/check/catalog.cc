#include "check/catalog.h"

#include <array>

namespace weft::check {
namespace {

// "IBA" is the InfiniBand Architecture Specification, volume 1.
constexpr std::array table{
    RuleText{Rule::dead_key, "dead-key", "a request uses memory that is no longer registered",
             "ibv_post_send(3), ibv_dereg_mr(3); IBA 10.6 \"Memory Management\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state; if the key was given out again, other memory is read or written."},
    RuleText{Rule::unknown_key, "unknown-key", "a request uses an lkey that no region ever had",
             "ibv_post_send(3): lkey of struct ibv_sge; IBA 10.6 \"Memory Management\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state."},
    RuleText{Rule::wrong_domain, "wrong-domain",
             "a request uses a region of another protection domain",
             "ibv_alloc_pd(3), ibv_reg_mr(3); IBA 10.2.3 \"Protection Domains\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state."},
    RuleText{Rule::region_too_small, "region-too-small",
             "a request reaches beyond the region that its lkey names",
             "ibv_post_send(3): struct ibv_sge; IBA 10.6 \"Memory Management\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state."},
    RuleText{Rule::missing_right, "missing-right",
             "a request writes to memory that was registered without IBV_ACCESS_LOCAL_WRITE",
             "ibv_reg_mr(3): IBV_ACCESS_LOCAL_WRITE; IBA 10.6 \"Memory Management\"",
             "The request completes with IBV_WC_LOC_PROT_ERR and its queue pair goes to the error "
             "state."},
    RuleText{Rule::remote_refused, "remote-refused", "the peer refused an access to its memory",
             "ibv_poll_cq(3): IBV_WC_REM_ACCESS_ERR; ibv_reg_mr(3): remote access flags; "
             "ibv_modify_qp(3): qp_access_flags",
             "As here: both queue pairs go to the error state."},
    RuleText{Rule::refused_peer, "refused-peer",
             "an access of the peer to memory of this process was refused",
             "ibv_reg_mr(3): remote access flags; ibv_modify_qp(3): qp_access_flags; "
             "ibv_dereg_mr(3)",
             "As here: both queue pairs go to the error state. Only the peer learns which request "
             "it was; this side may get IBV_EVENT_QP_ACCESS_ERR."},
    RuleText{Rule::changed_send, "changed-send",
             "the memory of a request was changed before its completion was polled",
             "ibv_post_send(3): \"The buffers used by a WR can only be safely reused after WR the "
             "request is fully executed and a work completion has been retrieved\"",
             "The peer receives the old bytes, the new ones, or a mixture; a retransmission may "
             "send other bytes than the first attempt."},
    RuleText{Rule::changed_receive, "changed-receive",
             "the memory of a receive was changed before its completion was polled",
             "ibv_post_recv(3): \"The buffers used by a WR can only be safely reused after WR the "
             "request is fully executed and a work completion has been retrieved\"",
             "What the program writes and what the message brings overwrite each other, in either "
             "order."},
    RuleText{
        Rule::early_access, "early-access",
        "the memory of a receive, Read or atomic was used before its completion was polled",
        "ibv_post_recv(3), ibv_post_send(3): \"The buffers used by a WR can only be safely "
        "reused after WR the request is fully executed and a work completion has been "
        "retrieved\"",
        "Until the completion the memory holds the old bytes, the new ones, or a mixture; what "
        "the program writes there may be overwritten."},
    RuleText{Rule::polled_write, "polled-write",
             "the program waits for a Write of its peer by reading memory",
             "ibv_query_qp_data_in_order(3); IBA 9.5 \"Transaction Ordering\"; RFC 5040 5.5 "
             "\"Ordering and Completion\"",
             "Most adapters place the bytes of a Write in ascending order, so that its last byte "
             "is there last; no specification promises it. With relaxed ordering, several paths "
             "or some adapters (efa) the byte may be there before the others. Only the completion "
             "of a later receive, a Write with immediate or an atomic says that a Write is "
             "complete."},
    RuleText{Rule::posted_region, "posted-region",
             "a region was deregistered while requests that use it were under way",
             "ibv_dereg_mr(3), ibv_post_send(3); IBA 10.6 \"Memory Management\"",
             "The requests complete with IBV_WC_LOC_PROT_ERR, or a message that arrives for them "
             "ends the connection."},
    RuleText{Rule::unmapped_memory, "unmapped-memory",
             "memory was unmapped while it was registered", "ibv_reg_mr(3), ibv_dereg_mr(3)",
             "The adapter keeps the old pages: it sends from them, and what it receives or a peer "
             "writes goes there, where the program does not see it."},
    RuleText{Rule::freed_memory, "freed-memory", "memory was freed while it was registered",
             "ibv_reg_mr(3), ibv_dereg_mr(3), free(3)",
             "The region stays valid, and the allocator gives the memory to another part of the "
             "program, which peers, and requests that name the region, then overwrite."},
    RuleText{Rule::freed_posted, "freed-posted", "memory was freed while a posted request uses it",
             "ibv_post_send(3), ibv_post_recv(3): \"The buffers used by a WR can only be safely "
             "reused after WR the request is fully executed and a work completion has been "
             "retrieved\"; free(3)",
             "What arrives for the request overwrites what the allocator has put there since; what "
             "is sent are bytes of another part of the program."},
    RuleText{Rule::unordered_access, "unordered-access",
             "two queue pairs access the same memory of the peer at the same time",
             "ibv_post_send(3); IBA 9.5 \"Transaction Ordering\"; RFC 5040 section 5.5: only "
             "requests of one queue pair are ordered",
             "Each queue pair takes its own way through adapters and network: either access comes "
             "first, or they mix. Only the completion of one, polled before the other is posted, "
             "gives them an order."},
    RuleText{Rule::missing_fence, "missing-fence",
             "a request sends memory that an earlier Read or atomic has still to fill",
             "ibv_post_send(3): IBV_SEND_FENCE; IBA table \"Work Request Operation Ordering\"; RFC "
             "5040 section 5.5",
             "The request sends what the memory held before, what the Read brings, or a "
             "mixture."},
    RuleText{Rule::leak, "leak", "objects were not destroyed before the program ended",
             "ibv_close_device(3), and the manual page of the function that made them",
             "The kernel frees them with the process; a program that runs on uses up the "
             "adapter's limits and the memory that may be locked."},
    RuleText{Rule::still_in_use, "still-in-use",
             "an object was to be destroyed while others use it",
             "ibv_dealloc_pd(3), ibv_destroy_cq(3), ibv_destroy_srq(3), "
             "ibv_create_comp_channel(3)",
             "The call fails with EBUSY and the object stays. rdma_destroy_event_channel() "
             "succeeds, and "
             "calls with its ids fail or crash."},
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
    RuleText{Rule::queue_overrun, "queue-overrun",
             "more completions may come than the completion queue holds",
             "ibv_create_cq(3), ibv_get_async_event(3): IBV_EVENT_CQ_ERR",
             "If they come before the next poll, the completion queue overruns: completions are "
             "lost, and all its queue pairs go to the error state."},
    RuleText{Rule::never_retired, "never-retired", "the send queue is full of unsignaled requests",
             "ibv_post_send(3): IBV_SEND_SIGNALED; ibv_create_qp(3): sq_sig_all",
             "The call fails with ENOMEM for ever: only the completion of a signaled request gives "
             "the places of unsignaled ones back."},
    RuleText{Rule::too_few_receives, "too-few-receives", "a message found no receive",
             "ibv_post_recv(3); ibv_modify_qp(3): rnr_retry, min_rnr_timer; IBA 9.7.5.2.8 \"RNR "
             "NAK\"",
             "InfiniBand and RoCE: the sender waits and repeats the message, and fails with "
             "IBV_WC_RNR_RETRY_EXC_ERR after its last retry. iWARP: the connection ends."},
    RuleText{Rule::short_receive, "short-receive", "a message was larger than its receive",
             "ibv_post_recv(3), ibv_poll_cq(3): IBV_WC_LOC_LEN_ERR",
             "As here: the receive completes with IBV_WC_LOC_LEN_ERR, the Send of the peer with "
             "IBV_WC_REM_INV_REQ_ERR, and both queue pairs go to the error state."},
    RuleText{Rule::never_polled, "never-polled", "completions were never polled",
             "ibv_poll_cq(3), ibv_destroy_qp(3)",
             "They are lost with their queue. The program does not know whether the requests "
             "succeeded."},
    RuleText{Rule::undefined_field, "undefined-field",
             "a field of a completion was read that is not valid for its status or opcode",
             "ibv_poll_cq(3): \"Not all wc attributes are always valid\"; ibv_create_cq_ex(3)",
             "The field has what an earlier completion left there, or any other value."},
    RuleText{
        Rule::unacknowledged_event, "unacknowledged-event",
        "an object is destroyed before its events are acknowledged",
        "ibv_get_cq_event(3): \"All completion events that ibv_get_cq_event() returns must be "
        "acknowledged using ibv_ack_cq_events()\"; ibv_get_async_event(3); rdma_get_cm_event(3)",
        "As here: the call that destroys the object does not return before another thread "
        "acknowledges them."},
    RuleText{Rule::not_drained, "not-drained",
             "the program waits for an event of a queue that it has not emptied",
             "ibv_get_cq_event(3), ibv_req_notify_cq(3): only completions that come after the "
             "request raise an event",
             "If no further completion comes, the program waits for ever."},
    RuleText{Rule::fork_without_init, "fork-without-init",
             "the process forks with registered memory and without ibv_fork_init()",
             "ibv_fork_init(3)",
             "On kernels before 5.12 the process may lose the registered pages to its child: the "
             "adapter then reads and writes memory that the program does not see any more."},
    RuleText{Rule::used_in_child, "used-in-child",
             "the child of a fork uses an object of its parent", "ibv_fork_init(3)",
             "The call fails, or disturbs the parent: both use one adapter's queue."},
    RuleText{Rule::signal_handler, "signal-handler", "verbs were called in a signal handler",
             "signal-safety(7), which lists no function of verbs",
             "Drivers take locks: the thread waits for ever if the signal interrupted it in a call "
             "of verbs."},
    RuleText{Rule::inline_size, "inline-size",
             "an inline request is larger than common adapters take",
             "ibv_create_qp(3): max_inline_data, whose limit is the adapter's; ibv_post_send(3): "
             "IBV_SEND_INLINE",
             "Limits differ: about 900 bytes (mlx5), 256 (qedr), 216 or less (irdma), 32 (efa). "
             "ibv_create_qp() fails with EINVAL where more is asked for."},
    RuleText{Rule::datagram_size, "datagram-size", "a datagram is larger than the path MTU",
             "ibv_post_send(3); ibv_query_port(3): active_mtu; IBA 9.8.3 \"Unreliable "
             "Datagram\"",
             "The request completes with IBV_WC_LOC_LEN_ERR, or the message is dropped."},
};

}  // namespace

std::span<const RuleText> rules() {
  return table;
}

const RuleText& text_of(Rule rule) {
  return table[static_cast<std::size_t>(rule)];
}

}  // namespace weft::check
