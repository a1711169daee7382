"""A process of a host is killed, stopped, or replaced while another works on its memory.

Run with the program of same_host.cc. All of it holds without TCP (WEFT_SAME_HOST=require) and with.
"""

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""
LIMIT_S = 60
SEED = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
LONG = os.environ.get("WEFT_TEST_LONG") == "1"
FAILED = ("remote access error", "transport retry counter exceeded", "Work Request Flushed Error",
          "remote operation error", "cannot post")


class Side(subprocess.Popen):
    def __init__(self, role, **variables):
        super().__init__([PROGRAM, role], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE,
                         env={**os.environ, "WEFT_QUIET": "1", **variables})

    def line(self, stream=None):
        """The next line of its output; empty at the end."""
        stream = stream or self.stdout
        text = b""
        while not text.endswith(b"\n"):
            if not select.select([stream], [], [], LIMIT_S)[0]:
                raise AssertionError("no answer; it has printed " + text.decode())
            byte = os.read(stream.fileno(), 1)
            if not byte:
                break
            text += byte
        return text.decode().rstrip("\n")

    def tell(self, text):
        os.write(self.stdin.fileno(), (text + "\n").encode())

    def ask(self, command):
        self.tell(command)
        return self.line()

    def stop(self):
        self.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self):
        """Kills it if it still runs."""
        if self.poll() is None:
            self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


class Pair:
    """A side that serves and one that works on its memory; both are killed in the end."""

    def __init__(self, mode, **variables):
        variables["WEFT_SAME_HOST"] = mode
        self.server = Side("serves", **variables)
        self.worker = Side("works", **variables)

    def exchange_offers(self):
        offers = [side.line() for side in (self.server, self.worker)]
        self.worker.tell(offers[0])
        self.server.tell(offers[1])

    def __enter__(self):
        self.exchange_offers()
        for side, wanted in ((self.server, "serves"), (self.worker, "works")):
            if side.line() != wanted:
                raise AssertionError(side.stderr.read().decode())
        return self

    def __exit__(self, *_):
        for side in (self.server, self.worker):
            side.end()


def shared_files(process):
    """The files in /dev/shm that the process has mapped. Other tests may make some there."""
    with open(f"/proc/{process.pid}/maps", encoding="utf-8") as maps:
        return [line for line in maps if "/dev/shm/" in line]


class SameHost:
    MODE = ""
    VARIABLES = {}

    def setUp(self):
        self.random = random.Random(SEED)
        print(f"seed {SEED}", file=sys.stderr)

    def rounds(self, few):
        for number in range(10 * few if LONG else few):
            with self.subTest(round=number), Pair(self.MODE, **self.VARIABLES) as pair:
                time.sleep(self.random.random() * 0.02)  # somewhere in the work
                yield pair

    def test_the_server_is_killed(self):
        for pair in self.rounds(10):
            self.assertEqual(shared_files(pair.server), [])
            pair.server.kill()
            self.assertIn(pair.worker.line(), FAILED)
            self.assertEqual(pair.worker.wait(LIMIT_S), 0)

    def test_the_worker_is_killed(self):
        for pair in self.rounds(10):
            pair.worker.kill()
            pair.worker.wait()
            self.assertEqual(pair.server.ask("withdraw"), "withdraw")
            self.assertEqual(pair.server.ask("check"), "unchanged")

    def test_a_stopped_worker_does_not_hold_up_deregistration(self):
        for pair in self.rounds(20):
            pair.worker.stop()
            self.assertEqual(pair.server.ask("withdraw"), "withdraw")
            pair.worker.send_signal(signal.SIGCONT)
            self.assertIn(pair.worker.line(), FAILED)
            self.assertEqual(pair.server.ask("check"), "unchanged")

    def test_a_stopped_server_goes_on(self):
        for pair in self.rounds(5):
            pair.server.stop()
            time.sleep(0.01)
            pair.server.send_signal(signal.SIGCONT)
            self.assertEqual(pair.server.ask("withdraw"), "withdraw")
            self.assertIn(pair.worker.line(), FAILED)

    def test_deregistration_while_it_works(self):
        for pair in self.rounds(10):
            self.assertEqual(pair.server.ask("withdraw"), "withdraw")
            self.assertIn(pair.worker.line(), FAILED)
            self.assertEqual(pair.server.ask("check"), "unchanged")

    def test_a_child_of_the_server_holds_nothing(self):
        for pair in self.rounds(5):
            child = int(pair.server.ask("fork"))
            try:
                pair.server.kill()
                self.assertIn(pair.worker.line(), FAILED)
            finally:
                os.kill(child, signal.SIGKILL)

    def test_the_server_executes_another_program(self):
        for pair in self.rounds(5):
            self.assertEqual(pair.server.ask("execute"), "executes")
            self.assertIn(pair.worker.line(), FAILED)
            self.assertEqual(pair.server.ask("still there"), "still there")


class WithoutTcp(SameHost, unittest.TestCase):
    MODE = "require"

    @classmethod
    def setUpClass(cls):
        pair = Pair("require")
        try:
            with pair:
                pass
        except AssertionError as error:
            if "read each other's memory" in str(error):
                raise unittest.SkipTest("processes may not read each other's memory") from error
            raise


class InSharedMemory(WithoutTcp):
    VARIABLES = {"WEFT_TEST_MEMORY": "file"}


class OverTcp(SameHost, unittest.TestCase):
    MODE = "off"

    def test_a_child_of_a_connecting_server_holds_nothing(self):
        """The server forks while its connection is made. A socket that is then between two owners
        is rare: Fork.TheChildHoldsNoSocketThatHasNoOwner makes one."""
        for number in range(200 if LONG else 2):
            pair = Pair(self.MODE, **self.VARIABLES)
            with self.subTest(round=number), contextlib.ExitStack() as stack:
                stack.callback(pair.__exit__)
                pair.exchange_offers()
                self.assertEqual(pair.server.line(), "serves")
                child = int(pair.server.ask("fork"))
                stack.callback(os.kill, child, signal.SIGKILL)
                pair.server.kill()
                self.assertEqual(pair.worker.line(), "works")
                self.assertIn(pair.worker.line(), FAILED)


class Carriers(unittest.TestCase):
    """Which way a connection takes, and what is reported of it."""

    def carriers(self, mode, **variables):
        """(name, reason) of the server's connection, by its statistics."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "server.json")
            with Pair(mode, WEFT_STATS=file, **variables) as pair:
                self.assertEqual(pair.server.ask("withdraw"), "withdraw")
                self.assertIn(pair.worker.line(), FAILED)  # so there was a connection
                pair.server.stdin.close()
                self.assertEqual(pair.server.wait(LIMIT_S), 0)
            with open(file, encoding="utf-8") as text:
                (entry,) = json.load(text)["queue_pairs"]
            return entry["carrier"], entry["carrier_reason"]

    def test_off_is_tcp(self):
        self.assertEqual(self.carriers("off"), ("tcp", "WEFT_SAME_HOST is off"))

    def test_a_capture_is_of_tcp(self):
        with tempfile.TemporaryDirectory() as folder:
            capture = os.path.join(folder, "x.pcapng")
            carrier = self.carriers("auto", WEFT_CAPTURE=capture)
            self.assertEqual(carrier, ("tcp", "a capture is written"))

    def test_auto_leaves_tcp(self):
        name, reason = self.carriers("auto")
        self.assertEqual(name, "same-host")
        if "read each other's memory" in reason:
            self.skipTest(reason)
        self.assertEqual(reason, "")

    def test_staged_is_reported(self):
        carrier = self.carriers("staged")
        self.assertEqual(carrier, ("same-host", "WEFT_SAME_HOST is staged"))

    def test_verbose_prints_a_line_for_each_connection(self):
        with Pair("off", WEFT_VERBOSE="1") as pair:
            self.assertRegex(pair.worker.line(pair.worker.stderr),
                             "weft: queue pair 0x[0-9a-f]{6}: TCP, because WEFT_SAME_HOST is off")
            pair.worker.kill()
            self.assertEqual(pair.worker.stderr.read(), b"")

    def test_require_refuses_a_connection_over_tcp(self):
        server = Side("serves", WEFT_SAME_HOST="off")
        worker = Side("works", WEFT_SAME_HOST="require")
        offers = [side.line() for side in (server, worker)]
        worker.tell(offers[0])
        server.tell(offers[1])
        out, error = worker.communicate(timeout=LIMIT_S)
        server.end()
        self.assertRegex(error.decode(), "because WEFT_SAME_HOST=require forbids TCP, and")
        # Some connections fail before the worker's queue pair is ready to send.
        ended = [*out.decode().splitlines(), error.decode().splitlines()[-1]]
        self.assertTrue(any(line in FAILED for line in ended) or "from ERR to RTS" in ended[-1],
                        ended)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
