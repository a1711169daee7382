// The names of the findings about RPCs. Those about the transport are in traffic_findings.hpp.
#pragma once

#include <string_view>

namespace weft::capture {

namespace finding {
// Headers
inline constexpr std::string_view malformed_header = "rpc-rdma-malformed";
inline constexpr std::string_view xid_differs = "rpc-xid-differs";
inline constexpr std::string_view nomsg_with_message = "rpc-nomsg-with-message";
inline constexpr std::string_view nomsg_without_chunk = "rpc-nomsg-without-chunk";
inline constexpr std::string_view position_zero_in_msg = "rpc-position-zero-in-msg";
inline constexpr std::string_view position_unaligned = "rpc-position-unaligned";
inline constexpr std::string_view position_beyond_message = "rpc-position-beyond-message";
inline constexpr std::string_view unaligned_message = "rpc-message-unaligned";
inline constexpr std::string_view zero_credits = "rpc-zero-credits";
inline constexpr std::string_view credits_exceeded = "rpc-credits-exceeded";
inline constexpr std::string_view rpc_credit_stall = "rpc-credit-stall";
// Chunks
inline constexpr std::string_view duplicate_handle = "rpc-duplicate-handle";
inline constexpr std::string_view duplicate_address = "rpc-duplicate-address";
inline constexpr std::string_view empty_segment = "rpc-empty-segment";
inline constexpr std::string_view chunk_count = "rpc-reply-chunk-count";
inline constexpr std::string_view segment_count = "rpc-reply-segment-count";
inline constexpr std::string_view segment_differs = "rpc-reply-segment-differs";
inline constexpr std::string_view segment_longer = "rpc-reply-segment-longer";
inline constexpr std::string_view reply_chunk_in_msg = "rpc-reply-chunk-in-msg";
inline constexpr std::string_view unused_chunk_written = "rpc-unused-chunk-written";
inline constexpr std::string_view length_mismatch = "rpc-opaque-length";
// Traffic to and from the memory of chunks
inline constexpr std::string_view outside_segment = "rpc-outside-segment";
inline constexpr std::string_view written_beyond_reply = "rpc-written-beyond-reply";
inline constexpr std::string_view read_discontinuous = "rpc-read-discontinuous";
inline constexpr std::string_view read_length = "rpc-read-length";
inline constexpr std::string_view write_discontinuous = "rpc-write-discontinuous";
inline constexpr std::string_view incomplete = "rpc-incomplete";
// Calls and replies
inline constexpr std::string_view unanswered = "rpc-unanswered";
inline constexpr std::string_view without_call = "rpc-reply-without-call";
inline constexpr std::string_view retransmitted = "rpc-retransmitted";
inline constexpr std::string_view xid_reused = "rpc-xid-reused";
inline constexpr std::string_view rdma_error = "rpc-rdma-error";
inline constexpr std::string_view rejected = "rpc-rejected";
}  // namespace finding

}  // namespace weft::capture
