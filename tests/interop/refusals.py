"""Requests that must be refused: what both sides are told, and what the wire carries."""

import re

import cases
import harness
import tshark
from harness import need

SUCCESS, LOC_LEN_ERR, WR_FLUSH_ERR = 0, 1, 5
REM_INV_REQ_ERR, REM_ACCESS_ERR, RNR_RETRY_EXC_ERR = 9, 10, 13

# Case: what the asking side is told, what the other side's receives end with, and layer, type and
# code of the Terminate (RFC 5040 §4.8, RFC 5041 §7).
EXPECTED = {
    "write_wrong_key": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (1, 1, 0)),
    "write_out_of_bounds": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (1, 1, 1)),
    "write_wraps": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (1, 1, 3)),
    "write_without_right": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (1, 1, 0)),
    "write_foreign_domain": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (1, 1, 2)),
    "read_wrong_key": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (0, 1, 0)),
    "read_out_of_bounds": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (0, 1, 1)),
    "read_without_right": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (0, 1, 2)),
    "read_foreign_domain": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (0, 1, 3)),
    "read_wraps": (REM_ACCESS_ERR, [WR_FLUSH_ERR] * 2, (0, 1, 4)),
    "send_too_long": (REM_INV_REQ_ERR, [LOC_LEN_ERR, WR_FLUSH_ERR], (1, 2, 5)),
    "send_without_receive": (RNR_RETRY_EXC_ERR, [], (1, 2, 2)),
}


def statuses(side):
    return [int(word) for word in re.findall(r"^completion .*status=(\d+)", side.output,
                                             re.MULTILINE)]


def _case(name):
    asked, received, terminate = EXPECTED[name]

    def run(stage):
        harness.installed("tshark")
        port, program = harness.free_port(), harness.companion("refusals")
        path = stage.scratch("capture.pcapng")
        server = stage.start("server", program, "serve", "127.0.0.1", port, name,
                             options=["--capture", path])
        server.await_listening(port)
        client = stage.start("client", program, "ask", "127.0.0.1", port, name)
        client.finish()
        server.finish()
        need(statuses(client)[:1] == [asked],
             f"the client's request ended with {statuses(client)[:1]}, expected {asked}")
        need(statuses(client)[1:] in ([WR_FLUSH_ERR], []),
             f"the request behind it ended with {statuses(client)[1:]}")
        need(statuses(server) == received,
             f"the server's receives ended with {statuses(server)}, expected {received}")
        for side in (client, server):
            need("memory untouched" in side.output, f"{side.name}: memory was changed")
        found = tshark.terminates(path)
        need(found == [terminate], f"Terminate {found}, expected {terminate}")

    return run


for _name in EXPECTED:
    cases.add(f"refusals.{_name}", _case(_name))
