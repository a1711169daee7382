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


def look(*pids, interval=0.2, place=None):
    """The devices of one `weft top --once`, by process."""
    done = subprocess.run([harness.weft(), "top", "--once", "--json", "--interval", str(interval),
                           *map(str, pids)],
                          capture_output=True, text=True, check=False, timeout=harness.WAIT_S,
                          preexec_fn=place.enter if place else None)
    need(done.returncode == 0, f"weft top: {done.stderr}")
    lines = done.stdout.splitlines()
    need(len(lines) == 1, f"not one document: {done.stdout}")
    document = json.loads(lines[0])
    need(document["version"] == 1, str(document["version"]))
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
