"""Captures that Weft's own device writes: `weft dissect` finds exactly what the programs did."""

import json
import os
import pathlib
import random
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
    def both(self, program, *options):
        """What each of two processes has captured, and what their devices have counted."""
        libraries.needs_plain_libraries()
        program = libraries.needs(program)
        with tempfile.TemporaryDirectory() as folder:
            captures = [pathlib.Path(folder) / f"{side}.pcapng" for side in "ab"]
            counts = [capture.with_suffix(".json") for capture in captures]
            # Free at this moment; whoever takes it in between makes the test fail, not lie.
            port = str(18_600 + os.getpid() % 1000)
            command = [program, "-p", port, *map(str, options)]
            processes = []
            for capture, counted, peer in zip(captures, counts, ([], ["127.0.0.1"])):
                environment = libraries.environment(WEFT_CAPTURE=str(capture), WEFT_QUIET="1",
                                                    WEFT_STATS=str(counted))
                processes.append(subprocess.Popen([*command, *peer], env=environment, text=True,
                                                  stdout=subprocess.PIPE,
                                                  stderr=subprocess.STDOUT))
                if not peer:
                    self.wait_for_listener(processes[0], int(port))
            for process in processes:
                out, _ = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, out)
            return ([operations(capture) for capture in captures],
                    [json.loads(counted.read_text()) for counted in counts])

    def pingpong(self, program, count, size):
        return self.both(program, "-g", 0, "-n", count, "-s", size)[0]

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

    def agree(self, program, kind, counter, *options):
        """50 operations of one kind: as many, of as many bytes, in captures and counters."""
        captured, counted = self.both(program, "-n", 50, *options)
        pairs = [pair for one in counted for pair in one["queue_pairs"]]
        sums = {name: sum(pair[counter][name] for pair in pairs)
                for name in ("operations", "bytes")}
        self.assertEqual(sums["operations"], 50)
        for name in ("sends", "writes", "reads", "atomics"):
            if name != counter:
                self.assertEqual(sum(pair[name]["operations"] for pair in pairs), 0, name)
        for found, _ in captured:
            self.assertEqual({one[0] for one in found}, {kind})
            self.assertEqual(len(found), sums["operations"])
            self.assertEqual(sum(one[1] for one in found), sums["bytes"])

    def test_counters_agree_about_writes(self):
        self.agree("ib_write_bw", "write", "writes", "-s", 3000)

    def test_counters_agree_about_sends(self):
        self.agree("ib_send_bw", "send", "sends", "-s", 3000)

    def test_counters_agree_about_reads(self):
        self.agree("ib_read_bw", "read", "reads", "-s", 3000)

    def test_counters_agree_about_atomics(self):
        self.agree("ib_atomic_bw", "fetch_add", "atomics", "-A", "FETCH_AND_ADD")
        self.agree("ib_atomic_bw", "compare_swap", "atomics", "-A", "CMP_AND_SWAP")


# Sends what it is given to a server that sends it back reversed.
TALK = """
import hashlib, random, socket, sys
def everything(connection):
    return b"".join(iter(lambda: connection.recv(65536), b""))
data = random.Random(1).randbytes(int(sys.argv[1]))
if len(sys.argv) == 2:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    assert everything(connection) == data
    connection.sendall(data[::-1])
else:
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    assert everything(connection) == data[::-1]
connection.close()
"""


class Layers(unittest.TestCase):
    """Streams and messages: what the applications gave and took, from the captured messages."""

    def captured(self, server, client, typed=""):
        """The messages that each of both has captured, as (side, kind, bytes), and by counter the
        operations and bytes that their devices have counted."""
        with tempfile.TemporaryDirectory() as folder:
            captures = [pathlib.Path(folder) / f"{side}.pcapng" for side in "ab"]
            counts = [capture.with_suffix(".json") for capture in captures]
            environments = [libraries.environment(WEFT_CAPTURE=str(capture), WEFT_QUIET="1",
                                                  WEFT_STATS=str(counted))
                            for capture, counted in zip(captures, counts)]
            with subprocess.Popen(server, env=environments[0], text=True,
                                  stdout=subprocess.PIPE) as one:
                port = one.stdout.readline().split()[-1]
                done = subprocess.run([word.format(port=port) for word in client],
                                      env=environments[1], input=typed, text=True, timeout=60,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                one.communicate(timeout=60)
                self.assertEqual(one.returncode, 0)
            pairs = [pair for counted in counts
                     for pair in json.loads(counted.read_text())["queue_pairs"]]
            sums = {name: tuple(sum(pair[name][what] for pair in pairs)
                                for what in ("operations", "bytes"))
                    for name in ("sends", "writes", "reads")}
            return [self.messages(capture, pathlib.Path(folder) / capture.stem)
                    for capture in captures], sums

    def messages(self, capture, folder):
        done = libraries.run(libraries.WEFT, "dissect", "--extract", folder, capture)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        index = json.loads((folder / "index.json").read_text())
        # Who leaves last may ask in vain whether the last of it is placed, by an empty Read.
        self.assertEqual([one for one in index if not one["complete"] and
                          (one["type"], one["bytes"]) != ("read", 0)], [])
        self.assertEqual({one["connection"] for one in index}, {1})
        return [(one["side"], one["type"], (folder / one["path"]).read_bytes()) for one in index]

    def test_streams(self):
        """Each byte once, in order: in RDMA Writes into the ring."""
        libraries.needs_plain_libraries()
        size = 700_000  # several times the ring
        data = random.Random(1).randbytes(size)
        with tempfile.NamedTemporaryFile("w") as script:
            script.write(TALK)
            script.flush()
            program = [str(libraries.WEFT), "run", "-q", "--sockets", "--", sys.executable,
                       script.name, str(size)]
            captured, counted = self.captured(program, [*program, "{port}"])
        for messages in captured:
            written = of_kind(messages, "write")
            # The connection begins with an empty one of the device's own (RFC 6581 §5.1). Each
            # device counts what the program posts. The last words, which have no bytes, may be
            # posted after the peer has closed, so that they never leave.
            self.assertLessEqual(len(written) - 1, counted["writes"][0])
            self.assertEqual(sum(map(len, written)), counted["writes"][1])
            for side, wanted in (("a", data), ("b", data[::-1])):
                written = b"".join(text for who, kind, text in messages
                                   if who == side and kind == "write")
                self.assertEqual(written, wanted)

    def test_messages(self):
        """Short ones in Sends, a long one offered and fetched by RDMA Reads."""
        chat = str(libraries.BUILD / "examples" / "chat")
        long = "x" * 100_000 + "end"
        spoken = ["Hello!", long, "Good-bye!"]
        captured, counted = self.captured([chat, "serve"], [chat, "127.0.0.1", "{port}", "Ann"],
                                          "\n".join([*spoken, ""]))
        for messages in captured:
            for kind, counter in (("send", "sends"), ("read", "reads")):
                found = [len(text) for text in of_kind(messages, kind) if text]
                self.assertEqual((len(found), sum(found)), counted[counter])
            self.assertEqual(said(messages, "a"), [b"Ann", *(line.encode() for line in spoken)])
            self.assertEqual(said(messages, "b"), [b"Ann is here"])

    def test_connections(self):
        """A file, in RDMA Writes into advertised memory."""
        copy = str(libraries.BUILD / "examples" / "file_copy")
        data = random.Random(2).randbytes(1_000_000)
        with tempfile.TemporaryDirectory() as folder:
            there, here = (pathlib.Path(folder) / name for name in ("there", "here"))
            here.write_bytes(data)
            captured, counted = self.captured([copy, "serve", str(there)],
                                              [copy, "127.0.0.1", "{port}", str(here)])
            self.assertEqual(there.read_bytes(), data)
        for messages in captured:
            written = [text for text in of_kind(messages, "write") if len(text) not in WORDS]
            self.assertEqual(b"".join(written), data)
            self.assertEqual((len(written), len(data)), counted["writes"])
            sends = of_kind(messages, "send")
            self.assertEqual((len(sends), sum(map(len, sends))), counted["sends"])

    def test_a_queue_pair_that_is_connected_to_itself(self):
        """One stream, in which it asks and answers itself: each operation once, and answered."""
        with tempfile.TemporaryDirectory() as folder:
            capture = pathlib.Path(folder) / "loop.pcapng"
            done = libraries.run(libraries.BUILD / "examples" / "loopback",
                                 env=libraries.environment(WEFT_CAPTURE=str(capture)))
            self.assertEqual(done.returncode, 0, done.stderr)
            found, findings = operations(capture)
            self.assertEqual(found, [("send", 32, "complete")])
            self.assertEqual(findings, [])


def of_kind(messages, wanted):
    return [text for _, kind, text in messages if kind == wanted]


def said(messages, side):
    """What one side has said, as docs/message-protocol.md has it."""
    fetched = b"".join(text for who, kind, text in messages if who != side and kind == "read")
    found = []
    for who, kind, frame in messages:
        if (who, kind) != (side, "send"):
            continue
        if frame[0] == 1:  # MESSAGE
            found.append(frame[32:])
        elif frame[0] == 2:  # OFFER
            size = int.from_bytes(frame[32:40], "big")
            found.append(fetched[:size])
            fetched = fetched[size:]
    return found


if __name__ == "__main__":
    sys.exit(libraries.main())
