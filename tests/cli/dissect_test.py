"""`weft dissect` on the stored captures: what it prints is compared byte for byte with what is
stored beside them, and the NFS files that it extracts with what the programs wrote and read.

    tests/cli/dissect_test.py --rewrite --build build/dev

stores what it prints now: read the difference, then commit.
"""

import contextlib
import csv
import difflib
import gzip
import hashlib
import io
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
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
# Of captures of storage protocols also these.
OUTPUTS_OF_STORAGE = {
    "{}.commands.txt": ("--commands",),
    "{}.commands.json": ("--json", "--commands"),
}
STORAGE = ("iser_rxe", "nvme_rxe", "smb_rxe", "srp_rxe")
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


def fields_of(value):
    """The names in a JSON value: but not those that are counted, of which there are many."""
    if isinstance(value, list):
        for one in value:
            yield from fields_of(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            if name not in ("violations", "messages"):
                yield from fields_of(one)


class Golden(unittest.TestCase):
    maxDiff = None

    def test_every_capture(self):
        self.assertGreaterEqual(len(captures()), 23)
        for capture in captures():
            more = OUTPUTS_OF_STORAGE if capture in STORAGE else {}
            for pattern, options in (OUTPUTS | more).items():
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

    def test_every_field_is_documented(self):
        page = (TESTS.parent / "docs" / "dissect.md").read_text()
        documented = set(re.findall(r"`([a-z0-9_]+)`", page))
        for path in sorted(GOLDEN.glob("*.json*")):
            for line in stored(path).splitlines():
                self.assertLessEqual(set(fields_of(json.loads(line))), documented, path.name)

    def test_json_is_json_with_a_type_in_each_line(self):
        for capture in captures():
            for line in stored(GOLDEN / f"{capture}.lists.json.gz").splitlines():
                self.assertIn(json.loads(line)["type"], ("operation", "rpc", "finding"))


def tshark_fields(capture, select, *names):
    """For each frame the values of the fields, each a list: a frame may have several."""
    options = [word for name in names for word in ("-e", name)]
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder) / "plain.pcap"
        with plain.open("wb") as out:
            subprocess.run(["zstd", "-dc", CAPTURES / capture], stdout=out, check=True)
        done = subprocess.run(["tshark", "-r", plain, "-Y", select, "-T", "fields",
                               "-E", "separator=;", "-e", "frame.number", *options],
                              capture_output=True, text=True, check=True)
    rows = [line.split(";") for line in done.stdout.splitlines()]
    return {int(row[0]): [one.split(",") for one in row[1:]] for row in rows}


@unittest.skipUnless(shutil.which("tshark"), "tshark is not installed")
class NfsAgainstTshark(unittest.TestCase):
    def test_sessions_and_slots(self):
        seen = tshark_fields("nfs4_siw.pcap.zst", "nfs.slotid && rpc.msgtyp == 0",
                             "nfs.seqid", "nfs.slotid", "nfs.high_slotid")
        # Later sequence numbers of a frame are those of stateids.
        theirs = sorted((int(sequence[0], 16), int(slot[0]), int(highest[0]))
                        for sequence, slot, highest in seen.values())
        listed = dissect("--json", "--rpc", "nfs4_siw.pcap.zst").stdout.splitlines()
        sessions = [session for line in listed
                    if (session := json.loads(line).get("nfs", {}).get("session"))]
        self.assertGreater(len(sessions), 800)
        self.assertEqual(theirs, sorted((one["sequence"], one["slot"], one["highest_slot"])
                                        for one in sessions))
        self.assertEqual(len({one["id"] for one in sessions}), 1)
        slots = dissect("--json", "--rpc", "--filter", "nfs.slot > 0", "nfs4_siw.pcap.zst")
        self.assertEqual(len(slots.stdout.splitlines()), sum(one["slot"] > 0 for one in sessions))


@unittest.skipUnless(shutil.which("tshark"), "tshark is not installed")
class StorageAgainstTshark(unittest.TestCase):
    """Wireshark decodes the same commands, by code that shares nothing with ours."""

    def commands(self, capture):
        return [json.loads(line)
                for line in dissect("--json", "--commands", capture).stdout.splitlines()]

    def test_smb(self):
        seen = tshark_fields("smb_rxe.pcap.zst", "smb2", "smb2.msg_id", "smb2.nt_status")
        asked, answered = set(), set()
        for numbers, statuses in seen.values():
            # Requests have no status, answers have one for each message.
            if statuses == [""]:
                asked |= {int(number) for number in numbers}
            else:
                answered |= {(int(number), int(status, 16))
                             for number, status in zip(numbers, statuses, strict=True)}
        ours = self.commands("smb_rxe.pcap.zst")
        self.assertGreater(len(ours), 100)
        self.assertEqual(asked, {int(one["id"], 16) for one in ours})
        self.assertEqual(answered,
                         {(int(one["id"], 16), int(one["status_code"], 16)) for one in ours})

    def test_nvme(self):
        seen = tshark_fields("nvme_rxe.pcap.zst", "nvme.cmd.slba", "nvme.cmd.cid",
                           "nvme.cmd.slba", "nvme.cmd.nlb", "nvme.cmd.sgl1.key")
        theirs = {(frame, int(number[0], 16), int(block[0], 0), int(blocks[0], 0),
                   int(key[0], 16))
                  for frame, (number, block, blocks, key) in seen.items() if key != [""]}
        ours = {(one["frame"], int(one["id"], 16), one["block"], one["blocks"],
                 int(one["keys"][0], 16))
                for one in self.commands("nvme_rxe.pcap.zst") if "block" in one and one["keys"]}
        self.assertGreater(len(ours), 20)
        self.assertEqual(theirs, ours)

    def test_iser(self):
        answers = tshark_fields("iser_rxe.pcap.zst", "iscsi.opcode == 0x21",
                              "iscsi.initiatortasktag", "iscsi.scsiresponse.status")
        theirs = {(frame, int(tag[0], 16), int(status[0], 16))
                  for frame, (tag, status) in answers.items()}
        ours = {(one["answer_frame"], int(one["id"], 16), int(one["status_code"], 16))
                for one in self.commands("iser_rxe.pcap.zst") if "unit" in one}
        self.assertGreater(len(ours), 30)
        self.assertEqual(theirs, ours)


@unittest.skipUnless(shutil.which("tshark"), "tshark is not installed")
class ManagementAgainstTshark(unittest.TestCase):
    """The fields of the connection manager's messages, in each capture that has some."""

    # Of each message: our field, that of Wireshark. Wireshark 4.0 shows 12 of the 20 bits of flow
    # labels, so these are not compared.
    FIELDS = {
        "REQ": ("infiniband.cm.req", {
            "service_id": "serviceid", "local_ca_guid": "localcaguid", "local_q_key": "localqkey",
            "local_qp": "localqpn", "responder_resources": "responderres",
            "initiator_depth": "initdepth", "starting_psn": "startpsn",
            "retry_count": "retrcount", "p_key": "pkey", "rnr_retry_count": "rnrretrcount",
            "max_cm_retries": "maxcmretr", "primary_local_lid": "prim_locallid",
            "primary_remote_lid": "prim_remotelid",
            "primary_traffic_class": "prim_tfcclass", "primary_hop_limit": "prim_hoplim",
            "primary_sl": "prim_sl", "source_port": "ip_cm.sport"}),
        "REP": ("infiniband.cm.rep", {
            "remote_id": "remotecommid", "local_q_key": "localqkey", "local_qp": "localqpn",
            "starting_psn": "startpsn", "responder_resources": "respres",
            "initiator_depth": "initdepth", "rnr_retry_count": "rnrretrcount",
            "local_ca_guid": "localcaguid"}),
        "RTU": ("infiniband.cm.rtu", {"local_id": "localcommid", "remote_id": "remotecommid"}),
        "DREP": ("infiniband.cm.drsp", {"local_id": "localcommid", "remote_id": "remotecommid"}),
    }

    @staticmethod
    def number(text):
        return int(text, 16) if text.startswith("0x") else int(text)

    def test_each_field(self):
        seen = set()
        for capture in ("smb_rxe.pcap.zst", "nvme_rxe.pcap.zst", "rxe_errors.pcap.zst"):
            ours = [json.loads(line)
                    for line in dissect("--json", "--management", capture).stdout.splitlines()]
            for attribute, (prefix, names) in self.FIELDS.items():
                mine = {one["frame"]: [self.number(one["fields"][name]) for name in names]
                        for one in ours if one["attribute"] == attribute}
                paths = [f"{prefix}.{name}" for name in names.values()]
                theirs = {frame: [self.number(value[0]) for value in row]
                          for frame, row in tshark_fields(capture, paths[0], *paths).items()}
                self.assertEqual(mine, theirs, (capture, attribute))
                if mine:
                    seen.add(attribute)
        self.assertEqual(seen, set(self.FIELDS))

    def test_reasons_of_a_reject(self):
        ours = [json.loads(line) for line in
                dissect("--json", "--management", "--filter", "management.attribute == REJ",
                        "smb_rxe.pcap.zst").stdout.splitlines()]
        theirs = tshark_fields("smb_rxe.pcap.zst", "infiniband.cm.rej.reason",
                               "infiniband.cm.rej.reason")
        self.assertEqual([one["frame"] for one in ours], list(theirs))
        self.assertEqual(ours[0]["fields"]["reason"], "invalid service ID")
        self.assertEqual(self.number(next(iter(theirs.values()))[0][0]), 8)


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

    def test_is_2_where_a_connection_does_not_exist(self):
        self.assertEqual(dissect("--connection", "11", "rxe_sizes.pcap.zst").returncode, 0)
        for number in ("0", "12"):
            done = dissect("--connection", number, "rxe_sizes.pcap.zst")
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stderr, "weft: --connection: rxe_sizes.pcap.zst has no "
                                          f"connection {number}: it has 11\n")

    def test_is_2_where_the_library_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            copy, beside = libraries.copied_program(folder)
            for text in ("libweft-dissect.so, which holds the command dissect, is not beside this",
                         "cannot load libweft-dissect.so: "):
                done = libraries.run(copy, "dissect", "-")
                self.assertEqual(done.returncode, 2)
                self.assertIn(text, done.stderr)
                (beside / "libweft-dissect.so").touch()

    def test_is_2_where_options_contradict_one_another(self):
        for options in (("--time", "5..1", "rxe_rping.pcap.zst"), ("--live", "lo", "--separate")):
            done = dissect(*options)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn(options[0], done.stderr)

    def test_is_2_where_the_output_cannot_be_written(self):
        for options in ((), ("--json", "--operations")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([libraries.WEFT, "dissect", *options, "rxe_rping.pcap.zst"],
                                      stdout=full, stderr=subprocess.PIPE, cwd=CAPTURES, timeout=60,
                                      check=False)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn(b"No space left", done.stderr)

    def test_who_has_read_enough_is_no_failure(self):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as closed:
            done = subprocess.run([libraries.WEFT, "dissect", "rxe_rping.pcap.zst"], stdout=closed,
                                  stderr=subprocess.PIPE, cwd=CAPTURES, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))


class Files(unittest.TestCase):
    """What may be given, and what comes of it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        packed = (CAPTURES / "rxe_sizes.pcap.zst").read_bytes()
        self.whole = subprocess.run([libraries.needs("zstd"), "-dc"], check=True, input=packed,
                                    stdout=subprocess.PIPE).stdout
        self.wanted = dissect("--json", "--operations", "rxe_sizes.pcap.zst").stdout

    def operations(self, *arguments, **options):
        done = subprocess.run([libraries.WEFT, "dissect", "--json", "--operations",
                               *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60, check=False, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def parts(self, count):
        """The capture as a tool that rotates its files leaves it."""
        header, at, packets = self.whole[:24], 24, []
        while at < len(self.whole):
            size = 16 + struct.unpack_from("<I", self.whole, at + 8)[0]
            packets.append(self.whole[at:at + size])
            at += size
        share = len(packets) // count + 1
        names = []
        for number in range(count):
            names.append(self.folder / f"part{number}.pcap")
            names[-1].write_bytes(header + b"".join(packets[number * share:(number + 1) * share]))
        return names

    def test_standard_input(self):
        self.assertEqual(self.operations("-", input=self.whole), self.wanted)

    def test_gzip(self):
        (self.folder / "x.pcap.gz").write_bytes(gzip.compress(self.whole))
        self.assertEqual(self.operations(self.folder / "x.pcap.gz"), self.wanted)

    def converted(self, kind):
        libraries.needs("editcap")
        source, path = self.folder / "x.pcap", self.folder / f"x.{kind}"
        source.write_bytes(self.whole)
        done = libraries.run("editcap", "-F", kind, source, path)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def erf(self):
        """The capture as a card of Endace writes it, which editcap cannot."""
        records, at = b"", 24
        while at < len(self.whole):
            seconds, micros, size, wire = struct.unpack_from("<IIII", self.whole, at)
            packet = self.whole[at + 16:at + 16 + size]
            at += 16 + size
            # Varying length; an Ethernet record has two bytes of padding, and a check sequence.
            padded = packet + bytes(-(18 + size) % 8)
            records += struct.pack("<II", (micros << 32) // 10 ** 6, seconds)
            records += struct.pack(">BBHHH", 2, 4, 18 + len(padded), 0, wire + 4)
            records += bytes(2) + padded
        path = self.folder / "x.erf"
        path.write_bytes(records)
        return path

    def test_erf_as_other_programs_read_it(self):
        libraries.needs("tshark")
        self.assertEqual(*(libraries.run(
            "tshark", "-n", "-r", path, "-T", "fields", "-e", "ip.src", "-e", "ip.len",
            env={**os.environ, "HOME": str(self.folder)}).stdout
            for path in (self.erf(), CAPTURES / "rxe_sizes.pcap.zst")))

    def test_snoop_and_erf(self):
        for path in (self.converted("snoop"), self.erf()):
            self.assertEqual(self.operations(path), self.wanted)
            self.assertEqual(self.operations("-", input=path.read_bytes()), self.wanted)
            path.write_bytes(path.read_bytes()[:-7])
            cut = dissect("--json", "--operations", path)
            self.assertIn("in the middle of a packet", cut.stderr)
            self.assertTrue(self.wanted.startswith(cut.stdout.splitlines()[0]))

    def test_network_monitor(self):
        path = self.converted("netmon2")
        self.assertEqual(self.operations(path), self.wanted)
        self.assertEqual(self.operations("-", input=path.read_bytes()), self.wanted)
        whole = path.read_bytes()
        path.write_bytes(whole[:len(whole) // 2])
        self.assertIn("ends before its table of packets", dissect("--json", path).stderr)
        damaged = bytearray(whole)
        damaged[128 + 12:128 + 16] = b"\xff\xff\xff\x00"  # the length of the first packet
        path.write_bytes(damaged)
        self.assertIn("damaged at byte 128", dissect("--json", path).stderr)
        # The times of version 1 are milliseconds.
        self.assertEqual(*([json.loads(line)["bytes"] for line in text.splitlines()]
                           for text in (self.operations(self.converted("netmon1")), self.wanted)))

    def test_other_formats_are_named_with_the_command_that_converts_them(self):
        for kind, name in (("ngwsniffer_2_0", "Sniffer (Windows) or NetXray"),
                           ("ngsniffer", "Sniffer (DOS)")):
            path = self.converted(kind)
            done = dissect(path)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"is of the format {name}, which is not read; `editcap {path} "
                          f"{path}.pcapng` converts it", done.stderr)
            # The command is right.
            again = f"{path}.pcapng"
            self.assertEqual(libraries.run("editcap", path, again).returncode, 0)
            self.assertEqual(dissect(again).returncode, 0)
        for kind, name in (("modpcap", "modified pcap"), ("visual", "Visual Networks"),
                           ("5views", "Accellent 5Views"), ("lanalyzer", "Novell LANalyzer"),
                           ("k12text", "K12 text")):
            self.assertIn(f"is of the format {name}, which is not read; `editcap ",
                          dissect(self.converted(kind)).stderr)
        text = self.folder / "notes.txt"
        text.write_text("This is no capture, but a text that is longer than a header.\n" * 20)
        done = dissect(text)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is of no format that is read", done.stderr)

    def test_archives_are_named_with_the_command_that_unpacks_them(self):
        libraries.needs("xz")
        plain = self.converted("nsecpcap").read_bytes()
        path = self.folder / "old.lzma"
        path.write_bytes(subprocess.run(["xz", "--format=lzma", "-c"], input=plain, check=True,
                                        stdout=subprocess.PIPE).stdout)
        said = dissect(path).stderr
        self.assertIn(f"is of the format LZMA alone, which is not read; `xz -dc {path} | weft "
                      "dissect -` reads it", said)
        # The command is right.
        unpacked = subprocess.run(["xz", "-dc", path], check=True, stdout=subprocess.PIPE).stdout
        self.assertEqual(self.operations("-", input=unpacked), self.wanted)

    def test_a_packed_file_without_a_whole_block_is_not_empty(self):
        """Blocks of bzip2 are larger than the capture; their checksums come behind them."""
        libraries.needs("bzip2")
        plain = self.converted("nsecpcap").read_bytes()
        packed = subprocess.run(["bzip2", "-c"], input=plain, check=True,
                                stdout=subprocess.PIPE).stdout
        path = self.folder / "packed.bz2"
        path.write_bytes(packed[:len(packed) // 2])
        self.assertIn("its compressed data ends before the first packet", dissect(path).stderr)
        damaged = bytearray(packed)
        damaged[len(damaged) // 2] ^= 0x55
        path.write_bytes(damaged)
        self.assertIn("the bzip2 data is damaged", dissect(path).stderr)
        path.write_bytes(b"")
        self.assertIn("is empty", dissect(path).stderr)

    def test_files_that_match_a_pattern(self):
        self.parts(7)
        self.assertEqual(self.operations("--glob", self.folder / "part[0-9].pcap"), self.wanted)
        self.assertEqual(self.operations("--glob", self.folder / "part[0-3].pcap",
                                         "--glob", self.folder / "part[4-6].pcap"), self.wanted)
        # A file is read once, also if it is named as well or matches twice.
        self.assertEqual(self.operations(self.folder / "part2.pcap", "--glob",
                                         self.folder / "part[0-4].pcap", "--glob",
                                         self.folder / "." / "part[0-6].pcap"), self.wanted)
        self.assertEqual(self.operations("--glob", self.folder / "part[0-3].pcap",
                                         *(self.folder / f"part{part}.pcap" for part in (4, 5, 6))),
                         self.wanted)
        done = dissect("--glob", self.folder / "*.none")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no file matches", done.stderr)

    def test_files_come_behind_the_offset_of_a_clock(self):
        names = self.parts(2)
        self.assertEqual(self.operations("--clock-offset", f"{names[0]}=0", *names), self.wanted)

    def test_several_are_one_trace_whatever_their_order(self):
        for count in (2, 7):
            names = self.parts(count)
            self.assertEqual(self.operations(*names), self.wanted)
            self.assertEqual(self.operations(*reversed(names)), self.wanted)

    def test_or_each_for_itself(self):
        name = self.folder / "x.pcap"
        name.write_bytes(self.whole)
        self.assertEqual(self.operations("--separate", name, name), 2 * self.wanted)

    def test_one_that_cannot_be_read_does_not_keep_the_others(self):
        name = self.folder / "x.pcap"
        name.write_bytes(self.whole)
        done = dissect("--json", "--operations", "--separate", "no-such-file", name)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, self.wanted)
        self.assertIn("no-such-file", done.stderr)

    def test_a_bar_shows_how_far_a_long_file_is(self):
        """On a terminal, where it takes longer than a moment: here until it is shown."""
        terminal, stderr = os.openpty()
        with subprocess.Popen([libraries.WEFT, "dissect", "-"], stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=stderr) as weft:
            os.close(stderr)
            os.set_blocking(terminal, False)
            shown = b""
            weft.stdin.write(self.whole)
            while b"MB/s" not in shown:
                weft.stdin.write(self.whole[24:])
                with contextlib.suppress(BlockingIOError):
                    shown += os.read(terminal, 4096)
            weft.stdin.close()
            weft.wait()
        os.close(terminal)
        self.assertRegex(shown, rb"\d+ MB, \d+ MB/s")

    def test_what_is_cut_is_said(self):
        name = self.folder / "cut.pcap"
        name.write_bytes(self.whole[:-7])
        done = dissect(name)
        self.assertRegex(done.stdout + done.stderr, "(?i)ends in the middle|cut|truncated|in part")

    def test_what_is_no_capture_is_said(self):
        name = self.folder / "text.pcap"
        name.write_text("no capture\n" * 100)
        done = dissect(name)
        self.assertEqual(done.returncode, 2)
        self.assertIn("text.pcap", done.stderr)


class Tables(unittest.TestCase):
    """CSV has a row for each object that JSON has."""

    def rows(self, option, capture):
        done = dissect("--csv", option, capture)
        return list(csv.DictReader(io.StringIO(done.stdout, newline="")))

    def objects(self, option, capture):
        return [json.loads(line) for line in dissect("--json", option, capture).stdout.splitlines()]

    def check(self, option, capture, *fields):
        rows, objects = self.rows(option, capture), self.objects(option, capture)
        self.assertGreater(len(rows), 0)
        self.assertEqual(len(rows), len(objects))
        for row, one in zip(rows, objects):
            self.assertEqual([row[field] for field in fields],
                             [str(one[field]) for field in fields])

    def test_operations(self):
        self.check("--operations", "rxe_errors.pcap.zst", "operation", "connection", "side", "kind",
                   "outcome", "bytes", "start_frame", "start_ns", "end_ns")

    def test_rpcs(self):
        self.check("--rpc", "nfs4_siw.pcap.zst", "connection", "caller", "latency_ns",
                   "retransmissions")

    def test_findings(self):
        self.check("--findings", "rxe_loss_in.pcap.zst", "connection", "kind", "sentence")
        rows = self.rows("--findings", "rxe_loss_in.pcap.zst")
        objects = self.objects("--findings", "rxe_loss_in.pcap.zst")
        for row, one in zip(rows, objects):
            self.assertEqual(row["frame"], str(one["frames"][0]))
            self.assertEqual(row["ns"], str(one["times_ns"][0]))

    def test_connections(self):
        self.check("--connections", "rxe_sizes.pcap.zst", "connection", "end", "frames", "first_ns",
                   "last_ns")


# They carry no message that could be extracted.
ATOMICS = ("compare_swap", "fetch_add")


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

    def test_by_connection(self):
        every = self.lines("--operations", "rxe_sizes.pcap.zst")
        third = self.lines("--operations", "--connection", "3", "rxe_sizes.pcap.zst")
        self.assertEqual(third, [one for one in every if one["connection"] == 3])
        self.assertTrue(third)

    def test_by_opcode(self):
        every = self.lines("--operations", "rxe_sizes.pcap.zst")
        for kind in ("send", "write", "read"):
            some = self.lines("--operations", "--opcode", kind, "rxe_sizes.pcap.zst")
            self.assertEqual(some, [one for one in every if one["kind"] == kind])
            self.assertTrue(some)

    def test_numbers_are_decimal_or_hexadecimal(self):
        self.assertEqual(self.lines("--operations", "--qp", "0x18", "rxe_sizes.pcap.zst"),
                         self.lines("--operations", "--qp", "24", "rxe_sizes.pcap.zst"))

    def halves(self, option, capture, cut_ns):
        """Up to a time, and from it on."""
        cut = f"{cut_ns // 10 ** 9}.{cut_ns % 10 ** 9:09}"
        return [self.lines(option, "--time", time, capture) for time in (f"..{cut}", f"{cut}..")]

    def test_findings_by_time(self):
        capture = "rxe_errors.pcap.zst"
        first_ns = self.lines(capture)[-1]["first_ns"]
        every = self.lines("--findings", capture)
        times = sorted(ns for one in every for ns in one["times_ns"])
        cut_ns = times[len(times) // 2]
        before, after = self.halves("--findings", capture, cut_ns - first_ns)
        self.assertEqual(before, [one for one in every if min(one["times_ns"]) <= cut_ns])
        self.assertEqual(after, [one for one in every if max(one["times_ns"]) >= cut_ns])
        self.assertTrue(before and after and before != every and after != every)

    def test_connections_by_time(self):
        capture = "rxe_errors.pcap.zst"
        every = self.lines("--connections", capture)
        first_ns = min(one["first_ns"] for one in every)
        origin_ns = self.lines(capture)[-1]["first_ns"]
        cut_ns = (first_ns + max(one["last_ns"] for one in every)) // 2
        before, after = self.halves("--connections", capture, cut_ns - origin_ns)

        def numbers(connections):
            return [one["connection"] for one in connections]
        self.assertEqual(numbers(before),
                         numbers(one for one in every if one["first_ns"] <= cut_ns))
        self.assertEqual(numbers(after),
                         numbers(one for one in every if one["last_ns"] >= cut_ns))
        self.assertTrue(before and after and len(before) < len(every) > len(after))

    def test_findings_by_key(self):
        capture = "siw_errors.pcap.zst"
        written = next(one for one in self.lines("--operations", "--opcode", "write", capture)
                       if one["outcome"] == "refused")
        found = self.lines("--findings", "--rkey", written["key"], capture)
        self.assertEqual([(one["kind"], one["connection"]) for one in found],
                         [("refused", written["connection"])])
        # The exit status is about what is selected.
        self.assertEqual(dissect("--rkey", "0x12345", capture).returncode, 0)

    def test_findings_by_xid(self):
        self.assertEqual(self.lines("--findings", "--xid", "0x478b190c", "nfs3_rxe.pcap.zst"), [])

    def extracted(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            done = dissect("--extract", out, *arguments)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            return json.loads((out / "index.json").read_text())

    def test_extracted_messages(self):
        capture = "rxe_sizes.pcap.zst"
        fields = ("connection", "side", "message")
        for options in (("--opcode", "write"), ("--connection", "2"), ("--time", "1.."),
                        ("--rkey", next(one["key"] for one in self.lines(
                            "--operations", "--opcode", "write", capture)))):
            with self.subTest(options=options):
                operations = self.lines("--operations", *options, capture)
                found = self.extracted(*options, capture)
                self.assertTrue(found)
                self.assertEqual(sorted([one["type"], *(one[name] for name in fields)]
                                        for one in found),
                                 sorted([one["kind"], *(one[name] for name in fields)]
                                        for one in operations if one["kind"] not in ATOMICS))

    def test_says_nothing_about_what_is_put_together(self):
        """Selected or not, an operation or RPC is the same."""
        every = {one["rpc"]: one for one in self.lines("--rpc", "nfs3_rxe.pcap.zst")}
        some = self.lines("--rpc", "--time", "6..7", "nfs3_rxe.pcap.zst")
        self.assertTrue(some)
        xids = {one["xid"]: one for one in every.values()}
        for one in some:
            self.assertEqual({**xids[one["xid"]], "rpc": 0}, {**one, "rpc": 0})


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


def repeated(capture, copies):
    """A stored capture several times. The copies are as far apart as the numbers of connections
    are used again."""
    data = subprocess.run([libraries.needs("zstd"), "-dcq", CAPTURES / f"{capture}.pcap.zst"],
                          check=True, stdout=subprocess.PIPE).stdout
    frames, at = [], 24
    while at < len(data):
        seconds, fraction, kept, wire = struct.unpack_from("<IIII", data, at)
        frames.append((seconds, fraction, kept, wire, data[at + 16:at + 16 + kept]))
        at += 16 + kept
    return data[:24] + b"".join(
        struct.pack("<IIII", seconds + 100 * copy, fraction, kept, wire) + content
        for copy in range(copies) for seconds, fraction, kept, wire, content in frames)


class Processors(unittest.TestCase):
    """With a second processor a thread reads ahead, or analyzes the next file with --separate;
    nothing that is printed depends on that."""

    def setUp(self):
        self.usable = sorted(os.sched_getaffinity(0))
        if len(self.usable) < 2:
            self.skipTest("only one processor may be used")

    def on(self, count, *arguments):
        limit = lambda: os.sched_setaffinity(0, self.usable[:count])
        done = libraries.run(libraries.WEFT, "dissect", *map(str, arguments), cwd=CAPTURES,
                             env=dict(os.environ), preexec_fn=limit)
        return done.returncode, done.stdout, done.stderr

    def test_one_and_two_print_the_same(self):
        everything = ("--json", "--operations", "--rpc", "--commands", "--findings")
        files = [f"{capture}.pcap.zst" for capture in captures()]
        for arguments in [(*everything, file) for file in files] + [files, (*everything, *files)]:
            with self.subTest(arguments=arguments):
                self.assertEqual(self.on(1, *arguments), self.on(2, *arguments))

    def test_separate_files_are_printed_in_their_order(self):
        files = [f"{capture}.pcap.zst" for capture in captures()]
        files.insert(3, "there_is_no.pcap")
        files.insert(7, "../dissect/iser_rxe.txt")
        for options in ((), ("--json", "--operations", "--findings")):
            one, two = (self.on(count, "--separate", *options, *files) for count in (1, 2))
            self.assertEqual(one, two)
            self.assertEqual(one[0], 2)
            self.assertIn("there_is_no.pcap", one[2])
        alone = [dissect(file).stdout for file in files if file.endswith(".zst")]
        self.assertEqual(self.on(2, "--separate", *files)[1], "".join(alone))

    def test_what_is_too_much_to_keep_waits_for_its_turn(self):
        """The second file prints more than is kept before the first one has ended."""
        with tempfile.TemporaryDirectory() as folder:
            first, second = (pathlib.Path(folder) / name for name in ("first.pcap", "second.pcap"))
            first.write_bytes(repeated("rxe_perf_atomic", 1_200))
            second.write_bytes(repeated("rxe_perf_atomic", 900))
            one, two = (self.on(count, "--separate", "--operations", "--json", first, second)
                        for count in (1, 2))
        self.assertGreater(one[1].count("\n"), 100_000)
        self.assertTrue(one == two)

    def test_a_reader_that_has_enough_ends_both(self):
        files = [f"{capture}.pcap.zst" for capture in captures()]
        process = subprocess.Popen(
            [libraries.WEFT, "dissect", "--separate", "--operations", *files], cwd=CAPTURES,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        process.stdout.readline()
        process.stdout.close()
        self.assertIn(process.wait(timeout=60), (0, 1))
        self.assertEqual(process.stderr.read(), b"")

    def test_damage_is_said_by_both(self):
        zstd = libraries.needs("zstd")
        whole = subprocess.run([zstd, "-dcq", CAPTURES / "rxe_rping.pcap.zst"], check=True,
                               stdout=subprocess.PIPE).stdout
        with tempfile.TemporaryDirectory() as folder:
            cut = pathlib.Path(folder) / "cut.pcap"
            cut.write_bytes(whole[:-7])
            damaged = pathlib.Path(folder) / "damaged.pcap.gz"
            packed = bytearray(gzip.compress(whole))
            packed[len(packed) // 2] ^= 0xFF
            damaged.write_bytes(packed)
            for file in (cut, damaged):
                one = self.on(1, file)
                self.assertRegex(one[2], "in the middle of a packet|damaged")
                self.assertEqual(one, self.on(2, file))

    def test_the_second_one_is_used(self):
        strace = libraries.needs("strace")
        for count, threads in ((1, 0), (2, 1)):
            with tempfile.TemporaryDirectory() as folder:
                trace = pathlib.Path(folder) / "trace"
                limit = lambda: os.sched_setaffinity(0, self.usable[:count])
                done = libraries.run(strace, "-f", "-e", "trace=clone,clone3", "-o", trace,
                                     libraries.WEFT, "dissect", CAPTURES / "rxe_rping.pcap.zst",
                                     env=dict(os.environ), preexec_fn=limit)
                if not trace.exists() or "PTRACE" in done.stderr:
                    self.skipTest(f"strace cannot trace: {done.stderr.strip()}")
                self.assertEqual(trace.read_text().count("CLONE_THREAD"), threads)


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

    @contextlib.contextmanager
    def stored_and_open(self, capture):
        """A stored capture as a file that may still grow."""
        zstd = libraries.needs("zstd")
        with tempfile.TemporaryDirectory() as folder:
            growing = pathlib.Path(folder) / "growing.pcap"
            subprocess.run([zstd, "-dcq", CAPTURES / f"{capture}.pcap.zst", "-o", growing],
                           check=True)
            yield growing

    def test_findings_come_while_it_reads(self):
        with self.stored_and_open("rxe_loss_in") as growing:
            process = self.start("--follow", "--json", "--findings", growing)
            early = [json.loads(process.stdout.readline()) for _ in range(2)]
            process.send_signal(signal.SIGINT)
            rest, said = process.communicate(timeout=60)
        final = [json.loads(line) for line in rest.splitlines()]
        self.assertEqual(process.returncode, 1, said)
        self.assertEqual([one["so_far"] for one in early], [True, True])
        def what(findings):
            return [(one["kind"], one["connection"], one["frames"][0]) for one in findings]
        self.assertEqual(what(early), what(final))

    def test_findings_of_a_summary_come_while_it_reads(self):
        """Those that are known at once, and those that are collected."""
        with self.stored_and_open("rxe_errors") as growing:
            process = self.start("--follow", growing)
            seen = set()
            while not {"refused", "repeated"} <= seen:
                line = process.stdout.readline()
                if line.startswith("growing.pcap, "):
                    continue
                self.assertRegex(line, r"^\[\d+\] (note|warning|error) \S+")
                seen.add(line.split()[2].rstrip(":"))
            process.send_signal(signal.SIGINT)
            rest, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("growing.pcap: ", rest)
        self.assertIn("findings: --findings lists them", rest)

    def test_a_pipe_has_a_line_when_something_came(self):
        line_of = re.compile(r"^growing\.pcap, \d+ s: (\d+) frames \(\d+/s\), .*/s\)$")
        trace = json.loads(dissect("--json", "rxe_rping.pcap.zst").stdout.splitlines()[-1])
        with self.stored_and_open("rxe_rping") as growing:
            whole = growing.read_bytes()
            growing.write_bytes(whole[:len(whole) // 3])
            process = self.start("--follow", growing)
            frames = [int(line_of.match(process.stdout.readline())[1])]
            with growing.open("ab") as file:
                file.write(whole[len(whole) // 3:])
            while frames[-1] < trace["frames"]:
                frames.append(int(line_of.match(process.stdout.readline())[1]))
            process.send_signal(signal.SIGINT)
            rest, said = process.communicate(timeout=60)
        self.assertEqual(frames, sorted(set(frames)), said)
        self.assertGreater(len(frames), 1)
        # Nothing more came, so there is no further line.
        self.assertRegex(rest.splitlines()[0], rf"/growing\.pcap: {trace['frames']} frames, ")

    def test_json_has_a_line_each_second(self):
        everything = json.loads(dissect("--json", "rxe_rping.pcap.zst").stdout.splitlines()[-1])
        with self.stored_and_open("rxe_rping") as growing:
            process = self.start("--follow", "--json", growing)
            first = json.loads(process.stdout.readline())
            while first["frames"] < everything["frames"]:
                first = json.loads(process.stdout.readline())
            second = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        self.assertEqual(first, second)
        self.assertEqual(first["type"], "live")
        for name in ("frames", "wire_bytes", "connections", "operations", "last_ns"):
            self.assertEqual(first[name], everything[name], name)

    def test_a_terminal_has_an_overview(self):
        """It is replaced each second, and removed before the summary."""
        main, terminal = pty.openpty()
        self.addCleanup(os.close, main)
        with self.stored_and_open("rxe_loss_in") as growing:
            process = subprocess.Popen(
                [libraries.WEFT, "dissect", "--follow", growing], stdin=subprocess.DEVNULL,
                stdout=terminal, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm"})
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.kill)
            os.close(terminal)
            shown = b""
            while shown.count(b"Ctrl-C ends it") < 2:
                shown += os.read(main, 65536)
            process.send_signal(signal.SIGINT)
            rest = b""
            with contextlib.suppress(OSError):  # EIO: the program has ended
                while data := os.read(main, 65536):
                    rest += data
            self.assertEqual(process.wait(timeout=60), 1)
        first, second = shown.split(b"Ctrl-C ends it")[:2]
        self.assertIn(b"repeated so far: 10.77.0.2 QP 0x11 sent 53 packets again", first)
        self.assertIn(b"5097 frames", first)
        self.assertIn("10.77.0.2 QP 0x11 ⇄ 10.77.0.1 QP 0x11".encode(), second)
        self.assertRegex(second, rb"\x1b\[\d+A\r\x1b\[J")  # replaces the one before
        self.assertNotIn(b"so far", second)
        before, after = rest.split(b"\x1b[J", 1)
        self.assertNotIn(b"5097 frames, ", before)
        self.assertIn(b"2 findings: --findings lists them", after)

    def test_the_overview_shows_what_a_file_has_grown_by(self):
        main, terminal = pty.openpty()
        self.addCleanup(os.close, main)
        with self.stored_and_open("rxe_loss_in") as growing:
            whole = growing.read_bytes()
            growing.write_bytes(whole[:len(whole) // 3])
            process = subprocess.Popen(
                [libraries.WEFT, "dissect", "--follow", growing], stdin=subprocess.DEVNULL,
                stdout=terminal, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm"})
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.kill)
            os.close(terminal)
            shown = b""
            while b"Ctrl-C ends it" not in shown:
                shown += os.read(main, 65536)
            self.assertNotIn(b"5097 frames", shown)
            with growing.open("ab") as file:
                file.write(whole[len(whole) // 3:])
            while b": 5097 frames (" not in shown:
                shown += os.read(main, 65536)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # EIO: the program has ended
                while os.read(main, 65536):
                    pass
            self.assertEqual(process.wait(timeout=60), 1)

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

    def test_ctrl_c_ends_the_reading_of_a_file(self):
        """Nobody reads what it prints, so it is in the middle of the file when the signal comes."""
        everything = dissect("--json", "--operations", "nfs3_rxe.pcap.zst").stdout.splitlines()
        with self.stored_and_open("nfs3_rxe") as file:
            process = self.start("--json", "--operations", file)
            select.select([process.stdout], [], [])  # it has printed something
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=60)
        lines = out.splitlines()
        self.assertEqual(process.returncode, 2, said)
        self.assertRegex(said, r"growing\.pcap: stopped before the end; \d+ % of it was read")
        self.assertLess(len(lines), len(everything))
        for line in lines:
            self.assertEqual(json.loads(line)["type"], "operation")

    def test_ctrl_c_loses_nothing_that_waits_for_its_reader(self):
        """The signal comes while the program waits for room in the pipe that it prints to."""
        with self.stored_and_open("nfs3_rxe") as file:
            process = self.start("--json", "--operations", file)
            state = pathlib.Path(f"/proc/{process.pid}/syscall")
            while " 0x1 " not in state.read_text()[:8]:  # number and first argument: write(1, ...)
                self.assertIsNone(process.poll(), "it does not wait for its reader")
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, said)
        self.assertIn("stopped before the end", said)
        for line in out.splitlines():
            self.assertEqual(json.loads(line)["type"], "operation")

    def test_ctrl_c_ends_the_reading_of_a_pipe(self):
        """More was written than a pipe holds, so it has read a part, and waits for the rest."""
        zstd = libraries.needs("zstd")
        whole = subprocess.run([zstd, "-dc", CAPTURES / "nfs3_rxe.pcap.zst"], check=True,
                               stdout=subprocess.PIPE).stdout
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            process = self.start("--json", pipe)
            with pipe.open("wb", buffering=0) as writer:
                writer.write(whole[:len(whole) // 2])
                process.send_signal(signal.SIGINT)
                out, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, said)
        self.assertIn("pipe: stopped before the end", said)
        quality = json.loads(out.splitlines()[0])
        self.assertEqual((quality["type"], quality["stopped"]), ("capture", True))
        self.assertTrue(any("stopped" in sentence for sentence in quality["sentences"]), quality)

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
