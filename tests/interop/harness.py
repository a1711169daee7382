"""Runs other people's programs on the embedded device, two at a time, and says what went wrong.

A test is a function that gets a Stage. It starts sides of a conversation, waits for what they say
or where they listen, and looks at the outcome. Nothing here waits for a time: each wait is for
an event, and its limit only turns a hang into a failure that shows what both sides said.
"""

import ctypes
import glob
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time

WAIT_S = 60  # the limit of a wait that names no other
# Descriptors that a device may keep of connections which both ends have dialled: it closes the
# channel of the one that was given up when the next connection is made.
DESCRIPTOR_SLACK = 4
_LISTEN = "0A"  # the state in /proc/net/tcp
_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS = 28
_NO_PRIVILEGED_ROOT = 3  # SECBIT_NOROOT, locked: the programs of root get no capability
_LIBC = ctypes.CDLL(None, use_errno=True)


class Skip(Exception):
    """This machine cannot run the test; says why."""


class Failure(Exception):
    """The test found what it looks for."""


def need(condition, what):
    if not condition:
        raise Failure(what)


def weft():
    """The program under test: the build says where it is."""
    return os.environ.get("WEFT_BIN") or str(
        pathlib.Path(__file__).resolve().parents[2] / "build/dev/bin/weft")


def companion(name):
    """A program of this directory that the build made."""
    return os.path.join(os.environ["WEFT_INTEROP_BIN"], name)


def need_ucx_transports():
    """Skips where UCX was packaged without its InfiniBand transports: it cannot use any device."""
    folders = list(pathlib.Path("/usr/lib").glob("*/ucx"))
    if folders and not any(any(folder.glob("libuct_ib.so*")) for folder in folders):
        raise Skip("this UCX was built without its InfiniBand transports")


def installed(program):
    """The path of somebody else's program, or a skip."""
    found = shutil.which(program)
    if found is None:
        raise Skip(f"{program} is not installed")
    return found


def seed():
    """The one seed of this run, printed so that WEFT_SEED can bring it back."""
    if not hasattr(seed, "value"):
        seed.value = int(os.environ.get("WEFT_SEED") or random.SystemRandom().randrange(1 << 32))
        print(f"seed {seed.value}: WEFT_SEED={seed.value} runs the same again", flush=True)
    return seed.value


def is_long():
    return os.environ.get("WEFT_TEST_LONG", "") not in ("", "0")


def _is_free(port):
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family) as probe:
                # As listeners of Weft: connections that have ended do not keep a port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if family == socket.AF_INET:
                return False
            need(error.errno is not None, str(error))
            return has_ipv6() is False
    return True


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def need_address(address):
    if ":" in address and not has_ipv6():
        raise Skip("no IPv6 here")


def free_port():
    """A port nobody has, below the ephemeral range: no client's socket takes it meanwhile."""
    choose = random.SystemRandom()
    for _ in range(1000):
        port = choose.randrange(11000, 28000)
        if _is_free(port):
            return port
    raise Skip("no free TCP port found between 11000 and 28000")


def require_free(port):
    """For programs whose port is fixed."""
    if not _is_free(port):
        raise Skip(f"another program has the TCP port {port}")


def listens(pid, port):
    """Whether someone in the network namespace of `pid` listens on the TCP port."""
    for table in ("tcp", "tcp6"):
        try:
            lines = pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                return True
    return False


def shed_privileges():
    """What runs on the device needs no capability, whoever runs these tests."""
    if os.geteuid() == 0:
        need(_LIBC.prctl(_PR_SET_SECUREBITS, _NO_PRIVILEGED_ROOT, 0, 0, 0) == 0,
             "root cannot give up its capabilities")


def first_line_of(path):
    """Of a file of /proc; "?" where the kernel or the end of the process does not allow to read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip() or "?"
    except OSError:
        return "?"


def threads_of(pid):
    """A line for each thread of a process: in which system call it is, and what it waits for."""
    lines = []
    for task in sorted(glob.glob(f"/proc/{pid}/task/*")):
        name, call, where = (first_line_of(f"{task}/{file}")
                             for file in ("comm", "syscall", "wchan"))
        lines.append(f"thread {os.path.basename(task)} ({name}): system call "
                     f"{' '.join(call.split()[:2])}, in {where}")
    return lines


class Side:
    """One process of a test, in a group of its own. `lines` is what it says on both outputs, each
    read by a thread of its own: many programs write half a line to one and then to the other."""

    def __init__(self, name, argv, *, place=None, env=None, say=False, privileged=True,
                 terminal=False):
        self.name, self.argv, self.lines = name, [str(word) for word in argv], []
        self._changed = threading.Condition()
        self._last_line_at = time.monotonic()
        self._open = 2
        ready = getattr(place, "enter", lambda: None)

        def before_program():  # in the child: nothing of a test survives the test
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            ready()
            if not privileged:
                shed_privileges()

        given = subprocess.PIPE if say else subprocess.DEVNULL
        self._terminal, given = os.openpty() if terminal else (None, given)
        self.process = subprocess.Popen(
            self.argv, stdin=given,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env={**clean_environment(), **(env or {})}, preexec_fn=before_program)
        if terminal:
            os.close(given)
        self._readers = [threading.Thread(target=self._read, args=(stream,), daemon=True)
                         for stream in (self.process.stdout, self.process.stderr)]
        for reader in self._readers:
            reader.start()

    def _read(self, stream):
        for raw in stream:
            with self._changed:
                self.lines.append(raw.decode(errors="replace").rstrip("\n"))
                self._last_line_at = time.monotonic()
                self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _await_output(self):
        for reader in self._readers:
            reader.join(5)

    @property
    def pid(self):
        return self.process.pid

    @property
    def output(self):
        with self._changed:
            return "\n".join(self.lines)

    def say(self, line):
        """A line to its standard input."""
        self.process.stdin.write((line + "\n").encode())
        self.process.stdin.flush()

    def end_input(self):
        self.process.stdin.close()

    def expect(self, pattern, within_s=WAIT_S, start=0):
        """Waits for a line that matches, from line `start` on. Returns the match; its line number
        plus one is in `self.read`."""
        end, at = time.monotonic() + within_s, start
        with self._changed:
            while True:
                for number in range(at, len(self.lines)):
                    found = re.search(pattern, self.lines[number])
                    if found:
                        self.read = number + 1
                        return found
                at = len(self.lines)
                need(self._open, f"{self.name} ended without saying /{pattern}/")
                left = end - time.monotonic()
                need(left > 0, f"{self.name} did not say /{pattern}/ within {within_s} s")
                self._changed.wait(left)

    def await_listening(self, port, within_s=WAIT_S):
        """Until its TCP port is open: no test guesses how long a server takes to start."""
        end = time.monotonic() + within_s
        while not listens(self.pid, port):
            need(self.process.poll() is None, f"{self.name} ended before it listened on {port}")
            need(time.monotonic() < end, f"{self.name} listens not on {port} within {within_s} s")
            time.sleep(0.005)

    def finish(self, within_s=WAIT_S, status=0):
        """Waits for its end. `status` is what it must be, or None for any; returns the status."""
        try:
            found = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} still runs after {within_s} s") from None
        self._await_output()
        if status is not None:
            need(found == status, f"{self.name} ended with {ending(found)}, "
                                  f"expected {ending(status)}")
        return found

    def signal(self, number):
        """To the whole group: the program may be a child of what was started."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def destroy(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()
        self._await_output()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None

    def report(self, last=25):
        """What happened to it, for a failure."""
        code = self.process.poll()
        state = "still running" if code is None else ending(code)
        said = self.lines[-last:]
        left_out = [f"… {len(self.lines) - last} lines before"] if len(self.lines) > last else []
        threads = []
        if code is None:
            quiet = time.monotonic() - self._last_line_at
            threads = [f"(no line for {quiet:.1f} s)", *threads_of(self.pid)]
        return "\n".join([f"--- {self.name} ({state}): {shlex.join(self.argv)}"]
                         + [f"  {line}" for line in left_out + said + threads])


def ending(code):
    if code < 0:
        return signal.Signals(-code).name
    return f"exit status {code}"


class Stage:
    """The sides of one test. Kills what is left at the end."""

    def __init__(self):
        self.sides = []
        self.ran = []
        self._looks = []  # the personality of each side that ran on the device
        self._scratch = None
        self.note = ""  # what the table of programs says beside "passed"
        self.place = None  # of the sides that name none themselves
        self.environment = {}  # of all sides that run on the device

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        reports = [side.report() for side in self.sides] if isinstance(error, Failure) else []
        for side in reversed(self.sides):
            side.destroy()
        for text in reports:
            print(text)
        if self._scratch and error is None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        elif self._scratch:
            print(f"files of this run: {self._scratch}")

    def scratch(self, name):
        """A path for a file of this test; kept when it fails."""
        if self._scratch is None:
            base = os.environ.get("WEFT_INTEROP_SCRATCH")
            if base:
                os.makedirs(base, exist_ok=True)
            self._scratch = subprocess.check_output(
                ["mktemp", "-d"] + (["-p", base] if base else []), text=True).strip()
        return os.path.join(self._scratch, name)

    def start(self, name, program, *arguments, options=(), place=None, env=None, say=False,
              privileged=False, terminal=False):
        """Starts `weft run OPTIONS -- PROGRAM ARGUMENTS`. A place has enter(), which the process
        calls before the program, or wrap(), which makes a longer command of it, or both.
        `terminal`: its standard input is one."""
        place = place or self.place
        path = program if os.sep in str(program) else installed(program)
        argv = [weft(), "run", *options, "--", path, *arguments]
        if hasattr(place, "wrap"):
            argv = place.wrap(argv)
        self.ran.append(f"{name}: " + shlex.join(
            ["weft", "run", *map(str, options), "--", os.path.basename(str(program)),
             *map(str, arguments)]))
        words = list(options)
        self._looks.append(words[words.index("--personality") + 1] if "--personality" in words
                           else (env or {}).get("WEFT_PERSONALITY", "roce"))
        env = {**sanitizer_environment(), **self.environment, **(env or {})}
        side = Side(name, argv, place=place, env=env, say=say, privileged=privileged,
                    terminal=terminal)
        self.sides.append(side)
        return side

    def personalities(self):
        """How the device looked to the sides, each once, in the order of their start."""
        return list(dict.fromkeys(self._looks))

    def plain(self, name, *argv, **options):
        """Starts a program that has nothing to do with the device."""
        self.ran.append(f"{name}: {shlex.join(map(str, argv))}")
        side = Side(name, argv, **options)
        self.sides.append(side)
        return side

    def forget(self, side):
        """A side that has ended and that no failure needs to show."""
        side.destroy()
        self.sides.remove(side)


def json_of(path):
    """The content of a file that a program may be writing; None where it is not complete."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def succeeds(*argv):
    """Whether a command that has nothing to do with the test can be run at all."""
    if shutil.which(argv[0]) is None:
        return False
    return subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def clean_environment():
    """Without what speaks to these tests only; the device warns of variables it does not know."""
    ours = re.compile("WEFT_(BIN|TEST_LONG|INTEROP_.*|SOAK_.*|KERNEL_.*)$")
    return {name: value for name, value in os.environ.items() if not ours.match(name)}


def sanitizer_environment():
    """An instrumented drop-in wants its runtime loaded before an ordinary program starts, which is
    to keep little of what was freed, for tests that look at memory."""
    runtime = os.environ.get("WEFT_INTEROP_SANITIZER")
    options = "detect_leaks=0:quarantine_size_mb=16"
    return {"LD_PRELOAD": runtime, "ASAN_OPTIONS": options} if runtime else {}


TROUBLE = re.compile(r"(?i)\b(error|fail(ed|ure|s)?|couldn't|cannot|unable|mismatch|assert\w*)\b")


def need_no_trouble(side, allowed=r"$^"):
    """No line of the output speaks of an error."""
    for line in side.lines:
        if TROUBLE.search(line) and not re.search(allowed, line):
            raise Failure(f"{side.name} says: {line.strip()}")
