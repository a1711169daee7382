"""The programs of examples/, as a user would run them. Run with --build DIRECTORY."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

EXAMPLES = pathlib.Path()
LIMIT_S = 60


def environment():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    return {**clean, "WEFT_QUIET": "1"}


def start(name, *arguments, **options):
    return subprocess.Popen([EXAMPLES / name, *map(str, arguments)], text=True, env=environment(),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            **options)


class Examples(unittest.TestCase):
    def run_to_end(self, name, *arguments):
        with start(name, *arguments) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, err)
        return out

    def test_sources_are_short(self):
        sources = pathlib.Path(__file__).parents[2] / "examples"
        for source in sources.glob("*.cc"):
            self.assertLessEqual(len(source.read_text().splitlines()), 150, source.name)

    def test_device_info(self):
        out = self.run_to_end("device_info", "127.0.0.1")
        self.assertIn("weft0 (embedded backend)", out)
        self.assertRegex(out, r"to 127\.0\.0\.1: GID \d+, because ")

    def test_operations(self):
        captures = pathlib.Path(__file__).parents[1] / "data" / "capture"
        out = self.run_to_end("operations", captures / "nfs4_siw.pcap.zst").splitlines()
        self.assertIn("10.77.0.2:52935: 843 x send, 205152 bytes", out)
        self.assertTrue(any(line.endswith("x NFSv4.2 SEQUENCE PUTFH READ: OK") for line in out))
        self.assertTrue(any(line.startswith("slowest: a read of ") for line in out), out)
        out = self.run_to_end("operations", captures / "rxe_errors.pcap.zst")
        self.assertIn("1 x write, 3000 bytes, 1 not complete", out)

    def test_advertise(self):
        self.assertEqual(self.run_to_end("advertise"), "found in my memory: written from afar\n")

    def test_replicated_log(self):
        """A few of a thousand seeds find the bug, one repeats it; the mended version has none."""
        out = self.run_to_end("replicated_log")
        found = re.fullmatch(r"the first follower leads: (\d+) of 1000 seeds lose an entry, "
                             r"the first is (\d+)\nthe longer log leads: 0 of 1000\n", out)
        self.assertTrue(found, out)
        self.assertLess(int(found[1]), 100)
        with start("replicated_log", found[2]) as process:
            again, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, again),
                         (1, f"seed {found[2]}: a committed entry is lost\n"), err)

    def test_exactly_once(self):
        """Some seeds lose an answer, one repeats it; the mended version counts each once."""
        out = self.run_to_end("exactly_once")
        found = re.fullmatch(r"requests without numbers: (\d+) of 200 seeds count a request twice, "
                             r"the first is (\d+)\nrequests with numbers: 0 of 200 seeds\n", out)
        self.assertTrue(found, out)
        self.assertLess(int(found[1]), 200)
        with start("exactly_once", found[2]) as process:
            again, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, again),
                         (1, f"seed {found[2]}: the sum is wrong\n"), err)

    def serve_and_ask(self, name, served, *asked):
        """A server that says its port, and a client of it: what both print."""
        with start(name, "serve", *served) as server:
            port = server.stdout.readline().split()[-1]
            client = self.run_to_end(name, "127.0.0.1", port, *asked)
            out, err = server.communicate(timeout=LIMIT_S)
            self.assertEqual(server.returncode, 0, err)
        return out, client

    def test_hello_write(self):
        self.assertEqual(self.serve_and_ask("hello_write", []),
                         ("in my memory: hello by RDMA write\n", "write 1: success\n"))

    def test_hello_read(self):
        self.assertEqual(self.serve_and_ask("hello_read", []),
                         ("", "in the peer's memory: hello by RDMA read\n"))

    def test_ping_pong(self):
        self.assertRegex(self.run_to_end("ping_pong", 200), r"^200 rounds, [\d.]+ us each\n$")

    def test_doorbell_batching(self):
        out = self.run_to_end("doorbell_batching")
        self.assertRegex(out, r"^one by one: 4096 writes, .*\nin batches: 4096 writes, .*\n$")

    def test_mixed(self):
        out = self.run_to_end("mixed")
        self.assertEqual(out, "".join(f"request {i}: success\n" for i in range(1, 5))
                         + "in my memory: weft\n")

    def test_key_value(self):
        pairs = [f"key{i}=value {i}" for i in range(200)]
        _, out = self.serve_and_ask("key_value", pairs, "key7", "nothing", "key199")
        self.assertEqual(out, "key7=value 7\nnothing=(none)\nkey199=value 199\n")

    def test_file_copy(self):
        with tempfile.TemporaryDirectory() as folder:
            source, copy = (pathlib.Path(folder) / name for name in ("source", "copy"))
            for size in (0, 1, 3_000_001):
                source.write_bytes(bytes(i * i % 251 for i in range(size)))
                out, _ = self.serve_and_ask("file_copy", [copy], source)
                self.assertEqual(out, f"{size} bytes, verified\n")
                self.assertEqual(copy.read_bytes(), source.read_bytes())

    def test_loopback(self):
        out = self.run_to_end("loopback")
        self.assertEqual(sorted(out.splitlines()),
                         ["received: Hello, myself!", "request 1: success", "request 2: success"])

    def test_endpoints_by_one_line_each(self):
        with start("endpoints", "Ann") as ann, start("endpoints", "Bob") as bob:
            lines = {side: side.stdout.readline() for side in (ann, bob)}
            for side, other in ((ann, bob), (bob, ann)):
                side.stdin.write(lines[other])
                side.stdin.flush()
            for side, name, other in ((ann, "Ann", "Bob"), (bob, "Bob", "Ann")):
                out, err = side.communicate(timeout=LIMIT_S)
                self.assertEqual(side.returncode, 0, err)
                self.assertEqual(out, f"{name} was greeted by {other}\n")

    def test_endpoints_refuses_other_lines(self):
        with start("endpoints", "Ann") as ann:
            _, err = ann.communicate("hello world\n", timeout=LIMIT_S)
        self.assertEqual(ann.returncode, 1)
        self.assertIn("not an endpoint of a peer", err)

    def test_greeting(self):
        for variant in ([], ["plain"]):
            with start("greeting", "serve", "127.0.0.1", *variant) as server:
                port = server.stdout.readline().split()[-1]
                out = self.run_to_end("greeting", "ask", "127.0.0.1", port, *variant)
                self.assertEqual(out, "hello stream!\n")
                out, err = server.communicate(timeout=LIMIT_S)
                self.assertEqual(server.returncode, 0, err)
                self.assertIn("knows the greeting", out)

    def test_rdma_cm_objects(self):
        with start("rdma_cm_objects", "serve", 0, "127.0.0.1") as server:
            port = server.stdout.readline().split()[-1]
            out = self.run_to_end("rdma_cm_objects", "ask", "127.0.0.1", port, "make me loud")
            self.assertEqual(out, "MAKE ME LOUD\n")
            _, err = server.communicate(timeout=LIMIT_S)
            self.assertEqual(server.returncode, 0, err)

    def test_send_and_receive_one_message(self):
        with start("weft-recv", "127.0.0.1", 0) as receiver:
            port = receiver.stdout.readline().split()[-1]
            out = self.run_to_end("weft-send", "127.0.0.1", port)
            self.assertEqual(out, "connection established\nmessage sent\n")
            out, err = receiver.communicate(timeout=LIMIT_S)
            self.assertEqual(receiver.returncode, 0, err)
            self.assertEqual(out, "connection established\nmessage received\n4096 bytes\n")

    def test_send_to_nobody(self):
        with start("weft-recv", "127.0.0.1", 0) as receiver:
            port = receiver.stdout.readline().split()[-1]
            receiver.kill()
        with start("weft-send", "127.0.0.1", port) as sender:
            _, err = sender.communicate(timeout=LIMIT_S)
        self.assertEqual(sender.returncode, 1)
        self.assertIn("no program listens there", err)

    def serve(self, name):
        """A server that goes on until the test ends, and its port."""
        server = start(name, "serve")
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        return server, server.stdout.readline().split()[-1]

    def test_epoll_echo(self):
        server, port = self.serve("epoll_echo")
        self.assertEqual(self.run_to_end("epoll_echo", "127.0.0.1", port, 40),
                         "40 streams brought everything back\n")
        self.assertEqual(self.run_to_end("epoll_echo", "127.0.0.1", port, 1),
                         "1 streams brought everything back\n")
        self.assertIsNone(server.poll())

    def test_http(self):
        if not (EXAMPLES / "http").exists():
            self.skipTest("needs Boost.Beast (libboost-dev)")
        server, port = self.serve("http")
        out = self.run_to_end("http", "127.0.0.1", port, "/first", "/second")
        self.assertEqual(out, "200 you asked for /first\n200 you asked for /second\n")
        self.assertEqual(self.run_to_end("http", "127.0.0.1", port, "/again"),
                         "200 you asked for /again\n")
        self.assertIsNone(server.poll())

    def test_chat(self):
        with start("chat", "serve") as server:
            port = server.stdout.readline().split()[-1]
            with start("chat", "127.0.0.1", port, "Ann") as ann:
                self.assertEqual(ann.stdout.readline(), "Ann is here\n")
                with start("chat", "127.0.0.1", port, "Bob") as bob:
                    self.assertEqual(ann.stdout.readline(), "Bob is here\n")
                    ann.stdin.write("Hello!\nHow are you?\n")
                    ann.stdin.flush()
                    self.assertEqual(bob.stdout.readline(), "Bob is here\n")
                    self.assertEqual(bob.stdout.readline(), "Ann: Hello!\n")
                    self.assertEqual(bob.stdout.readline(), "Ann: How are you?\n")
                    out, err = bob.communicate("Fine.\n", timeout=LIMIT_S)
                    self.assertEqual((bob.returncode, out), (0, ""), err)
                self.assertEqual(ann.stdout.readline(), "Bob: Fine.\n")
                self.assertEqual(ann.stdout.readline(), "Bob has left\n")
                _, err = ann.communicate(timeout=LIMIT_S)
                self.assertEqual(ann.returncode, 0, err)
            _, err = server.communicate(timeout=LIMIT_S)
            self.assertEqual(server.returncode, 0, err)

    def test_rpc(self):
        with start("rpc", "serve") as server:
            port = server.stdout.readline().split()[-1]
            out = self.run_to_end("rpc", "127.0.0.1", port, "warp", "weft")
            self.assertEqual(out, "WARP\npraw\nWEFT\ntfew\n")
            _, err = server.communicate(timeout=LIMIT_S)
            self.assertEqual(server.returncode, 0, err)


if __name__ == "__main__":
    EXAMPLES = pathlib.Path(sys.argv.pop(sys.argv.index("--build") + 1)) / "examples"
    sys.argv.remove("--build")
    unittest.main(verbosity=2)
