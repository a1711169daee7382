"""A host that vanishes in the middle of a transfer: its link is down, and nothing is answered. The
program must see the status of hardware, about as soon as there.
"""

import pathlib
import time

import cases
import harness
from harness import need
from veth import VethPair

_ACK_UNIT_S = 4.096e-6  # of an adapter's timeout, which is a power of two of them
_RETRIES = 7  # retry_cnt of perftest
_FLOOR_S = 2.0  # the device does not give a peer up earlier: docs/security.md
_BUSY_S = 10.0  # that a busy machine may add
_UNDER_WAY_BYTES = 10 << 20
_RETRY_EXCEEDED = 12  # IBV_WC_RETRY_EXC_ERR


def _patience_s(exponent):
    """The time of the first attempt and of each retry, and at least the floor."""
    return max((_RETRIES + 1) * _ACK_UNIT_S * 2 ** exponent, _FLOOR_S)


def _await_traffic(side):
    """Until the network of the side has sent some of the transfer."""
    end = time.monotonic() + harness.WAIT_S
    while _sent_bytes(side) < _UNDER_WAY_BYTES:
        need(side.process.poll() is None, f"{side.name} ended before its transfer")
        need(time.monotonic() < end, "there was no transfer")
        time.sleep(0.01)


def _sent_bytes(side):
    """The ninth number of an interface in /proc/net/dev."""
    lines = pathlib.Path(f"/proc/{side.pid}/net/dev").read_text().splitlines()
    return sum(int(line.partition(":")[2].split()[8]) for line in lines if "veth:" in line)


def _vanishing_case(exponent):
    def run(stage):
        with VethPair() as link:
            try:
                _vanish(stage, link, exponent)
            finally:
                for side in stage.sides:  # the sides go before their network does
                    side.signal(9)

    return run


def _vanish(stage, link, exponent):
    port = harness.free_port()
    both = ["-p", port, "-u", exponent, "-D", 300, "-s", 65536]
    server = stage.start("server", "ib_write_bw", *both, place=link.places[0])
    server.await_listening(port)
    client = stage.start("client", "ib_write_bw", *both, link.places[0].ipv4,
                         place=link.places[1])
    _await_traffic(client)
    begin = time.monotonic()
    link.take_down(0)
    patience_s = _patience_s(exponent)
    client.expect(rf"status {_RETRY_EXCEEDED}\b", 2 * patience_s + _BUSY_S)
    took_s = time.monotonic() - begin
    # The last answer may have come somewhat earlier than the link went down.
    need(took_s > patience_s / 2, f"the peer was given up after {took_s:.1f} s")
    print(f"given up after {took_s:.2f} s; the rule asks for {patience_s:.2f} s at least")


# With the first, which is perftest's own, the device's floor counts.
for _exponent in (14, 18):
    cases.add(f"ib_write_bw.vanished_host_{_exponent}", _vanishing_case(_exponent))
