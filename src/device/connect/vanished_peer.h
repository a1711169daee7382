// Detects that the host at the other end of a TCP connection does not answer any more.
#pragma once

#include <cstdint>

namespace weft::device {

// True if the peer's host has acknowledged nothing for `timeout_ns` although TCP has asked it again
// and again, with data or with probes of a closed window. Requests wait since `waited_ns`; silence
// before that does not count. A process that is stopped is not silent: its host still answers. For
// this reason TCP_USER_TIMEOUT (tcp(7)) does not serve: it also ends connections to a peer that
// answers and keeps its window closed.
[[nodiscard]] bool peer_is_silent(int fd, std::uint64_t timeout_ns, std::uint64_t waited_ns);

// Starts or ends keepalive probes, which TCP sends while none of its data is outstanding. The
// connection fails with ETIMEDOUT within about twice the timeout if none of them is answered.
void keep_alive(int fd, bool on, std::uint64_t timeout_ns);

// Keepalive probes for a connection on which nothing may be said for hours: the first one after a
// minute of silence, and the end, with ETIMEDOUT, after six without an answer, 10 s apart.
void keep_alive_while_idle(int fd);

}  // namespace weft::device
