// Waiting on descriptors, and words for codes.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "weft/deadline.hpp"

namespace weft::verbs::detail {

void set_nonblocking(int fd);

// For who has just looked: false where the deadline came first. Goes on after signals; throws Error
// where poll(2) fails.
[[nodiscard]] bool await_readable(int fd, const Deadline& deadline);

[[nodiscard]] std::string_view event_name(ibv_event_type type);
[[nodiscard]] std::string_view status_name(ibv_wc_status status);
[[nodiscard]] std::string_view state_name(ibv_qp_state state);
// "192.0.2.1:7174", "[::1]:7174"; empty for no address.
[[nodiscard]] std::string address_text(const sockaddr_storage& address);

}  // namespace weft::verbs::detail
