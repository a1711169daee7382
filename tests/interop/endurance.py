"""What a program must endure for long: connections one after the other, peers that are stopped at
random moments, and forks beside other threads. The descriptors, threads and memory that it has at
the end are those of the start.

Small numbers are tests; `./dev soak` runs large ones (soak.py).
"""

import os
import pathlib
import random
import re
import signal
import socket
import struct
import time

import cases
import crowds
import harness
import hostile
from harness import need

_HOST = "127.0.0.1"
_KB_SLACK = 8 * 1024
_NUMBERS = 20_000  # somewhat more than the numbers of queue pairs, each of which takes memory once
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close(2) sends RST
_RTR = hostile.fpdu(hostile.tagged(1, 0))
_SEND = hostile.fpdu(hostile.untagged(0, 1, 0, b"s" * 8))
_REQUEST = hostile.mpa_request()
_MANNERS = ("orderly", "reset", "reset at once", "half a message", "half a request")


def resident_kb(side):
    pages = int(pathlib.Path(f"/proc/{side.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 1024


def _address(number):
    """Loopback has many, and each has ports of its own: none of them runs out in TIME_WAIT."""
    return f"127.1.{number // 250 % 250 + 1}.{number % 250 + 1}"


def _until_end(peer):
    try:
        while peer.recv(65536):
            pass
    except OSError:
        pass


def _connect_once(port, number, manner):
    """One connection: a handshake, a Send, and an end in the manner."""
    with socket.create_connection((_HOST, port), harness.WAIT_S, (_address(number), 0)) as peer:
        if "reset" in manner or "half" in manner:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if manner == "half a request":
            return peer.sendall(_REQUEST[:18])
        peer.sendall(_REQUEST)
        if manner == "reset at once":
            return None
        need(peer.recv(1000).startswith(b"MPA ID Rep Frame"), "a connection was not accepted")
        peer.sendall(_RTR + (_SEND[:20] if manner == "half a message" else _SEND))
        if manner == "orderly":
            peer.shutdown(socket.SHUT_WR)
            _until_end(peer)
        return None


def churn(stage, count):
    """Connections of every kind of end, one after the other. Returns what the server has at the
    end, for a table."""
    target = hostile.Target(stage)
    warm_up = min(count // 5 + 1, _NUMBERS)
    for number in range(warm_up):
        _connect_once(target.port, number, _MANNERS[number % len(_MANNERS)])
    hostile.serves(target.port)
    target.settle_open()
    before, memory_kb = target.look(), resident_kb(target.side)
    for number in range(count):
        _connect_once(target.port, number, _MANNERS[number % len(_MANNERS)])
        if number % 50_000 == 49_999:
            hostile.serves(target.port)
    hostile.serves(target.port)
    target.settle(before)
    after, grown_kb = target.look(), resident_kb(target.side) - memory_kb
    need(grown_kb <= _KB_SLACK, f"memory grew by {grown_kb} KiB in {count} connections")
    target.finish()
    return (f"descriptors {before[2]} to {after[2]}, threads {before[3]} to {after[3]}, "
            f"memory {memory_kb} KiB {grown_kb:+}")


class _Worker:
    """A client of the survivor that works until it is killed."""

    def __init__(self, stage, name, port, count):
        self.stage, self.name = stage, name
        self.side = stage.start(name, harness.companion("survivor"), "connect", _HOST, say=True)
        self.side.say(f"{port} {count}")
        self.side.expect("^established$")

    def reaches(self, what):
        need(self.side.process.poll() is None, f"{self.name} ended {what}")
        self.side.expect("^reached$")

    def kill(self):
        self.side.signal(signal.SIGKILL)
        self.side.finish(status=None)
        self.stage.forget(self.side)


_REPORT = re.compile(r"^ended .* fds=(\d+) threads=(\d+) rss_kb=(\d+)$")


def _reports(server, count):
    """What the server had after each of the first `count` connections."""
    found, at = [], 0
    while len(found) < count:
        line = server.expect(_REPORT.pattern, start=at)
        at = server.read
        found.append([int(number) for number in line.groups()])
    return found


def stops(stage, rounds, seed, env=None):
    """Clients and their server are stopped at random moments, and continue. A stopped client keeps
    no other from being served, and no connection is lost."""
    choose, port = random.Random(seed), harness.free_port()
    server = stage.start("server", harness.companion("survivor"), "listen", _HOST, port, env=env)
    server.await_listening(port)
    for turn in range(rounds):
        stopped = _Worker(stage, f"stopped {turn}", port, choose.randrange(200, 3000))
        time.sleep(choose.uniform(0, .02))  # the random moment: nothing need have happened
        stopped.side.signal(signal.SIGSTOP)
        other = _Worker(stage, f"other {turn}", port, choose.randrange(1, 300))
        other.reaches("while another client was stopped")
        server.signal(signal.SIGSTOP)
        time.sleep(choose.uniform(0, .02))  # as above
        server.signal(signal.SIGCONT)
        stopped.side.signal(signal.SIGCONT)
        stopped.reaches("after it was stopped")
        stopped.kill()
        other.kill()
    reports = _reports(server, 2 * rounds)
    first, last = reports[min(len(reports) // 4, 40) | 1], reports[-1]
    need(last[0] <= first[0] + harness.DESCRIPTOR_SLACK, f"{first[0]} descriptors, then {last[0]}")
    need(last[1] <= first[1], f"{first[1]} threads, then {last[1]}")
    need(last[2] <= first[2] + _KB_SLACK, f"{first[2]} KiB, then {last[2]}")
    return (f"descriptors {first[0]} to {last[0]}, threads {first[1]} to {last[1]}, "
            f"memory {first[2]} KiB {last[2] - first[2]:+}")


def forks(stage, manner, count):
    """Forks beside threads that create and destroy objects: tests/dropin/forks.cc. Each child comes
    to its end, and the parent has at the end what it had after a quarter of them."""
    program = pathlib.Path(harness.companion("x")).parents[1] / "dropin/dropin_forks"
    side = stage.start("forks", str(program), manner, count)
    side.finish(max(count, harness.WAIT_S))
    return side.expect("^descriptors .*$")[0]


def pairs(stage, count, env=None):
    """Queue pairs that are connected by number, both ends in one process."""
    return crowds.cycles(stage, count, env)


@cases.case("endurance.churn", timeout_s=300)
def churn_case(stage):
    print(churn(stage, 2000))


@cases.case("endurance.stops", timeout_s=300)
def stops_case(stage):
    print(stops(stage, 10, harness.seed()))


@cases.case("endurance.stops_tcp", timeout_s=300)
def stops_of_tcp_case(stage):
    print(stops(stage, 10, harness.seed(), {"WEFT_SAME_HOST": "off"}))
