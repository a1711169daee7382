"""Captures that Weft's own device writes: `weft dissect` finds exactly what the programs did."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "dropin"))
import libraries  # pylint: disable=wrong-import-position


# What two Weft devices tell each other besides what programs do: the empty write with which a
# connection begins (RFC 6581 §5.1) and words of eight bytes (docs/architecture.md).
WORDS = (0, 8)


def operations(capture):
    """(kind, bytes, outcome) of each, without what devices say for themselves; and the findings."""
    done = libraries.run(libraries.WEFT, "dissect", "--json", "--operations", "--findings", capture,
                         env=dict(os.environ))
    if done.returncode not in (0, 1):
        raise AssertionError(done.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(one["kind"], one["bytes"], one["outcome"]) for one in lines
             if one["type"] == "operation"
             and not (one["kind"] == "read" and one["requested_bytes"] == 0)
             and not (one["kind"] == "write" and one["bytes"] in WORDS)]
    return found, [one for one in lines if one["type"] == "finding"]


class Own(unittest.TestCase):
    def pingpong(self, program, count, size):
        """The operations that each of two processes has captured."""
        libraries.needs_plain_libraries()
        program = libraries.needs(program)
        with tempfile.TemporaryDirectory() as folder:
            captures = [pathlib.Path(folder) / f"{side}.pcapng" for side in "ab"]
            # Free at this moment; whoever takes it in between makes the test fail, not lie.
            port = str(18_600 + os.getpid() % 1000)
            options = [program, "-g", "0", "-p", port, "-n", str(count), "-s", str(size)]
            processes = []
            for capture, peer in zip(captures, ([], ["127.0.0.1"])):
                environment = libraries.environment(WEFT_CAPTURE=str(capture), WEFT_QUIET="1")
                processes.append(subprocess.Popen([*options, *peer], env=environment, text=True,
                                                  stdout=subprocess.PIPE,
                                                  stderr=subprocess.STDOUT))
                if not peer:
                    self.wait_for_listener(processes[0], int(port))
            for process in processes:
                out, _ = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, out)
            return [operations(capture) for capture in captures]

    def wait_for_listener(self, process, port):
        wanted = f":{port:04X}"
        while process.poll() is None:
            for table in ("tcp", "tcp6"):
                for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                    words = line.split()
                    if words[1].endswith(wanted) and words[3] == "0A":
                        return
            os.sched_yield()
        self.fail(process.stdout.read())

    def test_messages_of_a_connection(self):
        for found, findings in self.pingpong("ibv_rc_pingpong", 20, 3000):
            self.assertEqual([one[:2] for one in found], [("send", 3000)] * 40)
            # Both ends dial, and one of two requests that cross is turned down; and either may be
            # gone before the other has closed.
            self.assertLessEqual({one["kind"] for one in findings},
                                 {"connection-rejected", "connection-unanswered", "half-open",
                                  "reset"})

    def test_datagrams(self):
        for found, findings in self.pingpong("ibv_ud_pingpong", 20, 1000):
            self.assertEqual(found, [("send", 1000, "complete")] * 40)
            self.assertEqual(findings, [])


if __name__ == "__main__":
    sys.exit(libraries.main())
