"""`weft doctor`: what it says of this machine, and how it tries the device."""

import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "dropin"))
import libraries  # pylint: disable=wrong-import-position

DROP = ("WEFT_", "LD_LIBRARY_PATH")


def doctor(*arguments, before=(), **more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(DROP)}
    return libraries.run(*before, libraries.WEFT, "doctor", *map(str, arguments),
                         env={**clean, **more})


def findings(done):
    """What was found, by subject; the last of each."""
    return {entry["subject"]: entry for entry in json.loads(done.stdout)["findings"]}


class Doctor(unittest.TestCase):
    def test_this_machine_is_healthy(self):
        done = doctor()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("Weft works here.", done.stdout)
        for step in ("connect", "send", "write", "read"):
            self.assertRegex(done.stdout, step + r"\s+\d")
        self.assertNotIn("\033", done.stdout)

    def test_json_says_the_same(self):
        done = doctor("--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIs(json.loads(done.stdout)["healthy"], True)
        found = findings(done)
        for subject in ("adapters", "rdma-core", "addresses", "descriptors", "system calls",
                        "debug registers", "ports", "open port", "device", "personality",
                        "self-test"):
            self.assertIn(found[subject]["health"], ("ok", "note"), subject)
        self.assertIn("weft0", found["device"]["sentence"])

    def test_it_shows_whether_there_is_a_shared_heap(self):
        found = findings(doctor("--json"))
        if found["same host"]["health"] == "ok":
            self.assertIn("system call", found["shared heap"]["sentence"])
        self.assertNotIn("shared heap", findings(doctor("--json", WEFT_SHARED_HEAP="off")))
        tiny = findings(doctor("--json", WEFT_SHARED_HEAP_LIMIT="1000000000000"))["shared heap"]
        self.assertEqual(tiny["health"], "note")
        self.assertIn("the shared heap is off: its limit is too high.", tiny["sentence"])

    def test_it_shows_whether_one_host_needs_tcp(self):
        found = findings(doctor("--json"))["same host"]
        if found["health"] == "ok":
            self.assertIn("leave TCP", found["sentence"])
        else:
            self.assertIn("read each other's memory", found["sentence"])
            self.assertTrue(found["fix"])
        found = findings(doctor("--json", WEFT_SAME_HOST="off"))["same host"]
        self.assertEqual(found["health"], "note")
        self.assertIn("use TCP, because WEFT_SAME_HOST is off.", found["sentence"])

    def test_it_names_the_personality_that_programs_need(self):
        for look, seen in (("roce", "seen as RoCE"), ("iwarp", "seen as iWARP"),
                           ("ib", "seen as InfiniBand with the LID 1,")):
            done = doctor("--json", WEFT_PERSONALITY=look, WEFT_ADDR="127.0.0.1")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            sentence = findings(done)["personality"]["sentence"]
            self.assertIn(seen, sentence)
            self.assertEqual("LIDs only need `weft run --personality ib`" in sentence,
                             look == "roce", sentence)

    def test_a_wrong_variable_is_a_problem(self):
        done = doctor("--json", WEFT_CRC="perhaps")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(findings(done)["environment"]["health"], "problem")
        self.assertIn("WEFT_CRC=perhaps", findings(done)["environment"]["sentence"])

    def test_nobody_serves_at_the_peer(self):
        with socket.socket() as taken:  # bound and not listening: nobody else gets the port
            taken.bind(("127.0.0.1", 0))
            done = doctor("--json", "--peer", "127.0.0.1", "--port", taken.getsockname()[1])
        self.assertEqual(done.returncode, 1)
        self.assertIn("connect", findings(done)["self-test"]["sentence"])
        self.assertIn("--serve", findings(done)["self-test"]["fix"])

    def test_a_peer_that_is_no_peer(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            done = doctor("--json", "--peer", "no.such.host.invalid", "--port", port)
        self.assertEqual(done.returncode, 1)
        self.assertIn("resolve", findings(done)["self-test"]["sentence"])

    def test_two_of_them(self):
        port = free_port()
        with subprocess.Popen([libraries.WEFT, "doctor", "--serve", "--port", str(port)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as peer:
            try:
                self.assertTrue(select.select([peer.stdout], [], [], 30)[0], "no server")
                self.assertEqual(peer.stdout.readline(), f"listening {port}\n")
                self.expect_open_port(port, peer.pid)
                for _ in range(2):
                    done = doctor("--peer", "127.0.0.1", "--port", port)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertIn(f"With 127.0.0.1 port {port}", done.stdout)
                    self.assertIn("siw, perftest's ib_send_bw needs", " ".join(done.stdout.split()))
            finally:
                peer.terminate()

    def expect_open_port(self, port, pid):
        """The list of open ports has this one, with its owner and who reaches it."""
        said = [entry["sentence"] for entry in json.loads(doctor("--json").stdout)["findings"]
                if entry["subject"] == "open port"]
        mine = [sentence for sentence in said if f"TCP port {port} at " in sentence]
        self.assertTrue(mine, said)
        for sentence in mine:
            self.assertIn(f"process {pid}", sentence)
            self.assertRegex(sentence, "programs of this host only|every host")

    def test_without_loopback_it_says_what_to_do(self):
        unshare = shutil.which("unshare")
        alone = [unshare, "--user", "--map-root-user", "--net", "--"]
        if not unshare or libraries.run(*alone, "true").returncode != 0:
            self.skipTest("no user and network namespaces")
        done = doctor(before=alone)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("ip link set lo up", done.stdout)
        self.assertIn("Weft does not fully work here.", done.stdout)

    def test_options_that_make_no_sense(self):
        for options in (["--serve", "--peer", "::1"], ["--port", "0"], ["--port", "x"], ["--pear"]):
            done = doctor(*options)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn("weft doctor --help", done.stderr)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(libraries.main())
