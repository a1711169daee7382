"""Programs that transfer the bytes of their TCP connections by interfaces that call neither read(2)
nor recv(2) nor the like, under `weft run --sockets`."""

import cases
import harness
from sockets import prints_the_same


def _bypasses(interface):
    def case(stage):
        return prints_the_same(stage, harness.companion("socket_bypasses"), interface)
    return case


for _interface in ("syscall", "inline", "liburing"):
    cases.add(f"sockets.io_uring_by_{_interface}", _bypasses(_interface))
cases.add("sockets.posix_aio", _bypasses("aio"))
cases.add("sockets.kernel_aio", _bypasses("kernel-aio"))
