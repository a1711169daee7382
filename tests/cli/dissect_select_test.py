"""`weft dissect --filter` and `--export-pcap`: what they select of stored captures, in each form of
output, and what tshark reads in the packets that were written."""

import csv
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "dropin"))
import libraries  # pylint: disable=wrong-import-position

CAPTURES = TESTS / "data" / "capture"


def dissect(*arguments):
    return libraries.run(libraries.WEFT, "dissect", *map(str, arguments), cwd=CAPTURES,
                         env=dict(os.environ))


def lines(*arguments):
    done = dissect("--json", *arguments)
    if done.returncode not in (0, 1):
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Filters(unittest.TestCase):
    """What is selected is compared with the same condition on the fields of the JSON output."""

    def check(self, capture, option, expression, condition):
        every = lines(option, capture)
        some = lines(option, "--filter", expression, capture)
        wanted = [one for one in every if condition(one)]
        ids = {"--rpc": "rpc", "--operations": "operation", "--findings": "sentence"}
        key = ids[option]
        if option == "--rpc":  # numbered among those that are shown
            for number, one in enumerate(wanted, 1):
                one["rpc"] = number
        self.assertEqual([one[key] for one in some], [one[key] for one in wanted])
        self.assertEqual(some, wanted)
        self.assertTrue(0 < len(some) < len(every), (len(some), len(every)))

    def test_rpcs(self):
        def writes(one):
            return any(op["name"] == "WRITE" for op in one.get("nfs", {}).get("operations", ()))
        self.check("nfs4_siw.pcap.zst", "--rpc",
                   'rpc.latency > 10ms && rpc.procedure == "WRITE" && peer == 10.0.0.0/8',
                   lambda one: one.get("latency_ns", 0) > 10 ** 7 and writes(one))
        self.check("nfs3_rxe.pcap.zst", "--rpc", "rpc.status != OK",
                   lambda one: one["status"] != "OK")
        self.check("nfs3_rxe.pcap.zst", "--rpc", "nfs.name == f3000",
                   lambda one: any("f3000" in (op.get("entry"),
                                               op["name"] == "RENAME" and op.get("target"))
                                   for op in one.get("nfs", {}).get("operations", ())))

    def test_operations(self):
        self.check("rxe_sizes.pcap.zst", "--operations",
                   "operation.kind in {write, read} && operation.bytes >= 10kB",
                   lambda one: one["kind"] in ("write", "read") and one["bytes"] >= 10000)
        self.check("rxe_sizes.pcap.zst", "--operations", "qp == 0x18 || connection == 1",
                   lambda one: one["connection"] in self.with_qp("rxe_sizes.pcap.zst", 24) | {1})
        self.check("rxe_sizes.pcap.zst", "--operations", "frame > 100 and not frame >= 300",
                   lambda one: 100 < one["start_frame"] < 300)

    @staticmethod
    def with_qp(capture, number):
        return {one["connection"] for one in lines("--connections", capture)
                if number in (one["a"].get("qp"), one["b"].get("qp"))}

    def test_findings_and_the_exit_status(self):
        self.check("rxe_errors.pcap.zst", "--findings", "finding.kind == refused",
                   lambda one: one["kind"] == "refused")
        self.assertEqual(dissect("--filter", "finding.kind == refused",
                                 "rxe_errors.pcap.zst").returncode, 1)
        self.assertEqual(dissect("--filter", "finding.kind == no-such-kind",
                                 "rxe_errors.pcap.zst").returncode, 0)

    def test_connections_are_shown_of_which_something_is_selected(self):
        capture = "rxe_sizes.pcap.zst"
        large = {one["connection"] for one in lines("--operations", capture)
                 if one["bytes"] > 20000}
        shown = lines("--connections", "--filter", "operation.bytes > 20kB", capture)
        self.assertEqual({one["connection"] for one in shown}, large)
        self.assertTrue(large)
        # The connection itself matches, and none of its operations.
        shown = lines("--connections", "--filter", "connection == 2 && connection.end", capture)
        self.assertEqual([one["connection"] for one in shown], [2])

    def test_each_form_of_output(self):
        options = ("--filter", "rpc.latency > 10ms", "nfs4_siw.pcap.zst")
        count = len(lines("--rpc", *options))
        self.assertGreater(count, 0)
        self.assertEqual(len(dissect("--rpc", *options).stdout.splitlines()), count + 1)
        rows = list(csv.reader(io.StringIO(dissect("--rpc", "--csv", *options).stdout)))
        self.assertEqual(len(rows), count + 1)
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            done = dissect("--html", out / "page.html", "--extract", out / "files", *options)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            index = json.loads((out / "files" / "index.json").read_text())
            self.assertEqual(sum(one["type"] == "call" for one in index), count)
            page = (out / "page.html").read_text()
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))
        self.assertEqual(len(data["connections"]), 1)

    def test_messages_are_extracted_by_what_is_known_of_them(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "files"
            dissect("--extract", out, "--filter",
                    "operation.kind == write && operation.bytes > 10kB", "rxe_sizes.pcap.zst")
            index = json.loads((out / "index.json").read_text())
        wanted = [one for one in lines("--operations", "rxe_sizes.pcap.zst")
                  if one["kind"] == "write" and one["bytes"] > 10000]
        self.assertEqual(len(index), len(wanted))
        self.assertTrue(wanted)

    def test_mistakes_point_at_the_place(self):
        done = dissect("--filter", "peer == 10.0.0.7 && rpc.latancy > 10ms", "no-such-file")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "weft: dissect: --filter: 'rpc.latancy' is not a field; did "
                                      "you mean rpc.latency?\n"
                                      "peer == 10.0.0.7 && rpc.latancy > 10ms\n"
                                      "                    ^~~~~~~~~~~\n")

    def test_each_field_is_documented(self):
        fields = set(re.findall(r"^  ([a-z_.]+)$", libraries.run(
            libraries.WEFT, "help", "filters").stdout.split("Fields,")[1], re.MULTILINE))
        self.assertGreater(len(fields), 30)
        page = (TESTS.parent / "docs" / "dissect.md").read_text()
        table = page.split("| field | type |")[1].split("\n\n")[0]
        self.assertEqual(set(re.findall(r"^\| `([a-z_.]+)` \|", table, re.MULTILINE)), fields)


class Exports(unittest.TestCase):
    """The packets of what is selected. tshark reads them, and the original."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.pcapng"

    def export(self, *arguments):
        done = dissect("--export-pcap", self.out, *arguments)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done

    def unpacked(self, capture):
        path = self.folder / f"{capture}.pcap"
        with path.open("wb") as file:
            subprocess.run([libraries.needs("zstd"), "-dc", CAPTURES / f"{capture}.pcap.zst"],
                           check=True, stdout=file)
        return path

    def packets(self, path, *fields):
        """One list of fields for each packet, as tshark shows them."""
        options = [word for field in fields for word in ("-e", field)]
        done = libraries.run(libraries.needs("tshark"), "-n", "-r", path, "-T", "fields", *options,
                             env={**os.environ, "HOME": str(self.folder), "TZ": "UTC"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split("\t") for line in done.stdout.splitlines()]

    # Bytes, times and lengths of a packet.
    SAME = ("frame.time_epoch", "frame.len", "frame.cap_len", "frame.encap_type", "frame.protocols")

    def check_packets(self, capture):
        """Each packet is the one of the original that its comment names. Returns the numbers."""
        original = self.packets(self.unpacked(capture), *self.SAME)
        exported = self.packets(self.out, "frame.comment", *self.SAME)
        numbers = []
        for comment, *rest in exported:
            number = int(re.fullmatch(r"frame (\d+)", comment).group(1))
            numbers.append(number)
            # The protocols depend on packets before, which may be left out.
            self.assertEqual(rest[:-1], original[number - 1][:-1])
        self.assertEqual(numbers, sorted(set(numbers)))
        return numbers

    def test_everything_that_is_rdma(self):
        for capture in ("nfs4_siw", "rxe_errors"):
            done = self.export(f"{capture}.pcap.zst")
            numbers = self.check_packets(capture)
            self.assertIn(f"{len(numbers)} packets written", done.stderr)
            wanted = sum(one["frames"] for one in lines("--connections", f"{capture}.pcap.zst"))
            self.assertGreaterEqual(len(numbers), wanted)
            # The same operations and RPCs, apart from the numbers of frames.
            self.assertEqual(*(self.without_frames(path)
                               for path in (self.out, f"{capture}.pcap.zst")))

    @staticmethod
    def without_frames(path):
        def strip(value):
            if isinstance(value, dict):
                return {name: strip(one) for name, one in value.items() if "frame" not in name}
            return value
        return [strip(one) for one in lines("--operations", "--rpc", path)]

    def test_selected_rpcs(self):
        expression = "rpc.latency > 20ms && rpc.procedure == WRITE"
        wanted = lines("--rpc", "--filter", expression, "nfs4_siw.pcap.zst")
        self.export("--filter", expression, "nfs4_siw.pcap.zst")
        numbers = self.check_packets("nfs4_siw")
        for one in wanted:
            self.assertIn(one["call"]["frame"], numbers)
            self.assertIn(one["reply"]["frame"], numbers)
        self.assertLess(len(numbers), len(self.packets(self.unpacked("nfs4_siw"), "frame.len")) / 2)
        # With the handshake in the file, tshark finds the protocols too.
        layers = " ".join(row[0] for row in self.packets(self.out, "frame.protocols"))
        self.assertIn("iwarp_ddp_rdmap", layers)
        again = {(one["xid"], one.get("latency_ns")) for one in lines("--rpc", self.out)}
        self.assertLessEqual({(one["xid"], one["latency_ns"]) for one in wanted}, again)
        self.assertTrue(wanted)

    def test_selected_operations_and_findings(self):
        self.export("--opcode", "read", "rxe_sizes.pcap.zst")
        numbers = set(self.check_packets("rxe_sizes"))
        reads = lines("--operations", "--opcode", "read", "rxe_sizes.pcap.zst")
        self.assertLessEqual({one[name] for one in reads for name in ("start_frame", "end_frame")},
                             numbers)
        self.export("--filter", "finding.kind == refused", "rxe_errors.pcap.zst")
        numbers = set(self.check_packets("rxe_errors"))
        found = lines("--findings", "--filter", "finding.kind == refused", "rxe_errors.pcap.zst")
        self.assertLessEqual({frame for one in found for frame in one["frames"]}, numbers)
        self.assertTrue(reads and found)

    def test_one_connection(self):
        self.export("--connection", "2", "rxe_sizes.pcap.zst")
        numbers = self.check_packets("rxe_sizes")
        two = lines("--connections", "--connection", "2", "rxe_sizes.pcap.zst")[0]
        self.assertGreaterEqual(min(numbers), two["first_frame"])
        self.assertLessEqual(max(numbers), two["last_frame"])
        self.assertEqual([one["b"] for one in lines("--connections", self.out)], [two["b"]])

    def test_several_files_keep_their_link_types(self):
        # The frames of the first capture without their Ethernet headers: of the link type IPv4.
        first = self.unpacked("rxe_rping")
        whole = first.read_bytes()
        raw, at = bytearray(whole[:20] + (228).to_bytes(4, "little")), 24
        while at < len(whole):
            size, wire = struct.unpack_from("<II", whole, at + 8)
            frame = whole[at + 16:at + 16 + size]
            if frame[12:14] == b"\x08\x00":
                raw += whole[at:at + 8] + struct.pack("<II", size - 14, wire - 14) + frame[14:]
            at += 16 + size
        first.write_bytes(raw)
        files = (first, CAPTURES / "siw_rping.pcap.zst")
        self.export(*files)
        kinds = {one for one, in self.packets(self.out, "frame.encap_type")}
        self.assertEqual(kinds, {"1", "129"})
        both = [one for file in files for one in lines("--connections", file)]
        self.assertEqual(sorted(one["frames"] for one in lines("--connections", self.out)),
                         sorted(one["frames"] for one in both))

    def test_what_cannot_be_read_twice_or_would_be_lost(self):
        file = self.unpacked("rxe_rping")
        before = file.read_bytes()
        for arguments, sentence in (((file, "--export-pcap", file), "overwrite its input"),
                                    (("-", "--export-pcap", self.out), "reads its input twice"),
                                    ((file, "--follow", "--export-pcap", self.out), "excludes")):
            done = dissect(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(sentence, done.stderr)
        self.assertEqual(file.read_bytes(), before)
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    sys.exit(libraries.main())
