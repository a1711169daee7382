"""Many: queue pairs one after the other, and processes at the same time."""

import re
import resource

import cases
import harness
from harness import Skip, need

_PROCESSES = 205  # beside them, one client after the other
_RSS_SLACK_KB = 8 * 1024


def cycles(stage, count, env=None):
    """What a process has must not grow with the queue pairs that it once had. Returns its last
    line."""
    side = stage.start("cycles", harness.companion("cycles"), count, env=env)
    side.finish(600 + count // 10)
    found = re.search(r"^cycles=(\d+) fds=(-?\d+) threads=(-?\d+) grown_kb=(-?\d+)$", side.output,
                      re.MULTILINE)
    need(found, "the program did not say what it has grown by")
    done, descriptors, threads, grown_kb = map(int, found.groups())
    need(done == count, f"{done} cycles instead of {count}")
    need(descriptors <= harness.DESCRIPTOR_SLACK,
         f"{descriptors} descriptors more than at the start")
    need(threads <= 0, f"{threads} threads more than at the start")
    need(grown_kb <= _RSS_SLACK_KB, f"memory grew by {grown_kb} KiB")
    return found[0]


cases.add("cycles.one_thousand", lambda stage: print(cycles(stage, 1000)))
cases.add("cycles.ten_thousand", lambda stage: print(cycles(stage, 10000)), timeout_s=600,
          long=True)


@cases.case("ibv_rc_pingpong.two_hundred_processes", timeout_s=300, long=True)
def two_hundred_processes(stage):
    """All hold a slot at once, and each is found by the number of its queue pair."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4 * _PROCESSES:
        raise Skip(f"the limit of descriptors is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * _PROCESSES), hard))
    servers = []
    for number in range(_PROCESSES):
        port = harness.free_port()
        server = stage.start(f"server {number}", "ibv_rc_pingpong", "-g", 0, "-p", port, "-n", 10)
        servers.append((server, port))
    for server, port in servers:
        server.await_listening(port, 120)
    for number, (server, port) in enumerate(servers):
        client = stage.start(f"client {number}", "ibv_rc_pingpong", "-g", 0, "-p", port, "-n", 10,
                             "127.0.0.1")
        client.finish()
        server.finish()
        stage.forget(client)
