"""What the device writes with `weft run --capture FILE`, read by tshark."""

import os

import cases
import harness
import perftest
import rdmacm_utils
import tshark
from harness import need


def check(stage, which, converse):
    """Captures one end of a conversation; `converse` runs it with options for both ends."""
    harness.installed("tshark")
    path = stage.scratch("capture.pcapng")
    options = ([], [])
    options[which].extend(["--capture", path])
    converse(options)
    counts = tshark.check(path)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return counts


def _rping(which, address):
    def run(stage):
        harness.need_address(address)
        counts = check(stage, which, lambda options: rdmacm_utils.rping(
            stage, address, count=50, weft_options=options))
        # Each ping: the client announces its buffers twice and is answered twice; the server reads
        # one of them and writes the other.
        need(counts["Send"] >= 4 * 50, f"{counts['Send']} Sends for 50 pings")
        need(counts["Read Request"] >= 50, f"{counts['Read Request']} Read Requests for 50 pings")
        need(counts["Write"] >= 50, f"{counts['Write']} Writes for 50 pings")
        # The client may leave with the last Send, before it has answered the read that asks whether
        # that Send was placed.
        unanswered = counts["Read Request"] - counts["Read Response"]
        need(unanswered in (0, 1),
             f"{counts['Read Request']} reads, {counts['Read Response']} answers")
        need(counts["Terminate"] == 0, "a Terminate")

    return run


cases.add("capture.rping_client_ipv4", _rping(1, "127.0.0.1"))
cases.add("capture.rping_server_ipv6", _rping(0, "::1"))


def _write_bw(which):
    def run(stage):
        counts = check(stage, which, lambda options: perftest.perftest(
            stage, "ib_write_bw", "127.0.0.1", sizes=[65536], iterations=200,
            weft_options=options))
        need(counts["Write"] >= 200, f"{counts['Write']} FPDUs of Writes for 200 writes")
        need(counts["Terminate"] == 0, "a Terminate")

    return run


cases.add("capture.ib_write_bw_client", _write_bw(1))
cases.add("capture.ib_write_bw_server", _write_bw(0))


@cases.case("capture.ib_read_bw_client")
def read_bw(stage):
    counts = check(stage, 1, lambda options: perftest.perftest(
        stage, "ib_read_bw", "127.0.0.1", sizes=[65536], iterations=100, weft_options=options))
    need(counts["Read Request"] >= 100, f"{counts['Read Request']} Read Requests for 100 reads")


def _stream(variant):
    """examples/greeting, a stream of bytes in 13 and 13 back, and what its messages are made of."""
    def run(stage):
        harness.installed("tshark")
        program = os.path.join(os.path.dirname(harness.weft()), "../examples/greeting")
        path = stage.scratch("capture.pcapng")
        server = stage.plain("server", program, "serve", "127.0.0.1", *variant,
                             env={"WEFT_CAPTURE": path})
        port = server.expect(r"port (\d+)").group(1)
        client = stage.plain("client", program, "ask", "127.0.0.1", port, *variant)
        client.expect("^hello stream!$")
        for side in (client, server):
            side.finish()
        counts = tshark.check(path)
        print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
        # The greeting, its return, the end of the server's, and the client's if it still goes out.
        used, unused = ("Send", "Immediate Data") if variant else ("Immediate Data", "Send")
        need(counts[used] in (3, 4), f"{counts[used]} of {used} for 3 messages or 4")
        need(counts[unused] == 0, f"{counts[unused]} of {unused}")
        need(counts["Write"] >= 2, f"{counts['Write']} Writes for 2 greetings")
        need(counts["Terminate"] == 0, "a Terminate")

    return run


cases.add("capture.stream_immediate", _stream([]))
cases.add("capture.stream_write_and_send", _stream(["plain"]))
