"""Servers that are killed by SIGTERM at random moments, under a seed that is printed.

Both sides must end, and neither by a fault of memory. Some clients wait for ever on any device,
because nothing of theirs is under way when the server dies: the next message, or a byte in memory,
never comes. Those get SIGTERM as well.
"""

import random
import re
import signal
import time

import cases
import harness
from harness import need

_HOST = "127.0.0.1"
_ROUNDS = 3  # of each program: a few dozen in all
_LONG_ROUNDS = 32  # of each: 512 in all
_LATEST_S = 1.2  # most programs are in the middle of their transfers by then
_LATER_S = 3  # ib_write_bw connects about a second after its start
_LEFT_ALONE_S = 3  # clients that may wait for ever
_FAULTS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
# What perftest, the pingpongs and rping print once both sides are connected.
_CONNECTED = re.compile(r"remote address|ping data")
_CORRUPTION = re.compile(r"double free|corrupted|stack smashing|terminate called|munmap_chunk|"
                         r"invalid pointer|invalid next size|assert(ion)?\b.*fail", re.IGNORECASE)


# After this, perftest passes an id that it never made to rdma_resolve_addr(3).
_PERFTEST_GOES_ON = "Failed to connect RDMA CM events."


def need_no_crash(side, moment):
    """`side` has ended, and neither by a fault of memory nor with words about one. `moment`: when
    its server was killed."""
    code = side.process.returncode
    number = -code if code < 0 else code - 128
    own = number == signal.SIGSEGV and _PERFTEST_GOES_ON in side.output
    need(own or number not in _FAULTS,
         f"{side.name}, server killed {moment}: ended with {harness.ending(code)}")
    found = _CORRUPTION.search(side.output)
    need(not found, f"{side.name}, server killed {moment}: {found and found[0]}")


def _end_client(client, notices):
    """Returns true if it had to be killed."""
    end = time.monotonic() + (harness.WAIT_S if notices else _LEFT_ALONE_S)
    while client.process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    killed = client.process.poll() is None
    need(not (killed and notices), f"{client.name} does not end")
    if killed:
        client.signal(signal.SIGTERM)
    client.finish(status=None)
    return killed


def _round(stage, number, choose, program, server_arguments, client_arguments, notices):
    port = harness.free_port()
    filled = [[port if word == "PORT" else word for word in words]
              for words in (server_arguments, client_arguments)]
    # Some die before any client is there.
    latest_s = _LATER_S if program == "ib_write_bw" else _LATEST_S
    delay_s = None if choose.random() < 0.15 else choose.uniform(0, latest_s)
    moment = "first" if delay_s is None else f"after {delay_s:.3f} s"
    server = stage.start(f"server {number}", program, *filled[0])
    server.await_listening(port)
    if delay_s is None:
        server.signal(signal.SIGTERM)
        server.finish(status=None)
    client = stage.start(f"client {number}", program, *filled[1])
    if delay_s is not None:
        time.sleep(delay_s)  # the random moment; nothing is expected to have happened
        server.signal(signal.SIGTERM)
        server.finish(status=None)
    killed = _end_client(client, notices)
    for side in (server, client):
        need_no_crash(side, moment)
        stage.forget(side)
    return killed, bool(_CONNECTED.search(client.output))


def _case(program, server, client, notices):
    def run(stage):
        choose = random.Random(harness.seed())
        rounds = [_round(stage, number, choose, program, server, client, notices)
                  for number in range(_LONG_ROUNDS if harness.is_long() else _ROUNDS)]
        killed, connected = (sum(values) for values in zip(*rounds))
        print(f"{len(rounds)} servers killed, {connected} with a client that was connected; "
              f"{killed} clients would have waited for ever")
    return run


def add(program, name, *arguments, client=(_HOST,), server=(), notices=True):
    """`notices`: the client has work under way all the time, or an event to wait for."""
    cases.add(f"{program}.{name}", _case(program, [*arguments, *server], [*arguments, *client],
                                         notices),
              timeout_s=900)


_MANY = 5_000_000  # iterations: more than the server lives for
add("rping", "killed_server", "-a", _HOST, "-p", "PORT", "-v", server=("-s",), client=("-c",))
for _program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
    add(_program, "killed_server", "-F", "-p", "PORT", "-n", _MANY)
    add(_program, "killed_server_of_rdma_cm", "-F", "-R", "-p", "PORT", "-n", _MANY)
add("ib_read_lat", "killed_server", "-F", "-p", "PORT", "-n", _MANY)
add("ib_atomic_bw", "killed_server", "-F", "-p", "PORT", "-n", _MANY)
for _program in ("ib_send_lat", "ib_write_lat"):
    add(_program, "killed_server", "-F", "-p", "PORT", "-n", _MANY, notices=False)
for _kind in ("rc", "uc", "ud", "srq"):
    add(f"ibv_{_kind}_pingpong", "killed_server", "-g", 0, "-p", "PORT", "-n", _MANY, notices=False)
add("qperf", "killed_server", "-lp", "PORT", client=(_HOST, "-cm", 1, "-t", 60, "rc_rdma_write_bw"))
