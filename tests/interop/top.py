"""`weft top`: what it shows of unmodified programs that know nothing of it."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import time

import cases
import harness
import sandboxes
from harness import need

_CARRIERS = {"tcp": "off", "same_host": "auto"}
_LISTENS = 0x10000
_PYTHON = "/usr/bin/python3"  # another user may have no way to the one that runs the tests


def names(pid):
    """The sockets of a process on which it listens for `weft top`."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    mine = f"@weft-top/{pid}/"
    return [row[7][1:] for row in rows
            if len(row) > 7 and int(row[3], 16) & _LISTENS and row[7].startswith(mine)]


def look(*pids, interval=0.2, place=None, before=()):
    """The devices of one `weft top --once`, by process."""
    done = subprocess.run([*before, harness.weft(), "top", "--once", "--json",
                           "--interval", str(interval), *map(str, pids)],
                          capture_output=True, text=True, check=False, timeout=harness.WAIT_S,
                          preexec_fn=place.enter if place else None)
    lines = done.stdout.splitlines()
    need(len(lines) == 1, f"not one document: {done.stdout}")
    document = json.loads(lines[0])
    need(document["version"] == 1, str(document["version"]))
    wanted = 1 if pids and not document["devices"] else 0
    need(done.returncode == wanted, f"weft top: {done.returncode}: {done.stderr}")
    return {each["pid"]: each for each in document["devices"]}


def await_device(pid, condition, what):
    """Looks until a process shows something."""
    end = time.monotonic() + harness.WAIT_S
    while True:
        device = look(pid).get(pid)
        if device and condition(device):
            return device
        need(time.monotonic() < end, f"process {pid} never shows {what}: {device}")


def need_figures(device, carrier):
    """One queue pair, whose figures are those of the device."""
    need(device["answered"] and device["device"] == "weft0", str(device))
    need(device["connected"] == 1 and len(device["queue_pairs"]) == 1, str(device))
    pair = device["queue_pairs"][0]
    need(pair["carrier"] == carrier and pair["state"] == "RTS", str(pair))
    need(re.fullmatch(r"[0-9.]+", pair["peer"]), str(pair))
    for name in ("operations_per_s", "out_bytes_per_s", "in_bytes_per_s"):
        need(abs(device[name] - pair[name]) <= 0.01 * device[name] + 1, f"{name}: {device}")
    latency = device["latency_ns"]
    need(latency["p50"] <= latency["p99"] <= latency["p999"], str(latency))
    need(device["send_depth"] <= device["send_size"], str(device))


def _write_bw_case(mode, carrier):
    def run(stage):
        options = ["--same-host", mode]
        port = harness.free_port()
        both = ["-F", "-p", port, "-s", 4096, "-D", 600]
        server = stage.start("server", "ib_write_bw", *both, options=options)
        server.await_listening(port)
        client = stage.start("client", "ib_write_bw", *both, "127.0.0.1", options=options)
        busy = await_device(client.pid, lambda device: device.get("operations_per_s", 0) > 0 and
                            device["latency_ns"]["count"] > 0, "Writes with latencies")
        need_figures(busy, carrier)
        need(busy["out_bytes_per_s"] > busy["operations_per_s"], f"{busy}")
        need(busy["latency_ns"]["p50"] > 0, f"{busy}")
        # The server posts nothing, and its memory is written.
        passive = await_device(server.pid, lambda device: device.get("in_bytes_per_s", 0) > 0,
                               "Writes of its peer")
        need(passive["operations_per_s"] == 0 and passive["latency_ns"]["count"] == 0,
             f"{passive}")

    return run


def _rping(stage, mode):
    port = harness.free_port()
    options = ["--same-host", mode]
    server = stage.start("server", "rping", "-s", "-a", "127.0.0.1", "-p", port, "-P",
                         options=options)
    server.await_listening(port)
    client = stage.start("client", "rping", "-c", "-a", "127.0.0.1", "-p", port, options=options)
    return server, client


def _rping_case(mode, carrier):
    def run(stage):
        server, client = _rping(stage, mode)
        for side in (server, client):
            device = await_device(side.pid, lambda each: each.get("operations_per_s", 0) > 0 and
                                  each["latency_ns"]["count"] > 0, "requests")
            need_figures(device, carrier)
            need(device["program"] == "rping", str(device))
            need(device["receive_size"] > 0, str(device))
        both = look(server.pid, client.pid)
        need(both.keys() == {server.pid, client.pid}, str(both.keys()))

    return run


for _name, _mode in _CARRIERS.items():
    _carrier = "tcp" if _name == "tcp" else "same-host"
    cases.add(f"top.ib_write_bw.{_name}", _write_bw_case(_mode, _carrier))
    cases.add(f"top.rping.{_name}", _rping_case(_mode, _carrier))


@cases.case("top.stopped")
def stopped(stage):
    """A process that is stopped is named, and keeps nothing from the others."""
    server, client = _rping(stage, "off")
    await_device(client.pid, lambda device: device.get("operations_per_s", 0) > 0, "requests")
    os.kill(server.pid, signal.SIGSTOP)
    # Also if its queue of connections is full.
    waiting = []
    try:
        while True:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            waiting[-1].connect("\0" + names(server.pid)[0])
    except BlockingIOError:
        pass
    need(len(waiting) > 1, "the process lets nothing in")
    both = look(server.pid, client.pid)
    for each in waiting:
        each.close()
    need(not both[server.pid]["answered"] and both[server.pid]["why"] == "stopped", str(both))
    need(both[client.pid]["answered"], str(both))
    os.kill(server.pid, signal.SIGCONT)
    await_device(server.pid, lambda device: device.get("operations_per_s", 0) > 0, "requests again")


@cases.case("top.waits")
def waits(stage):
    """A message that finds no receive is a wait at its receiver."""
    port = harness.free_port()
    server = stage.start("server", "rping", "-s", "-a", "127.0.0.1", "-p", port, "-P",
                         options=["--fault", "RNR at arrival nth=5"])
    server.await_listening(port)
    stage.start("client", "rping", "-c", "-a", "127.0.0.1", "-p", port)
    device = await_device(server.pid, lambda each: each.get("waits", {}).get(
        "receive", {"now": 0})["now"] > 0, "a wait for a receive")
    need(device["waits"]["tcp"]["now"] == 0, str(device))


@cases.case("top.idle")
def idle(stage):
    """A program that has a device and no connection is listed."""
    side = stage.start("watch", "ibv_asyncwatch")
    side.expect("async event FD")
    device = look(side.pid)[side.pid]
    need(not device["answered"] and device["why"] == "idle", str(device))


_FULL = r"""
import socket, sys, time
name = f"\0weft-top/{sys.argv[1]}/0123456789abcdef"
end = socket.socket(socket.AF_UNIX)
end.bind(name)
end.listen(0)
waiting = []
try:
    while True:
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        waiting[-1].connect(name)
except BlockingIOError:
    print("full")
    time.sleep(1000)
"""


@cases.case("top.other_namespace")
def other_namespace(stage):
    """A process of a container with its own process numbers and the network of this host."""
    unshare = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child"]
    if not harness.succeeds(*unshare, "true"):
        raise harness.Skip("no namespaces of processes")
    outer = _player(stage, _report(1, []), before=unshare)
    with open(f"/proc/{outer.pid}/task/{outer.pid}/children", encoding="ascii") as file:
        inner = int(file.read())
    shown = look(inner)
    need(shown.keys() == {inner} and shown[inner]["answered"], str(shown))
    need(shown[inner]["program"].startswith("python"), str(shown))
    # The other way: the process has no number where it is asked from.
    player = _player(stage, _report(1, []))
    shown = look(player.pid, before=[*unshare, "--mount-proc"])
    need(shown.keys() == {player.pid} and shown[player.pid]["program"] == "?", str(shown))


@cases.case("top.other_user")
def other_user(stage):
    """Another user sees nothing, and gets nothing where he connects by himself."""
    if os.geteuid() != 0:
        raise harness.Skip("only root can become another user")
    other = sandboxes.OrdinaryUser()
    server, client = _rping(stage, "off")
    await_device(client.pid, lambda device: device.get("operations_per_s", 0) > 0, "requests")
    need(look(server.pid, client.pid, place=other) == {}, "another user sees the processes")
    script = ("import socket, sys\n"
              "end = socket.socket(socket.AF_UNIX)\n"
              "end.settimeout(60)\n"
              "end.connect('\\0' + sys.argv[1])\n"
              "try:\n"
              "    end.send(b'?')\n"
              "    got = end.recv(100)\n"
              "except OSError:\n"
              "    got = b''\n"
              "sys.exit(len(got))\n")
    done = subprocess.run([_PYTHON, "-c", script, names(client.pid)[0]], check=False,
                          capture_output=True, text=True, preexec_fn=other.enter)
    need(done.returncode == 0 and not done.stderr, f"got {done.returncode} bytes: {done.stderr}")
    # A listener of another user under such a name is not believed.
    impostor = stage.plain("impostor", _PYTHON, "-u", "-c",
                           "import os, socket\n"
                           "end = socket.socket(socket.AF_UNIX)\n"
                           "end.bind(f'\\0weft-top/{os.getpid()}/0123456789abcdef')\n"
                           "end.listen()\n"
                           "print('listens')\n"
                           "peer, _ = end.accept()\n"
                           "print('got', len(peer.recv(1)))\n", place=other)
    impostor.expect("listens")
    need(look(impostor.pid) == {}, "an impostor is listed")
    impostor.expect("got 0")
    # Nor one who cannot be asked, because his queue is full.
    idle_process = stage.plain("idle", "cat", say=True)
    impostor = stage.plain("full impostor", _PYTHON, "-u", "-c", _FULL, idle_process.pid,
                           place=other)
    impostor.expect("full")
    need(look(idle_process.pid) == {}, "an impostor is listed under the number of another process")


_PLAYER = r"""
import os, socket, sys
reports = [line.encode() for line in iter(sys.stdin.readline, "\n")]
end = socket.socket(socket.AF_UNIX)
end.bind(f"\0weft-top/{os.getpid()}/0123456789abcdef")
end.listen(8)
print("listens", flush=True)
peer, _ = end.accept()
while peer.recv(64):
    print("asked", flush=True)
    if reports[0].strip() == b"late":
        sys.stdin.readline()
        reports = reports[1:]
    peer.sendall(reports[0] + b"\0")
    reports = reports[1:] or reports
"""


def _pair(number, operations, room_wait_ns=0):
    return {"number": number, "type": "RC", "state": "RTS", "carrier": "tcp",
            "writes": {"operations": operations, "bytes": 100 * operations},
            "room_wait_ns": room_wait_ns}


def _report(time_s, pairs, destroyed=None, **more):
    return {"version": 1, "device": "weft0", "address": "127.0.0.1", "time_ns": time_s * 10**9,
            "destroyed_queue_pairs": destroyed or {}, "queue_pairs": pairs,
            "completion_queues": [], **more}


def _player(stage, *reports, before=()):
    """A process that plays a device, and sends these reports, one for each look. Behind "late" it
    sends the next one only after it is given a line."""
    player = stage.plain("player", *before, _PYTHON, "-u", "-c", _PLAYER, say=True)
    for each in reports:
        player.say(each if isinstance(each, str) else json.dumps(each))
    player.say("")
    player.expect("listens")
    return player


def _played(stage, *reports):
    """What `weft top` shows of a process that sends these reports."""
    player = _player(stage, *reports)
    shown = look(player.pid)[player.pid]
    player.finish()
    return shown


@cases.case("top.rates")
def rates(stage):
    """Rates are those of all queue pairs, also of those that come, end or are left out."""
    shown = _played(stage, _report(1, [_pair(1, 100)]),
                    _report(3, [_pair(1, 300), _pair(2, 100)]))
    need(shown["operations_per_s"] == 150 and shown["out_bytes_per_s"] == 15000, str(shown))
    need(shown["seconds"] == 2 and shown["skipped"] == 0, str(shown))
    # One ends: what it has waited counts on.
    shown = _played(stage, _report(1, [_pair(1, 100, 10**9), _pair(2, 0, 10**9)]),
                    _report(3, [_pair(1, 100, 2 * 10**9)], _pair(0, 200, 2 * 10**9)))
    need(shown["operations_per_s"] == 100 and shown["waits"]["tcp"]["share"] == 1, str(shown))
    # One is locked during the first look, or the second one.
    both, one = [_pair(1, 100), _pair(2, 10**6)], [_pair(1, 100)]
    shown = _played(stage, _report(1, one, skipped=1), _report(3, [_pair(1, 300), both[1]]))
    need(shown["operations_per_s"] == 100, str(shown))
    need([each["operations_per_s"] for each in shown["queue_pairs"]] == [100, 0], str(shown))
    shown = _played(stage, _report(1, both), _report(3, [_pair(1, 300)], skipped=1))
    need(shown["operations_per_s"] == 100 and shown["skipped"] == 1, str(shown))


@cases.case("top.late")
def late(stage):
    """After an answer that was late, the rates are those since the one before."""
    player = _player(stage, _report(1, [_pair(1, 100)]), "late", _report(3, [_pair(1, 300)]))
    with subprocess.Popen([harness.weft(), "top", "--json", "--interval", "0.1", str(player.pid)],
                          stdout=subprocess.PIPE, text=True) as shows:
        try:
            while json.loads(shows.stdout.readline())["devices"][0]["answered"]:
                pass
            player.say("now")
            device = {"answered": False}
            while not device["answered"]:
                device = json.loads(shows.stdout.readline())["devices"][0]
        finally:
            shows.terminate()
    need(device["seconds"] == 2 and device["operations_per_s"] == 100, str(device))


@cases.case("top.ended_by_a_signal")
def ended_by_a_signal(stage):
    """--once has no result then; without it a signal is the usual end."""
    for options, status in ((["--once"], 128 + signal.SIGTERM), ([], 0)):
        player = _player(stage, _report(1, []))
        with subprocess.Popen([harness.weft(), "top", *options, "--json", "--interval", "3600",
                               str(player.pid)], stdout=subprocess.PIPE, text=True) as shows:
            player.expect("asked")
            shows.terminate()
            said, _ = shows.communicate(timeout=harness.WAIT_S)
        need(shows.returncode == status and not said, f"{options}: {shows.returncode}: {said}")


@cases.case("top.nobody_reads")
def nobody_reads(stage):
    """A reader that has all that it wants is no error, also where SIGPIPE is ignored."""
    for pairs in (0, 1000):  # less than a buffer, and more
        player = _player(stage, _report(1, [_pair(each, 0) for each in range(pairs)]))
        reads, writes = os.pipe()
        os.close(reads)
        done = subprocess.run([harness.weft(), "top", "--once", "--json", "--interval", "0.1",
                               str(player.pid)], stdout=writes, stderr=subprocess.PIPE, text=True,
                              check=False, timeout=harness.WAIT_S, restore_signals=False)
        os.close(writes)
        need(done.returncode == 0 and not done.stderr, f"{done.returncode}: {done.stderr}")


_MANY = r"""
import os, select, socket
ends = []
for number in range(40):
    ends.append(socket.socket(socket.AF_UNIX))
    ends[-1].bind(f"\0weft-top/{os.getpid()}/{number:016x}")
    ends[-1].listen(8)
print("listens", flush=True)
while True:
    for end in select.select(ends, [], [])[0]:
        if end.family == socket.AF_UNIX and end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            ends.append(end.accept()[0])
        elif end.recv(64):
            end.sendall(b'{"version": 1, "time_ns": 1}\0')
        else:
            ends.remove(end)
"""


@cases.case("top.many_devices")
def many_devices(stage):
    """More devices than descriptors by default."""
    player = stage.plain("player", _PYTHON, "-u", "-c", _MANY)
    player.expect("listens")
    done = subprocess.run(["prlimit", "--nofile=20:1024", harness.weft(), "top", "--once", "--json",
                           "--interval", "0.1", str(player.pid)], capture_output=True, text=True,
                          check=False, timeout=harness.WAIT_S)
    need(done.returncode == 0, done.stderr)
    shown = [each["answered"] for each in json.loads(done.stdout)["devices"]]
    need(shown == [True] * 40, str(shown))


@cases.case("top.hostile_reports")
def hostile_reports(stage):
    """What a process sends cannot end the command, and a large report takes no long time."""
    deep = "[" * 300_000 + "]" * 300_000
    good = _report(1, [])
    inside = json.dumps(good).replace('"queue_pairs": []', '"queue_pairs": ' + deep)
    for wrong in (inside, deep, "7", '{"queue_pairs'):
        shown = _played(stage, wrong)
        need(not shown["answered"] and shown["why"], f"{wrong[:80]}: {shown}")
    for value in (7, "x", {"a": 1}, [7], [[]], None):
        shown = _played(stage, {**good, "queue_pairs": value, "completion_queues": value})
        need(shown["answered"] and shown["operations_per_s"] == 0, f"{value}: {shown}")
    many = 20_000
    shown = _played(stage, _report(1, [_pair(each, 0) for each in range(many)]),
                    _report(2, [_pair(each, 1) for each in range(many)]))
    need(shown["operations_per_s"] == many and len(shown["queue_pairs"]) == many, "not all")


_FORKS = r"""
import ctypes, os, sys
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.c_void_p
verbs.ibv_open_device.restype = ctypes.c_void_p
devices = verbs.ibv_get_device_list(None)
first = ctypes.cast(devices, ctypes.POINTER(ctypes.c_void_p))[0]
def use():
    if not verbs.ibv_open_device(ctypes.c_void_p(first)):
        sys.exit("no device")
use()
child = os.fork()
if child == 0:
    os.write(1, f"child {os.getpid()}\n".encode())  # both write, each by one call
    sys.stdin.readline()
    os._exit(0)
os.write(1, b"parent\n")
os.waitpid(child, 0)
os.execlp("cat", "cat")
"""


@cases.case("top.fork_and_exec")
def fork_and_exec(stage):
    """A child has no part in its parent's socket, and a new program has none."""
    script = stage.scratch("forks.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(_FORKS)
    parent = stage.start("parent", sys.executable, "-u", script, say=True)
    parent.expect("parent")
    child = int(parent.expect(r"child (\d+)")[1])
    need(len(names(parent.pid)) == 1, f"sockets: {names(parent.pid)}")
    need(not names(child), "the child listens")
    inode = [row.split()[6] for row in open("/proc/net/unix", encoding="utf-8", errors="replace")
             if names(parent.pid)[0] in row][0]
    held = [os.readlink(f"/proc/{child}/fd/{fd}") for fd in os.listdir(f"/proc/{child}/fd")]
    need(f"socket:[{inode}]" not in held, "the child holds its parent's socket")
    parent.say("")
    end = time.monotonic() + harness.WAIT_S
    while names(parent.pid):
        need(time.monotonic() < end, "the socket outlives execve(2)")
        time.sleep(0.01)
    need(look(parent.pid) == {}, "a program without a device is listed")
    parent.end_input()
    parent.finish()


class _Screen:
    """`weft top` on a terminal of its own."""

    def __init__(self, *arguments):
        self._end, other = pty.openpty()
        self.before = termios.tcgetattr(other)
        self._other = other
        self.process = subprocess.Popen([harness.weft(), "top", "--interval", "0.1", *arguments],
                                        stdin=other, stdout=other, stderr=other,
                                        start_new_session=True)
        self.text = ""

    def press(self, key):
        os.write(self._end, key.encode())

    def expect(self, pattern):
        end = time.monotonic() + harness.WAIT_S
        while not re.search(pattern, self.text):
            left = end - time.monotonic()
            need(left > 0, f"the screen never shows /{pattern}/: {self.text[-2000:]!r}")
            if select.select([self._end], [], [], left)[0]:
                self.text += os.read(self._end, 65536).decode()
        self.text = ""

    def finish(self):
        status = self.process.wait(harness.WAIT_S)
        after = termios.tcgetattr(self._other)
        os.close(self._end)
        os.close(self._other)
        need(status == 0, f"status {status}")
        need(after[3] == self.before[3], "the terminal stays without line input")


@cases.case("top.terminal")
def terminal(stage):
    """Keys sort, show queue pairs and quit; a signal leaves the terminal as it was."""
    _, client = _rping(stage, "off")
    await_device(client.pid, lambda device: device.get("operations_per_s", 0) > 0, "requests")
    screen = _Screen(str(client.pid))
    screen.expect(rf"1 devices, by ops.*\n.*PROGRAM.*\n +{client.pid} rping")
    screen.press("p")
    screen.expect(r"0x[0-9a-f]{6} RC RTS tcp")
    screen.press("s")
    screen.expect("1 devices, by out")
    screen.press("q")
    screen.finish()
    screen = _Screen("--sort", "waits")
    screen.expect("by waits")
    screen.process.send_signal(signal.SIGTERM)
    screen.finish()


@cases.case("top.text")
def text(stage):
    """Without a terminal: a table."""
    _, client = _rping(stage, "auto")
    await_device(client.pid, lambda device: device.get("operations_per_s", 0) > 0, "requests")
    done = subprocess.run([harness.weft(), "top", "--once", "--queue-pairs", "--interval", "0.2",
                           str(client.pid)], capture_output=True, text=True, check=True)
    need(re.match(rf" +PID PROGRAM .*WAITS\n +{client.pid} rping +1/1 .*\n  0x[0-9a-f]{{6}} RC RTS "
                  r"same-host .*127\.0\.0\.1\n\Z", done.stdout), done.stdout)


@cases.case("top.nothing")
def nothing(_stage):
    """Without a process to show."""
    with socket.socket(socket.AF_UNIX) as unrelated:
        unrelated.bind("\0weft-top/nonsense")
        unrelated.listen()
        pid = os.getpid()  # has no device
        need(look(pid) == {}, "something is listed")
        done = subprocess.run([harness.weft(), "top", "--once", str(pid)], capture_output=True,
                              text=True, check=False)
        need(done.returncode == 1 and not done.stdout and
             f"process {pid}: no Weft device" in done.stderr, done.stdout + done.stderr)
