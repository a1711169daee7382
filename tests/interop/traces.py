"""`weft run --trace FILE` of unmodified programs: each work request once, in the right order."""

import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import cases
import counted
import harness
import perftest
import pingpong
import rdmacm_utils
from harness import need

_TRACK = re.compile(r"queue pair 0x[0-9a-f]{6} (send|receive)\Z")
_CARRIERS = {"tcp": "off", "same_host": "auto"}


def read(path):
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    need(trace["otherData"]["dropped"] == 0, "events were dropped")
    return trace


class Request:
    """The events of one work request."""

    def __init__(self, identity):
        self.identity = identity
        self.times = {}
        self.track = self.status = self.operation = None

    def add(self, event):
        outer = _TRACK.match(event["name"])
        if event["ph"] == "n":
            step = event["name"]
        elif event["ph"] == "b":
            step = "post" if outer else "begin"
        else:
            step = "poll" if outer else "completion"
        need(step not in self.times, f"{self.identity}: two times {step}")
        self.times[step] = event["ts"]
        if step == "post":
            self.track, self.operation = outer[1], event["args"]["operation"]
        elif step == "completion":
            self.status = event["args"]["status"]

    def check(self):
        need("post" in self.times, f"{self.identity}: was not posted: {self.times}")
        order = [self.times[step] for step in ("post", "begin", "wire", "completion", "poll")
                 if step in self.times]
        need(order == sorted(order), f"{self.identity}: in a wrong order: {self.times}")
        if self.track == "send" and self.status == "SUCCESS":
            need("wire" in self.times, f"{self.identity}: did not leave: {self.times}")


def requests(trace):
    found = {}
    for event in trace["traceEvents"]:
        if event.get("cat") == "request":
            identity = (event["pid"], event["id2"]["local"])
            found.setdefault(identity, Request(identity)).add(event)
    for each in found.values():
        each.check()
    return list(found.values())


def need_all(trace, stats):
    """As many requests as the device has counted, of which all that completed were traced."""
    found = requests(trace)
    by_track = collections.Counter(each.track for each in found)
    posted = {"send": sum(counted.total(stats, kind)[0]
                          for kind in ("sends", "writes", "reads", "atomics", "local")),
              "receive": counted.total(stats, "receives")[0]}
    for track, count in posted.items():
        need(by_track[track] == count, f"{by_track[track]} of {count} in {track}")
    polled = sum(each["polled"] for each in stats["completion_queues"])
    shown = sum("poll" in each.times for each in found)
    need(shown >= polled, f"{shown} polled in the trace, {polled} counted")
    names = [event for event in trace["traceEvents"] if event["name"] == "process_name"]
    need(len(names) == 1, "the process has no name")
    threads = {event["tid"] for event in trace["traceEvents"] if "tid" in event}
    named = {event["tid"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    need(threads == named, f"threads without a name: {threads - named}")
    return found


def flows(trace, phase):
    """Arrows that begin (s) or end (f), by their number."""
    found = {}
    for event in trace["traceEvents"]:
        if event.get("cat") == "flow" and event["ph"] == phase:
            need(event["id"] not in found, f"two arrows with one number: {event}")
            found[event["id"]] = event
    return found


def need_arrows(one, other):
    """Each message of this side is placed at the other one, after it was posted."""
    begun, placed = flows(one, "s"), flows(other, "f")
    missing = set(begun) ^ set(placed)
    need(not missing, f"{len(missing)} of {len(begun)} arrows have one end only")
    for number, event in begun.items():
        end = placed[number]
        need(event["ts"] <= end["ts"] and event["name"] == end["name"], f"{event} to {end}")


def calls(trace):
    """Calls of the program that have ended, by name; each lies within its own thread."""
    open_calls, ended = collections.defaultdict(list), collections.Counter()
    for event in trace["traceEvents"]:
        if event.get("cat") != "call":
            continue
        if event["ph"] == "B":
            open_calls[event["tid"]].append(event["name"])
        else:
            need(open_calls[event["tid"]].pop() == event["name"], f"crossed calls: {event}")
            ended[event["name"]] += 1
    return ended


def need_joined(paths, joined, mode):
    """`weft trace` keeps all events, and marks where requests were placed."""
    page = joined + ".html"
    done = subprocess.run([harness.weft(), "trace", *paths, "-o", joined, "--html", page],
                          text=True, check=False, stderr=subprocess.PIPE)
    need(done.returncode == 0, f"weft trace: {done.stderr}")
    with open(joined, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    marks = [event for event in events if event["name"] == "placed"]
    need(len(events) == sum(len(read(path)["traceEvents"]) for path in paths) + len(marks),
         "events were lost")
    need(len(marks) == sum(len(flows(read(path), "s")) for path in paths), "not all were placed")
    found = requests({"traceEvents": events})
    for each in found:
        placed = each.times.get("placed")
        need(placed is None or placed >= each.times["post"], f"placed early: {each.times}")
        # Over TCP a completion means that the message is placed.
        early = mode == "off" and placed and each.times.get("completion", placed) < placed
        need(not early, f"placed late: {each.times}")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    need("http" not in text and text.endswith("</html>\n"), "the page is not whole")
    need(text.count("<script") == 2, "the page loads something")


def _traced(stage, mode, name):
    """Options for both sides, and a function that checks what they have written."""
    sides = [(stage.scratch(f"{name}-{side}.json"), stage.scratch(f"{name}-{side}.stats"))
             for side in ("server", "client")]
    options = [["--same-host", mode, "--trace", trace, "--stats", stats] for trace, stats in sides]

    def check():
        server, client = (read(trace) for trace, _ in sides)
        joined = stage.scratch(f"{name}-joined.json")
        need_joined([trace for trace, _ in sides], joined, mode)
        # On the same host, Reads and Writes need nothing of the peer.
        need(flows(client, "s") or mode == "auto", "no arrows")
        need_arrows(client, server)
        need_arrows(server, client)
        return [need_all(read(trace), counted.read(stats)) for trace, stats in sides]

    return options, check


def _perftest_case(program, mode, *arguments):
    def run(stage):
        options, check = _traced(stage, mode, program)
        perftest.perftest(stage, program, "127.0.0.1", *arguments, sizes=[4096], iterations=100,
                          weft_options=options)
        for found in check():
            need(found, "no requests")

    return run


def _rping_case(mode):
    def run(stage):
        options, check = _traced(stage, mode, "rping")
        rdmacm_utils.rping(stage, "127.0.0.1", count=20, weft_options=options)
        for found in check():
            kinds = {each.operation.split()[0] for each in found}
            need(kinds >= {"RECEIVE", "SEND"}, f"only {kinds}")
        seen = calls(read(options[1][3]))
        need(seen.keys() >= {"rdma_resolve_addr", "rdma_resolve_route", "rdma_connect",
                             "rdma_get_cm_event", "rdma_disconnect", "ibv_get_cq_event"},
             f"only {seen}")

    return run


for _name, _mode in _CARRIERS.items():
    cases.add(f"traces.ib_send_lat.{_name}", _perftest_case("ib_send_lat", _mode))
    cases.add(f"traces.ib_write_bw.{_name}", _perftest_case("ib_write_bw", _mode))
    cases.add(f"traces.ib_read_bw.{_name}", _perftest_case("ib_read_bw", _mode))
    cases.add(f"traces.rping.{_name}", _rping_case(_mode))


@cases.case("traces.ibv_ud_pingpong")
def datagrams(stage):
    trace, stats = stage.scratch("client.json"), stage.scratch("client.stats")
    pingpong.pingpong(stage, program="ibv_ud_pingpong", count=100,
                      options=("--trace", trace, "--stats", stats))
    need_all(read(trace), counted.read(stats))


@cases.case("traces.ibv_srq_pingpong")
def shared_queue(stage):
    trace = stage.scratch("client.json")
    pingpong.pingpong(stage, program="ibv_srq_pingpong", count=100, options=("--trace", trace))
    requests(read(trace))


def _spans(trace, category, name):
    """How many spans of this name have begun and ended."""
    phases = collections.Counter(event["ph"] for event in trace["traceEvents"]
                                 if event.get("cat") == category and event["name"] == name)
    need(phases["b"] == phases["e"], f"{name}: {phases}")
    return phases["b"]


@cases.case("traces.waits")
def waits(stage):
    """A rule of faults makes messages wait for a receive: both are in the trace."""
    path = stage.scratch("client.json")
    pingpong.pingpong(stage, count=100, options=(
        "--trace", path, "--fault", "RNR:5ms at arrival nth=20 times=1"))
    trace = read(path)
    need(_spans(trace, "wait", "no receive is posted") == 1, "no wait for a receive")
    marks = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "fault"]
    need(len(marks) == 1 and "RNR" in marks[0], f"marks: {marks}")


@cases.case("traces.waits_on_the_same_host")
def waits_on_the_same_host(stage):
    """A receiver that is stopped: the sender waits, until it goes on."""
    path = stage.scratch("client.json")
    port = harness.free_port()
    both = ["-F", "-p", port, "-s", 1 << 20, "-D", 600]
    server = stage.start("server", "ib_send_bw", *both)
    server.await_listening(port)
    client = stage.start("client", "ib_send_bw", *both, "127.0.0.1",
                         options=["--trace", path, "--same-host", "require"])

    def await_event(pattern):
        end = time.monotonic() + harness.WAIT_S
        while True:
            if os.path.exists(path):
                with open(path, "rb") as file:
                    if re.search(pattern, file.read()):
                        return
            need(time.monotonic() < end, f"the trace never has {pattern}")
            time.sleep(0.02)

    causes = rb'"name":"(the peer has no receive|no room in the peer\'s inbox)"'
    await_event(rb'"status":"SUCCESS"')
    server.signal(signal.SIGSTOP)
    await_event(rb'"ph":"b","cat":"wait",' + causes)
    server.signal(signal.SIGCONT)
    await_event(rb'"ph":"e","cat":"wait",' + causes)
    stage.forget(server)
    client.finish(status=None)  # it fails, and completes its trace
    requests(read(path))


@cases.case("traces.second_process")
def second_process(stage):
    """Two processes at the same time have files of their own."""
    path = stage.scratch("both.json")
    options = ("--trace", path)
    perftest.perftest(stage, "ib_send_bw", "127.0.0.1", sizes=[4096], iterations=10,
                      weft_options=(options, options))
    others = [name for name in os.listdir(os.path.dirname(path)) if name.startswith("both.json.")]
    need(len(others) == 1, f"files: {others}")
    pids = {read(each)["otherData"]["pid"]
            for each in (path, os.path.join(os.path.dirname(path), others[0]))}
    need(len(pids) == 2, f"processes: {pids}")


@cases.case("traces.unwritable")
def unwritable(stage):
    """A file that cannot be written is an error that names it."""
    side = stage.start("device", "ibv_devinfo", options=["--trace", "/dev/full"])
    side.finish(status=None)
    need("WEFT_TRACE=/dev/full: cannot be written" in side.output, side.output)


@cases.case("traces.fifo")
def fifo(stage):
    """A FIFO would wait for a reader; the error comes at once."""
    path = stage.scratch("trace")
    os.mkfifo(path)
    side = stage.start("device", "ibv_devinfo", options=["--trace", path])
    side.finish(status=None)
    need(f"WEFT_TRACE={path}: cannot be written" in side.output, side.output)


@cases.case("traces.name_of_the_program")
def name_of_the_program(stage):
    """The kernel cuts the name of a program after 15 bytes, here inside a character."""
    path, program = stage.scratch("device.json"), stage.scratch("ä" * 9)
    shutil.copy(harness.installed("ibv_devinfo"), program)
    stage.start("device", program, options=["--trace", path]).finish()
    need(read(path)["otherData"]["program"] == "ä" * 7 + "?", "another name")


_CALLS = r"""
import ctypes, os, resource, signal, sys
verbs, rdma = (ctypes.CDLL(name) for name in ("libibverbs.so.1", "librdmacm.so.1"))
verbs.ibv_get_device_list.restype = verbs.ibv_open_device.restype = ctypes.c_void_p
rdma.rdma_create_event_channel.restype = ctypes.c_void_p
def start():
    devices = verbs.ibv_get_device_list(None)
    first = ctypes.cast(devices, ctypes.POINTER(ctypes.c_void_p))[0]
    if not verbs.ibv_open_device(ctypes.c_void_p(first)):
        sys.exit("no device")
    return ctypes.c_void_p(rdma.rdma_create_event_channel())
def call(events):
    made = ctypes.c_void_p()
    if rdma.rdma_create_id(events, ctypes.byref(made), None, 0x106) or rdma.rdma_destroy_id(made):
        sys.exit("no identifier")
call(start())
"""


@cases.case("traces.fork")
def fork(stage):
    """The events of a child are those of its own thread."""
    path, script = stage.scratch("trace.json"), stage.scratch("forks.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(_CALLS + "child = os.fork()\n"
                   "if child: os.waitpid(child, 0)\n"
                   "else: call(start())\n"
                   "print('child', child)\n")
    side = stage.start("python", sys.executable, "-u", script, options=["--trace", path])
    child = int(side.expect(r"child ([1-9]\d*)")[1])
    side.finish()
    trace = read(f"{path}.{child}")
    need(trace["otherData"]["pid"] == child, str(trace["otherData"]))
    need(calls(trace)["rdma_create_id"] == 1, "the child has no events")
    threads = {event["tid"] for event in trace["traceEvents"] if event.get("cat") == "call"}
    need(threads == {child}, f"events of {threads} in process {child}")


@cases.case("traces.full")
def full(stage):
    """A trace that could not grow is not tried again for each event, and stays complete."""
    path, script = stage.scratch("trace.json"), stage.scratch("calls.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(_CALLS + "events = start()\n"
                   "limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
                   "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
                   "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))\n"
                   "for _ in range(5000): call(events)\n"
                   "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))\n"
                   "for _ in range(5000): call(events)\n")
    stage.start("python", sys.executable, "-u", script, options=["--trace", path]).finish()
    need(os.path.getsize(path) <= 1 << 20, f"{os.path.getsize(path)} bytes")
    with open(path, encoding="utf-8") as file:
        need(json.load(file)["otherData"]["dropped"] > 20_000, "too few were dropped")


@cases.case("traces.cut")
def cut(stage):
    """A file that another program cuts while it is written ends the trace, and not the program."""
    path = stage.scratch("server.json")
    port = harness.free_port()
    server = stage.start("server", "ib_write_bw", "-F", "-R", "-n", 100, "-p", port,
                         options=["--trace", path])
    server.await_listening(port)
    os.truncate(path, 0)
    client = stage.start("client", "ib_write_bw", "-F", "-R", "-n", 100, "-p", port, "127.0.0.1")
    client.finish()
    server.finish()


@cases.case("traces.killed")
def killed(stage):
    """The file is complete although nothing runs at the end of the program."""
    path = stage.scratch("server.json")
    port = harness.free_port()
    server = stage.start("server", "ib_write_bw", "-F", "-R", "-p", port, options=["--trace", path])
    server.await_listening(port)
    os.kill(server.pid, signal.SIGKILL)
    server.finish(status=-signal.SIGKILL)
    need(read(path)["traceEvents"], "no events")
