"""One side is killed, a hundred times at random points; the other one must not suffer.

The survivor is told of it within a second: each posted request comes back and a DISCONNECTED event
is there. It keeps no descriptor, thread or memory of a lost connection, and serves the next.
"""

import random
import re
import signal
import time

import cases
import harness
from harness import need

DEATHS = 100
_LIMIT_NS = 1_000_000_000
_HOST = "127.0.0.1"
# The pools of buffers of the device keep up to 2 MiB, and malloc what it has. A leak of the memory
# of a connection would be more.
_RSS_SLACK_KB = 6144
_WARM_UP = 20


class Deaths:
    """Random points to die at, and what the survivor said about each death."""

    def __init__(self, count, limit_ns):
        self._limit_ns = limit_ns
        self._count = count
        self._random = random.Random(harness.seed())
        self.reports = []

    def next_point(self):
        """How many completed requests the victim lives for; None: it dies while it connects."""
        if self._random.random() < 0.1:
            return None
        return int(self._random.expovariate(1 / 300))

    def note(self, survivor, killed_ns, established):
        """Takes the survivor's report on the death and looks at it."""
        start = getattr(survivor, "read", 0)
        while True:
            line = survivor.expect(r"^ended event=(?P<event>\w+) (?P<rest>.*)", 10, start)
            values = dict(re.findall(r"(\w+)=(\d+)", line["rest"]))
            report = {key: int(value) for key, value in values.items()}
            if report["at"] >= killed_ns:  # an earlier one is about a victim that hardly lived
                break
            start = survivor.read
        report["delay_ns"] = max(report["at"], report["flushed_at"]) - killed_ns
        need(report["strange"] == 0, f"a completion with status {report['strange']}: {line[0]}")
        need(report["broken"] <= 1, f"more than one request found the peer gone: {line[0]}")
        if established:
            need(report["delay_ns"] <= self._limit_ns,
                 f"told {report['delay_ns'] / 1e9:.2f} s after the death: {line[0]}")
            need(line["event"] == "RDMA_CM_EVENT_DISCONNECTED", f"another event: {line[0]}")
            need(report["posted"] == report["completed"], f"not all came back: {line[0]}")
            need(report["flushed"] > 0, f"nothing was flushed: {line[0]}")
        self.reports.append(report)

    def need_no_leak(self):
        early, late = self.reports[min(_WARM_UP, len(self.reports) // 4)], self.reports[-1]
        for what, slack in (("fds", harness.DESCRIPTOR_SLACK), ("threads", 0)):
            need(late[what] <= early[what] + slack,
                 f"{what}: {early[what]} at first, {late[what]} at last")
        grown = late["rss_kb"] - early["rss_kb"]
        need(grown <= _RSS_SLACK_KB, f"memory grew by {grown} KiB in {len(self.reports)} deaths")
        slowest = max(report["delay_ns"] for report in self.reports)
        return (f"{len(self.reports)} of {self._count} deaths noted, the slowest after "
                f"{slowest / 1e6:.1f} ms; descriptors {early['fds']} to {late['fds']}, threads "
                f"{early['threads']} to {late['threads']}, memory {early['rss_kb']} KiB {grown:+}")


def _kill(victim):
    killed_ns = time.monotonic_ns()
    victim.signal(signal.SIGKILL)
    victim.finish(10, status=None)
    return killed_ns


def of_the_client(stage, count, env=None, limit_ns=_LIMIT_NS):
    """Returns what the survivor has at the end, for a table."""
    deaths, port = Deaths(count, limit_ns), harness.free_port()
    program = harness.companion("survivor")
    server = stage.start("survivor", program, "listen", _HOST, port, env=env)
    server.await_listening(port)
    for turn in range(count):
        point = deaths.next_point()
        victim = stage.start(f"victim {turn}", program, "connect", _HOST, say=True, env=env)
        victim.say(f"{port} {-1 if point is None else point}")
        victim.expect("^connecting$" if point is None else "^reached$")
        killed_ns = _kill(victim)
        if point is not None:  # else the server may never have heard of it
            deaths.note(server, killed_ns, established=point > 0)
        stage.forget(victim)
    need(server.process.poll() is None, "the survivor ended")
    return deaths.need_no_leak()


def of_the_server(stage, count, env=None, limit_ns=_LIMIT_NS):
    """The same of a client."""
    deaths, program = Deaths(count, limit_ns), harness.companion("survivor")
    client = stage.start("survivor", program, "connect", _HOST, say=True, env=env)
    for turn in range(count):
        point, port = deaths.next_point(), harness.free_port()
        victim = stage.start(f"victim {turn}", program, "listen", _HOST, port,
                             -1 if point is None else point, env=env)
        victim.await_listening(port)
        start = getattr(client, "read", 0)
        client.say(str(port))
        (client if point is None else victim).expect(
            "^connecting$" if point is None else "^reached$", start=0 if point else start)
        deaths.note(client, _kill(victim), established=bool(point))
        stage.forget(victim)
    client.end_input()
    client.finish()
    return deaths.need_no_leak()


for _name, _run in (("of_the_client", of_the_client), ("of_the_server", of_the_server)):
    cases.add(f"death.{_name}", lambda stage, run=_run: print(run(stage, DEATHS)), timeout_s=240)
    for _carrier, _same_host in (("tcp", "off"), ("staged", "staged")):
        cases.add(f"death.{_name}_{_carrier}",
                  lambda stage, run=_run, env={"WEFT_SAME_HOST": _same_host}:
                  print(run(stage, DEATHS // 2, env)), timeout_s=240)
