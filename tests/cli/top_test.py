"""`weft top` on a terminal with job control, and how it ends. What it shows of programs is in
tests/interop/top.py."""

import contextlib
import json
import os
import pathlib
import pty
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "dropin"))
import libraries  # pylint: disable=wrong-import-position

# A shell with job control: it leads the session of its terminal, and starts the command in a group
# of its own in the foreground. It writes what it has seen to a file.
_SHELL = r"""
import json, os, resource, signal, subprocess, sys, termios, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it changes the terminal from the background
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
own = os.getpgrp()
cooked = termios.tcgetattr(0)
seen = {}

def to_front():
    os.setpgrp()
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)

def start():
    job = subprocess.Popen([sys.argv[1], "top", "--interval", "0.1"], preexec_fn=to_front).pid
    await_raw()
    return job

def raw():
    return not termios.tcgetattr(0)[3] & (termios.ICANON | termios.ECHO)

def await_raw():
    end = time.monotonic() + 60
    while not raw():
        if time.monotonic() > end:
            sys.exit("the terminal is never without line input")
        time.sleep(0.01)

def how(job):
    status = os.waitpid(job, os.WUNTRACED)[1]
    if os.WIFSTOPPED(status):
        return "stopped"
    return os.waitstatus_to_exitcode(status)

def to_back(job):
    os.tcsetpgrp(0, own)
    termios.tcsetattr(0, termios.TCSANOW, cooked)

def note(name, job):
    seen[name] = [how(job), raw()]

job = start()
os.kill(job, signal.SIGTSTP)  # Ctrl-Z
note("suspended", job)
to_back(job)
os.tcsetpgrp(0, job)
os.kill(job, signal.SIGCONT)  # fg
await_raw()
os.kill(job, signal.SIGTERM)
note("ended after fg", job)

job = start()
os.kill(job, signal.SIGSTOP)
how(job)
to_back(job)
os.tcsetpgrp(0, job)
os.kill(job, signal.SIGCONT)
await_raw()
os.kill(job, signal.SIGQUIT)  # Ctrl-\
note("quit", job)

to_back(job)
job = start()
os.kill(job, signal.SIGSTOP)
how(job)
os.tcsetpgrp(0, own)  # and the terminal stays as it is
os.kill(job, signal.SIGCONT)  # bg
os.kill(job, signal.SIGTERM)
note("ended in the background", job)
with open(sys.argv[2], "w") as file:
    json.dump(seen, file)
"""


class Terminal(unittest.TestCase):
    def seen(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "seen")
            pid, terminal = pty.fork()
            if pid == 0:
                os.execv(sys.executable, [sys.executable, "-c", _SHELL, str(libraries.WEFT), path])
            said = b""
            with contextlib.suppress(OSError):  # EIO: the shell has ended
                while data := os.read(terminal, 65536):
                    said = (said + data)[-4096:]
            os.close(terminal)
            self.assertEqual(os.waitpid(pid, 0)[1], 0, said)
            return json.loads(pathlib.Path(path).read_text())

    def test_job_control(self):
        """Each: how it ended, and whether the terminal was left without line input."""
        self.assertEqual(self.seen(), {"suspended": ["stopped", False],
                                       "ended after fg": [0, False],
                                       "quit": [-signal.SIGQUIT, False],
                                       "ended in the background": [0, False]})


class Limits(unittest.TestCase):
    def test_without_descriptors_the_reason_is_named(self):
        libraries.needs_plain_libraries()  # sanitizers need descriptors themselves
        done = libraries.run("prlimit", "--nofile=4:4", libraries.WEFT, "top", "--once")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("/proc/net/unix cannot be read: Too many open files", done.stderr)

    def test_the_interval_is_a_number(self):
        for value in ("nan", "NAN", "-nan", "inf", "0", "0.09", "3601", "x", ""):
            done = libraries.run(libraries.WEFT, "top", "--once", "--interval", value)
            self.assertEqual(done.returncode, 2, value)
            self.assertIn("--interval", done.stderr)


if __name__ == "__main__":
    sys.exit(libraries.main())
