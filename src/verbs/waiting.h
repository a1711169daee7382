// Waiting for descriptors, and names of codes.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "weft/deadline.hpp"

namespace weft::verbs::detail {

void set_nonblocking(int fd);

// Waits until `fd` is readable; false if the deadline has passed first. The caller has checked
// before, so a passed deadline returns at once. Continues after signals; throws Error if poll(2)
// fails.
[[nodiscard]] bool await_readable(int fd, const Deadline& deadline);

[[nodiscard]] std::string_view event_name(ibv_event_type type);
[[nodiscard]] std::string_view status_name(ibv_wc_status status);
[[nodiscard]] std::string_view state_name(ibv_qp_state state);
// "192.0.2.1:7174", "[::1]:7174"; empty for other families.
[[nodiscard]] std::string address_text(const sockaddr_storage& address);

}  // namespace weft::verbs::detail
