"""What `weft run --stats FILE` says of unmodified programs: against the program, its peer and a
capture of the same run."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import cases
import harness
import hostile
import hostile_pairs
import perftest
import prometheus
from harness import need

_WRITES = 200
_BYTES = 65536


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def total(stats, kind):
    """Over all queue pairs: operations, bytes."""
    return tuple(sum(each[kind][what] for each in stats["queue_pairs"])
                 for what in ("operations", "bytes"))


def captured_writes(path):
    """Count and bytes of the writes that `weft dissect` finds; empty ones begin connections."""
    done = subprocess.run([harness.weft(), "dissect", "--operations", "--json", path], text=True,
                          check=False, stdout=subprocess.PIPE)
    # 1: there are findings. A capture may end before the peer has closed, too.
    need(done.returncode in (0, 1), f"weft dissect ended with status {done.returncode}")
    lines = done.stdout.splitlines()
    sizes = [line["bytes"] for line in map(json.loads, lines)
             if line["type"] == "operation" and line["kind"].lower() == "write" and line["bytes"]]
    return len(sizes), sum(sizes)


@cases.case("stats.ib_write_bw")
def write_bw(stage):
    server, client = stage.scratch("server.json"), stage.scratch("client.json")
    capture = stage.scratch("capture.pcapng")
    perftest.perftest(stage, "ib_write_bw", "127.0.0.1", sizes=[_BYTES], iterations=_WRITES,
                      weft_options=(["--stats", server],
                                    ["--stats", client, "--capture", capture]))
    asking, asked = read(client), read(server)
    need(asking["occasion"] == asked["occasion"] == "exit", "not written at the exit")
    operations, size = total(asking, "writes")
    need(operations >= _WRITES and size == operations * _BYTES,
         f"{operations} writes of {size} bytes for {_WRITES} of {_BYTES}")
    need(total(asked, "peer_writes") == (operations, size),
         f"the client wrote {operations}, {size}; the server saw {total(asked, 'peer_writes')}")
    regions = [sum(each["peer_writes"][what] for each in asked["memory_regions"])
               for what in ("operations", "bytes")]
    need(regions == [operations, size], f"its regions: {regions}")
    writes = captured_writes(capture)
    need(writes == (operations, size), f"the capture has {writes}")
    polled = sum(each["polled"] for each in asking["completion_queues"])
    completed = sum(sum(each["send_completions"].values()) +
                    sum(each["receive_completions"].values()) for each in asking["queue_pairs"])
    need(completed > 0 and polled <= completed, f"{polled} polled of {completed}")


@cases.case("stats.prometheus")
def as_prometheus(stage):
    """The same counters as text for Prometheus, on both carriers."""
    for mode in ("off", "auto"):
        server, client = stage.scratch(f"{mode}.prom"), stage.scratch(f"{mode}.json")
        rule = "ENOMEM at post-send nth=1000000"
        options = ["--same-host", mode]
        perftest.perftest(stage, "ib_write_bw", "127.0.0.1", sizes=[_BYTES], iterations=_WRITES,
                          weft_options=(options + ["--stats", server, "--fault", rule],
                                        options + ["--stats", client]))
        with open(server, encoding="utf-8") as file:
            text = prometheus.Metrics(file.read())
        operations, size = total(read(client), "writes")
        need(operations >= _WRITES, f"{operations} writes")
        counted = (text.total("weft_queue_pair_operations_total", operation="peer_write"),
                   text.total("weft_queue_pair_bytes_total", operation="peer_write"))
        need(counted == (operations, size), f"{counted}, the client wrote {operations}, {size}")
        carriers = {labels["carrier"] for labels, _ in text.samples["weft_queue_pair_info"]}
        need({"off": "tcp", "auto": "same-host"}[mode] in carriers, f"carriers: {carriers}")
        need(text.total("weft_completion_queue_polled_total") >= 0, "no completion queues")
        rules = {labels["text"] for labels, _ in text.samples["weft_faults_total"]}
        need(rules == {rule}, f"the rules are {rules}")


@cases.case("stats.signal")
def on_signal(stage):
    """SIGUSR2 asks a program that runs for what it has counted so far; it goes on."""
    path = stage.scratch("server.json")
    port = harness.free_port()
    server = stage.start("server", "ib_write_bw", "-F", "-R", "-p", port, options=["--stats", path])
    server.await_listening(port)
    os.kill(server.pid, signal.SIGUSR2)
    end = time.monotonic() + harness.WAIT_S
    while not os.path.getsize(path):
        need(time.monotonic() < end, "nothing was written")
        need(server.process.poll() is None, "the signal ended the program")
        time.sleep(0.01)
    need(server.process.poll() is None, "the signal ended the program")


def _slot_port(group):
    """The port at which a process of this group is found by number."""
    inodes = set()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == group:
                inodes.update(os.readlink(fd)[8:-1] for fd in (folder / "fd").iterdir())
        except OSError:
            continue
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        port = int(words[1].rpartition(":")[2], 16)
        if words[9] in inodes and words[3] == "0A" and 28672 <= port < 29696:
            return port
    raise harness.Failure("no port of a slot")


@cases.case("stats.pipe")
def pipe(stage):
    """What cannot be written again is refused; a FIFO without a reader stops no program."""
    fifo = stage.scratch("fifo")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    for name, reason in (("with_reader", "Illegal seek"),
                         ("without_reader", "No such device or address")):
        side = stage.start(name, "ibv_devices", options=["--stats", fifo])
        side.expect(re.escape(f"WEFT_STATS={fifo}: cannot be written: {reason}; name a file"))
        side.finish(status=None)
        if name == "with_reader":
            os.close(reader)
    side = stage.start("null", "ibv_devices", options=["--stats", "/dev/null"])
    side.expect("weft0")
    side.finish()


_LIMIT = r"""
import ctypes, resource, signal
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = verbs.ibv_open_device.restype = ctypes.c_void_p
devices = verbs.ibv_get_device_list(None)
first = ctypes.cast(devices, ctypes.POINTER(ctypes.c_void_p))[0]
assert verbs.ibv_open_device(ctypes.c_void_p(first))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
"""


@cases.case("stats.limit")
def limit(stage):
    """A program with a limit on the size of its files ends as it would without the counters."""
    path = stage.scratch("stats.json")
    stage.start("device", "python3", "-c", _LIMIT, options=["--stats", path]).finish()
    need(os.path.getsize(path) <= 16, "the limit does not work here")


@cases.case("stats.refusals")
def refusals(stage):
    """Each connection that was not let in is counted by its reason."""
    path, port = stage.scratch("stats.json"), harness.free_port()
    both = ["-g", 0, "-p", port, "-n", 50]
    server = stage.start("server", "ibv_rc_pingpong", *both, options=["--stats", path])
    server.await_listening(port)
    strangers = 3
    for _ in range(strangers):
        with socket.create_connection(("127.0.0.1", _slot_port(server.pid))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                stranger.recv(1)  # until it is closed
            except ConnectionResetError:
                pass
    client = stage.start("client", "ibv_rc_pingpong", *both, "127.0.0.1")
    for side in (client, server):
        side.finish()
    found = read(path)["refusals"]
    need(set(found) == {"timed_out", "malformed", "closed", "evicted", "out_of_descriptors",
                        "reset", "not_ready", "refused", "strangers", "wrong_psn", "other_user",
                        "answered_early", "queries_malformed", "queries_ignored",
                        "no_first_fpdu", "silent", "terminated_access",
                        "terminated_no_buffer", "terminated_other", "local_other_user",
                        "local_dropped", "local_refused", "local_violations", "top_refused"},
         f"the reasons are {sorted(found)}")
    malformed = found.pop("malformed")
    need(malformed == strangers, f"{malformed} were malformed, not {strangers}; others: {found}")
    # The client may come before its address is known, and both may dial at once.
    for reason in ("not_ready", "strangers", "closed"):
        found.pop(reason)
    need(not any(found.values()), f"counted {found}")


@cases.case("stats.terminates")
def terminates(stage):
    """Each connection that a Terminate has ended is counted by its cause."""
    path = stage.scratch("stats.json")
    target = hostile.Target(stage, options=["--stats", path])
    wanted = {"terminated_access": ("a Write beyond the end", "a Read beyond the end"),
              "terminated_no_buffer": ("more Sends than receives",),
              "terminated_other": ("a Send out of order", "an unknown opcode", "a wrong CRC")}
    for name in (name for names in wanted.values() for name in names):
        hostile.attack(target, name)
    target.finish()
    found = {name: count for name, count in read(path)["refusals"].items() if count}
    need(found == {name: len(names) for name, names in wanted.items()}, f"counted {found}")


@cases.case("stats.datagrams")
def datagrams(stage):
    """Each datagram that was dropped is counted by its cause."""
    path = stage.scratch("stats.json")
    target = hostile_pairs.Target(stage, options=["--stats", path])
    sent = {"malformed": {"opcode": 4}, "no_queue_pair": {"number": target.datagrams ^ 1},
            "wrong_queue_key": {"qkey": target.qkey ^ 1}}
    hostile_pairs.throw(target, [hostile_pairs.datagram(target, **wrong)
                                 for wrong in sent.values()])
    hostile_pairs.await_datagram(target)
    target.finish()
    found = read(path)["datagrams"]
    need(set(found) == {*sent, "no_receive", "wrong_icrc"}, f"the causes are {sorted(found)}")
    for name in sent:
        need(found[name] == 1, f"{name}: {found[name]} of 1")
