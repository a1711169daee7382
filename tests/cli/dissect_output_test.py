"""`weft dissect` where its output cannot be written, or must not be, and what its inputs may be."""

import bz2
import gzip
import json
import lzma
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "dropin"))
import libraries  # pylint: disable=wrong-import-position

CAPTURES = TESTS / "data" / "capture"


def plain(name):
    """The bytes of a stored capture."""
    return subprocess.run([libraries.needs("zstd"), "-dc", CAPTURES / f"{name}.pcap.zst"],
                          check=True, stdout=subprocess.PIPE).stdout


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def start(self, *arguments, **options):
        process = subprocess.Popen([libraries.WEFT, "dissect", *map(str, arguments)],
                                   stdin=options.pop("stdin", subprocess.DEVNULL),
                                   stdout=options.pop("stdout", subprocess.PIPE),
                                   stderr=subprocess.PIPE, cwd=self.folder, **options)
        self.addCleanup(process.stderr.close)
        if process.stdout:
            self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_to_end(self, *arguments, **options):
        process = self.start(*arguments, **options)
        out, said = process.communicate(timeout=60)
        return process.returncode, (out or b"").decode(), said.decode()


class ClosedOutput(InFolder):
    """The reader of the output has closed it, as `head` does."""

    def closed_pipe(self):
        reading, writing = os.pipe()
        os.close(reading)
        self.addCleanup(os.close, writing)
        return writing

    def test_ends_a_file_that_is_followed(self):
        whole = plain("rxe_rping")
        for options in ((), ("--json",)):
            growing = self.file("growing.pcap", whole[:len(whole) // 2])
            process = self.start("--follow", *options, growing)
            process.stdout.readline()
            process.stdout.close()
            with growing.open("ab") as file:
                file.write(whole[len(whole) // 2:])
            self.assertEqual((process.wait(timeout=60), process.stderr.read()), (0, b""), options)

    def test_a_full_disk_ends_a_file_that_is_followed(self):
        growing = self.file("growing.pcap", plain("rxe_rping"))
        with open("/dev/full", "wb") as full:
            status, _, said = self.run_to_end("--follow", growing, stdout=full)
        self.assertEqual(status, 2)
        self.assertIn("cannot write standard output: No space left", said)

    def test_files_that_were_asked_for_are_complete(self):
        capture = self.file("nfs.pcap", plain("nfs3_rxe"))
        lists = ("--operations", "--rpc", "--json")
        folders = {name: self.folder / name for name in ("closed", "read")}
        for name, folder in folders.items():
            folder.mkdir()
            stdout = self.closed_pipe() if name == "closed" else subprocess.DEVNULL
            status, _, said = self.run_to_end(
                *lists, "--html", folder / "page.html", "--export-pcap", folder / "one.pcapng",
                "--extract", folder / "parts", capture, stdout=stdout)
            self.assertEqual(status, 1, said)  # it has findings
        closed, read = ({str(path.relative_to(folder)): path.read_bytes()
                         for path in folder.rglob("*") if path.is_file()}
                        for folder in folders.values())
        self.assertEqual(closed.keys(), read.keys())
        self.assertEqual([name for name in read if closed[name] != read[name]], [])
        self.assertGreater(len(json.loads(closed["parts/index.json"])), 100)


class OutputFiles(InFolder):
    def test_no_input_is_overwritten(self):
        whole = plain("rxe_rping")
        capture = self.file("one.pcap", whole)
        other = self.file("other.pcap", whole)
        link = self.folder / "link"
        os.link(capture, link)
        for option in ("--html", "--export-pcap"):
            for path in (capture, link, self.folder / "." / "one.pcap"):
                status, _, said = self.run_to_end(option, path, capture, other)
                self.assertEqual(status, 2)
                self.assertIn(f"{option} would overwrite its input {capture}", said)
        self.assertEqual(capture.read_bytes(), whole)

    def test_two_files_have_two_names(self):
        capture = self.file("one.pcap", plain("rxe_rping"))
        status, _, said = self.run_to_end("--html", "new", "--export-pcap",
                                          self.folder / "new", capture)
        self.assertEqual(status, 2)
        self.assertIn("--html and --export-pcap both write new", said)
        self.assertFalse((self.folder / "new").exists())
        status, _, said = self.run_to_end("--html", "/dev/null", "--export-pcap", "/dev/null",
                                          capture)
        self.assertEqual(status, 0, said)


class Names(InFolder):
    """Any byte but a slash may be in the name of a file."""

    name = b'bad\xff\x1b[31m"q\\.pcap'
    shown = r'bad\xff\x1b[31m"q\\.pcap'

    def capture(self, data):
        path = os.fsencode(self.folder) + b"/" + self.name
        with open(path, "wb") as file:
            file.write(data)
        return os.fsdecode(path)

    def test_they_are_printable(self):
        path = self.capture(plain("rxe_rping"))
        status, out, said = self.run_to_end("--json", path)
        self.assertEqual((status, said), (0, ""))
        self.assertEqual(json.loads(out.splitlines()[-1])["name"].rsplit("/", 1)[1], self.shown)
        status, out, said = self.run_to_end(path)
        self.assertEqual((status, said), (0, ""))
        self.assertIn(self.shown, out)
        self.assertNotIn("\x1b", out)

    def test_errors_do_not_control_the_terminal(self):
        for data in (b"nothing that is known, but long enough", plain("rxe_rping")[:-9]):
            _, _, said = self.run_to_end(self.capture(data))
            self.assertRegex(said, r"\\x1b\[31m")
            self.assertNotIn("\x1b", said)


class Packed(InFolder):
    """Compressed files: what follows the data, and what is missing of them."""

    def packed(self, data):
        zstd, lz4 = (libraries.needs(name) for name in ("zstd", "lz4"))
        def by(*command):
            return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout
        return {"gzip": gzip.compress(data), "xz": lzma.compress(data), "bzip2": bz2.compress(data),
                "zstd": by(zstd, "-c", "-q", "--check"), "lz4": by(lz4, "-c", "-q")}

    def test_zeros_behind_the_data_are_ignored(self):
        data = plain("rxe_rping")
        wanted = self.run_to_end("--connections", self.file("one.pcap", data))
        for name in ("gzip", "xz"):
            packed = self.packed(data)[name]
            self.assertEqual(self.run_to_end("--connections",
                                             self.file("one.pcap", packed + bytes(512))),
                             wanted, name)

    def test_members_may_be_apart(self):
        data = plain("rxe_rping")
        wanted = self.run_to_end("--connections", self.file("one.pcap", data))
        for pack in (gzip.compress, lzma.compress, bz2.compress):
            packed = pack(data[:1000]) + pack(data[1000:])
            self.assertEqual(self.run_to_end("--connections", self.file("one.pcap", packed)),
                             wanted, pack)
        packed = lzma.compress(data[:1000]) + bytes(4) + lzma.compress(data[1000:])
        self.assertEqual(self.run_to_end("--connections", self.file("one.pcap", packed)), wanted)

    def test_a_missing_end_is_said(self):
        for name, packed in self.packed(plain("rxe_rping")).items():
            status, _, said = self.run_to_end(self.file("one.pcap", packed))
            self.assertEqual((status, said), (0, ""), name)
            _, _, said = self.run_to_end(self.file("one.pcap", packed[:-3]))
            self.assertIn("one.pcap: its compressed data have no end", said, name)


class Inputs(InFolder):
    def frames(self, *arguments, **options):
        status, out, said = self.run_to_end("--json", *arguments, **options)
        self.assertIn(status, (0, 1), said)
        return json.loads(out.splitlines()[-1])["frames"]

    def piped(self, *paths):
        """What a shell's <(cat PATH) gives for each: a path that can be read once."""
        pipes = []
        for path in paths:
            cat = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
            self.addCleanup(cat.wait)
            self.addCleanup(cat.stdout.close)
            pipes.append(cat.stdout)
        return [f"/dev/fd/{pipe.fileno()}" for pipe in pipes], [pipe.fileno() for pipe in pipes]

    def two_captures(self):
        return (self.file("a.pcap", plain("rxe_rping")), self.file("b.pcap", plain("siw_rping")))

    def test_a_pipe_may_be_one_of_several(self):
        first, second = self.two_captures()
        wanted = self.frames(first, second)
        for piped, others in (((first,), (second,)), ((second,), (first,)),
                              ((first, second), ())):
            paths, descriptors = self.piped(*piped)
            self.assertEqual(self.frames(*paths, *others, pass_fds=descriptors), wanted)
        for piped, other in ((first, second), (second, first)):
            with piped.open("rb") as file:
                cat = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
            self.addCleanup(cat.wait)
            with cat.stdout:
                self.assertEqual(self.frames("-", other, stdin=cat.stdout), wanted)

    def test_a_named_pipe_may_be_one_of_several(self):
        first, second = self.two_captures()
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        writer = threading.Thread(target=lambda: pipe.write_bytes(first.read_bytes()), daemon=True)
        writer.start()
        process = self.start("--json", pipe, second)
        out, said = process.communicate(timeout=60)
        writer.join()
        self.assertIn(process.returncode, (0, 1), said)
        self.assertEqual(json.loads(out.splitlines()[-1])["frames"], self.frames(first, second))

    def test_words_behind_two_dashes_are_files(self):
        first, second = self.two_captures()
        dashed = self.file("--json", first.read_bytes())
        self.assertEqual(self.frames("--", first), self.frames(first))
        self.assertEqual(self.frames(first, "--", second), self.frames(first, second))
        self.assertEqual(self.frames("--", dashed.name, second), self.frames(first, second))

    def test_a_followed_file_may_be_empty_at_first(self):
        whole = plain("rxe_rping")
        for beginning in (0, 10):
            growing = self.file("growing.pcap", whole[:beginning])
            process = self.start("--follow", "--json", "--operations", growing)
            self.wait_until_it_waits(process)
            with growing.open("ab") as file:
                file.write(whole[beginning:])
            self.assertEqual(json.loads(process.stdout.readline())["operation"], 1)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, said)

    def test_a_followed_file_that_is_emptied_ends_the_command(self):
        for rest in (0, 30):
            growing = self.file("growing.pcap", plain("rxe_rping"))
            process = self.start("--follow", "--json", "--operations", growing)
            self.assertEqual(json.loads(process.stdout.readline())["operation"], 1)
            self.wait_until_it_waits(process)
            os.truncate(growing, rest)
            _, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 2, said)
            self.assertIn(b"growing.pcap: was emptied or cut by its writer", said)

    def test_ctrl_c_ends_the_wait_for_an_empty_file(self):
        process = self.start("--follow", self.file("growing.pcap", b""))
        self.wait_until_it_waits(process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2)
        self.assertIn(b"growing.pcap is empty", said)

    def wait_until_it_waits(self, process):
        """It handles Ctrl-C, which it does before it opens a file, and sleeps."""
        waiting = False
        while not waiting:
            self.assertIsNone(process.poll(), "it has ended")
            os.sched_yield()
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            fields = dict(line.split(":\t", 1) for line in status.splitlines())
            caught = int(fields["SigCgt"], 16) >> (signal.SIGINT - 1) & 1
            waiting = caught and fields["State"].startswith("S")


if __name__ == "__main__":
    sys.exit(libraries.main())
