"""`weft dissect` on the stored captures: what it prints is compared byte for byte with what is
stored beside them, and the NFS files that it extracts with what the programs wrote and read.

    tests/cli/dissect_test.py --rewrite --build build/dev

stores what it prints now: read the difference, then commit.
"""

import difflib
import gzip
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "dropin"))
import libraries  # pylint: disable=wrong-import-position

CAPTURES = TESTS / "data" / "capture"
GOLDEN = TESTS / "data" / "dissect"
LISTS = ("--operations", "--rpc", "--findings")
# Of each capture: what is stored, and the options that print it.
OUTPUTS = {
    "{}.txt": (),
    "{}.json": ("--json",),
    "{}.lists.txt.gz": LISTS,
    "{}.lists.json.gz": ("--json", *LISTS),
}
rewrite = False


def captures():
    return sorted(path.name.split(".")[0] for path in CAPTURES.glob("*.pcap.zst"))


def dissect(*arguments):
    done = libraries.run(libraries.WEFT, "dissect", *map(str, arguments), cwd=CAPTURES,
                         env=dict(os.environ))
    return done


def stored(path):
    if not path.exists():
        return ""
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    return path.read_text()


def store(path, text):
    GOLDEN.mkdir(exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data, 9, mtime=0) if path.suffix == ".gz" else data)


class Golden(unittest.TestCase):
    maxDiff = None

    def test_every_capture(self):
        self.assertGreaterEqual(len(captures()), 19)
        for capture in captures():
            for pattern, options in OUTPUTS.items():
                with self.subTest(capture=capture, options=options):
                    self.check(GOLDEN / pattern.format(capture), capture, options)

    def check(self, path, capture, options):
        done = dissect(*options, f"{capture}.pcap.zst")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        if rewrite:
            store(path, done.stdout)
        before = stored(path)
        if before == done.stdout:
            return
        lines = list(difflib.unified_diff(before.splitlines(), done.stdout.splitlines(),
                                          str(path.name), "now", lineterm="", n=0))
        self.fail("\n".join(lines[:40]))

    def test_json_is_json_with_a_type_in_each_line(self):
        for capture in captures():
            for line in stored(GOLDEN / f"{capture}.lists.json.gz").splitlines():
                self.assertIn(json.loads(line)["type"], ("operation", "rpc", "finding"))


class ExitStatus(unittest.TestCase):
    def test_says_whether_there_are_findings(self):
        self.assertEqual(dissect("rxe_rping.pcap.zst").returncode, 0)
        self.assertEqual(dissect("rxe_errors.pcap.zst").returncode, 1)
        # Of the connection that is asked for.
        self.assertEqual(dissect("--connection", "9", "rxe_errors.pcap.zst").returncode, 0)

    def test_is_2_where_something_cannot_be_done(self):
        self.assertEqual(dissect("no-such-file").returncode, 2)
        self.assertEqual(dissect("--xid", "many", "rxe_rping.pcap.zst").returncode, 2)
        self.assertEqual(dissect("--csv", "--rpc", "--operations", "rxe_rping.pcap.zst").returncode,
                         2)
        with tempfile.TemporaryDirectory() as full:
            (pathlib.Path(full) / "something").touch()
            done = dissect("--extract", full, "rxe_rping.pcap.zst")
            self.assertEqual(done.returncode, 2)
            self.assertIn("not empty", done.stderr)


class Selection(unittest.TestCase):
    def lines(self, *arguments):
        done = dissect("--json", *arguments)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_by_xid(self):
        found = self.lines("--rpc", "--xid", "0x478b190c", "nfs3_rxe.pcap.zst")
        self.assertEqual([rpc["name"] for rpc in found], ["NFSv3 CREATE"])
        self.assertEqual(found[0]["nfs"]["operations"][0]["entry"], "f0")

    def test_by_key(self):
        every = self.lines("--rpc", "nfs3_rxe.pcap.zst")
        self.assertEqual(len(every), 1163)
        key = next(one["key"] for one in self.lines("--operations", "--opcode", "read",
                                                     "nfs3_rxe.pcap.zst"))
        some = self.lines("--rpc", "--rkey", key, "nfs3_rxe.pcap.zst")
        self.assertTrue(0 < len(some) < len(every))

    def test_by_queue_pair_and_time(self):
        found = self.lines("--operations", "--qp", "0x18", "rxe_sizes.pcap.zst")
        self.assertEqual({one["kind"] for one in found}, {"write"})
        self.assertEqual(len(found), 4)
        first = self.lines("--rpc", "--time", "..6", "nfs3_rxe.pcap.zst")
        rest = self.lines("--rpc", "--time", "6..", "nfs3_rxe.pcap.zst")
        self.assertEqual(len(first) + len(rest), 1163)
        self.assertEqual(len(first), 3)


def content(size):
    """The file fN of the NFS captures."""
    digests = (hashlib.sha256(f"nfs-lab:{size}:{i}".encode()).digest()
               for i in range((size + 31) // 32))
    return b"".join(digests)[:size]


class NfsFiles(unittest.TestCase):
    """Programs copied files of known content to the server and read them back."""

    def images(self, capture):
        with tempfile.TemporaryDirectory() as parent:
            out = pathlib.Path(parent) / "out"
            done = dissect("--extract", out, f"{capture}.pcap.zst")
            self.assertIn(done.returncode, (0, 1), done.stderr)
            index = json.loads((out / "index.json").read_text())
            files = {entry["path"] for entry in index}
            there = {str(path.relative_to(out)) for path in out.rglob("*")
                     if path.is_file() and path.name != "index.json"}
            self.assertEqual(files, there)
            self.assertTrue(all(entry["complete"] for entry in index))
            images = {path.name: path.read_bytes() for path in (out / "nfs" / "1").iterdir()}
            return index, images

    def check(self, capture, rpcs):
        index, images = self.images(capture)
        for size in (1, 100, 3000, 10000, 300000, 2097152):
            for direction in ("written", "read"):
                self.assertEqual(images[f"f{size}.{direction}.1"], content(size), size)
        # Nothing of it was ever read: the client knew that it is empty.
        self.assertEqual(images["f0.written.1"], b"")
        changed = bytearray(content(300000))
        changed[100000:103000] = content(10000)[:3000]
        for direction in ("written", "read"):
            self.assertEqual(images[f"f300000.{direction}.2"], changed)
            self.assertEqual(images[f"f10000.{direction}.2"], content(10000)[:5555])
            self.assertEqual(images[f"odirect.{direction}.1"], content(300000))
        self.assertEqual(sum(name.startswith("name-") for name in images), 200)
        self.assertEqual(sum(entry["type"] == "call" for entry in index), rpcs)
        self.assertEqual(sum(entry["type"] == "reply" for entry in index), rpcs)
        renamed = next(entry for entry in index if entry["path"].endswith("f3000.written.1"))
        self.assertEqual(renamed["names"], ["f3000", "f3000-renamed"])
        linked = next(entry for entry in index if entry["path"].endswith("f100.written.1"))
        self.assertIn("f100-hard", linked["names"])

    def test_version_3_over_roce(self):
        self.check("nfs3_rxe", 1163)

    def test_version_4_over_iwarp(self):
        self.check("nfs4_siw", 843)

    def test_all_names_of_the_directory(self):
        for capture in ("nfs3_rxe", "nfs4_siw"):
            done = dissect("--json", "--rpc", f"{capture}.pcap.zst")
            names = set()
            for line in done.stdout.splitlines():
                for operation in json.loads(line).get("nfs", {}).get("operations", ()):
                    names.update(operation.get("entries", ()))
            for number in range(1, 201):
                self.assertIn(f"name-{number:03}-of-two-hundred", names)


class Endless(unittest.TestCase):
    """Files that grow, and interfaces: until Ctrl-C, which ends the reading and not the program."""

    def start(self, *arguments):
        process = subprocess.Popen([libraries.WEFT, "dissect", *map(str, arguments)], text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_follows_a_file_that_grows(self):
        zstd = libraries.needs("zstd")
        whole = subprocess.run([zstd, "-dc", CAPTURES / "rxe_sizes.pcap.zst"], check=True,
                               stdout=subprocess.PIPE).stdout
        everything = dissect("--json", "--operations", "rxe_sizes.pcap.zst").stdout.splitlines()
        with tempfile.TemporaryDirectory() as folder:
            growing = pathlib.Path(folder) / "growing.pcap"
            growing.write_bytes(whole[:len(whole) // 3])
            process = self.start("--follow", "--json", "--operations", growing)
            lines = [process.stdout.readline()]  # while it grows
            self.assertEqual(json.loads(lines[0])["operation"], 1)
            with growing.open("ab") as file:
                file.write(whole[len(whole) // 3:])
            while len(lines) < len(everything):
                lines.append(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            rest, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual("".join(lines).splitlines() + rest.splitlines(), everything)

    def test_ctrl_c_prints_the_summary(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            process = self.start("--follow", pipe)
            with pipe.open("wb"):  # somebody reads it now
                process.send_signal(signal.SIGINT)
                out, said = process.communicate(timeout=60)
        self.assertIn(process.returncode, (0, 2), said)
        self.assertIn("pipe", out + said)

    def test_captures_live(self):
        """Datagrams to RoCE's port on the loopback interface."""
        before = self.packet_sockets()
        process = self.start("--live", "lo", "--bpf", "udp port 4791", "--json", "--operations")
        while self.packet_sockets() == before:
            if process.poll() is not None:
                said = process.stderr.read()
                self.assertEqual(process.returncode, 2)
                self.assertRegex(said, "cannot capture on lo|libpcap")
                self.skipTest(said.strip())
            os.sched_yield()
        # UD Send Only with four bytes; the ICRC is not computed here.
        bth = bytes([0x64, 0x00, 0xFF, 0xFF, 0, 0, 0, 0x22, 0, 0, 0, 7])
        deth = bytes([0, 0, 0, 1, 0, 0, 0, 0x11])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            seen = []
            reader = threading.Thread(target=lambda: seen.append(process.stdout.readline()))
            reader.start()
            while reader.is_alive():
                sender.sendto(bth + deth + b"live" + bytes(4), ("127.0.0.1", 4791))
                reader.join(0.05)
        operation = json.loads(seen[0])
        self.assertEqual((operation["kind"], operation["bytes"]), ("send", 4))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    @staticmethod
    def packet_sockets():
        try:
            return len(pathlib.Path("/proc/net/packet").read_text().splitlines())
        except OSError as error:
            raise unittest.SkipTest(str(error)) from error


if __name__ == "__main__":
    if "--rewrite" in sys.argv:
        sys.argv.remove("--rewrite")
        rewrite = True
    sys.exit(libraries.main())
