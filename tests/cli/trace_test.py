"""`weft trace` with files as an attacker makes them: each is refused by one line that names the
file, and what is printed or put into the page cannot do more than text."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "dropin"))
import libraries  # pylint: disable=wrong-import-position

_HEADER = {"weft_trace": 1, "pid": 7, "host": "h", "boot": "b", "program": "p",
           "monotonic_ns": 1, "realtime_ns": 2, "dropped": 0}
_EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "p on h"}},
    {"ph": "b", "cat": "request", "name": "send", "id2": {"local": 1}, "pid": 7, "tid": 1,
     "ts": 1.5, "args": {"bytes": 8}},
    {"ph": "s", "cat": "flow", "name": "message", "id": 9, "pid": 7, "tid": 1, "ts": 2.5,
     "args": {"request": 1}},
    {"ph": "f", "cat": "flow", "name": "message", "id": 9, "pid": 7, "tid": 1, "ts": 3.5},
]
_MUTATIONS = 150


def seed():
    value = int(os.environ.get("WEFT_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"WEFT_SEED={value} runs the same again")
    return value


class Trace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, content, name="trace.json"):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def document(self, events, header=None):
        return self.file(json.dumps({"otherData": header or _HEADER, "traceEvents": events}))

    def trace(self, path, *options):
        return libraries.run(libraries.WEFT, "trace", *options, str(path))

    def need_refused(self, path, why=None):
        done = self.trace(path, "-o", str(self.folder / "joined.json"))
        self.assertEqual(done.returncode, 2, f"{why}: {done.stderr}")
        self.assertIn(str(path), done.stderr, why)
        self.assertEqual(done.stderr.count("\n"), 1, why)
        self.assertNotIn("json.exception", done.stderr, why)

    def test_the_good_one_is_read(self):
        done = self.trace(self.document(_EVENTS))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "send: 1 requests\n1 messages with post and placement\n")

    def test_values_that_are_deep_in_one_another(self):
        deep = "[" * 300_000 + "]" * 300_000
        self.need_refused(self.file(deep))
        self.need_refused(self.file(json.dumps({"otherData": _HEADER, "traceEvents": []})[:-2] +
                                    '{"ph":"b","args":' + deep + "}]}"))

    def test_fields_of_wrong_types(self):
        for at, event in enumerate(_EVENTS):
            for field in event:
                for value in (None, -1, 1.5, 1e300, "x", [], {}, True):
                    events = [dict(each) for each in _EVENTS]
                    events[at][field] = value
                    done = self.trace(self.document(events), "-o", str(self.folder / "out.json"))
                    self.assertIn(done.returncode, (0, 2), f"{field}={value}: {done.stderr}")
                    self.assertNotIn("json.exception", done.stderr, f"{field}={value}")
        for field in ("pid", "monotonic_ns", "realtime_ns", "boot"):
            header = {name: value for name, value in _HEADER.items() if name != field}
            self.need_refused(self.document(_EVENTS, header), field)
        for value in (-1, 1.5, (1 << 64) - 1, "7", None):
            self.need_refused(self.document(_EVENTS, {**_HEADER, "pid": value}), value)
        for events in ([7], ["x"], [[]], [None], {"a": 1}, 7):
            self.need_refused(self.document(events), events)

    def test_a_file_to_which_events_are_added_meanwhile(self):
        text = json.dumps({"otherData": _HEADER, "traceEvents": _EVENTS})
        event = '{"ph":"B","cat":"call","name":"]}","pid":7,"tid":1,"ts":9}'
        for more in (event + "\n]}", "   \n", "]}"):
            done = self.trace(self.file(text + more))
            self.assertEqual((done.returncode, done.stderr), (0, ""), more)
            self.assertIn("send: 1 requests", done.stdout)
        for name in ("\\", '\\"', "]}{[", '"]}'):
            events = [*_EVENTS, {**_EVENTS[1], "name": name}]
            self.assertEqual(self.trace(self.document(events)).returncode, 0, name)

    def test_inputs_are_not_overwritten(self):
        path = self.document(_EVENTS)
        before = path.read_bytes()
        link = self.folder / "link"
        link.hardlink_to(path)
        for options in (["-o", str(path)], ["--html", str(path)], ["-o", str(link)],
                        ["-o", str(self.folder / "x"), "--html", str(self.folder / ".." /
                                                                    self.folder.name / "x")]):
            done = self.trace(path, *options)
            self.assertEqual(done.returncode, 2, options)
            self.assertRegex(done.stderr, "would overwrite its input|both write")
            self.assertEqual(path.read_bytes(), before)
            self.assertFalse((self.folder / "x").exists())

    def two(self, **header):
        """Two traces of one process number each, the second an hour later by the wall clock."""
        other = {**_HEADER, "pid": 8, "realtime_ns": 3600 * 10**9, **header}
        events = [{**event, "pid": 8} for event in _EVENTS[:2]]
        second = self.file(json.dumps({"otherData": other, "traceEvents": events}), "second.json")
        first = {**_HEADER, **header}
        return str(second), self.document(_EVENTS, first)

    def test_processes_are_counted_apart(self):
        second, first = self.two()
        done = self.trace(first, second)
        self.assertEqual(done.returncode, 0, done.stderr)
        for number in (7, 8):
            self.assertIn(f"process {number}, send: 1 requests\n", done.stdout)

    def test_kernels_without_a_name_are_not_the_same(self):
        for boot, same in (("b", True), ("", False)):
            second, first = self.two(boot=boot)
            joined = self.folder / "joined.json"
            self.assertEqual(self.trace(first, second, "-o", str(joined)).returncode, 0)
            shifts = {each["shifted_us"]
                      for each in json.loads(joined.read_text())["otherData"]["joined"]}
            self.assertEqual(shifts == {0}, same, shifts)

    def test_what_is_no_regular_file(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for path in (fifo, "/dev/zero", "/dev/full", self.folder, self.folder / "none"):
            self.need_refused(path)

    def test_files_that_are_too_large_are_not_read(self):
        path = self.file("{")
        os.truncate(path, 5 << 30)
        self.need_refused(path)

    def test_cut_and_changed_files(self):
        choose = random.Random(seed())
        good = json.dumps({"otherData": _HEADER, "traceEvents": _EVENTS}).encode()
        for _ in range(_MUTATIONS):
            changed = bytearray(good)
            for _ in range(choose.randrange(1, 5)):
                at = choose.randrange(len(changed))
                changed[at:at + choose.randrange(3)] = choose.randbytes(choose.randrange(3))
            cut = changed[:choose.randrange(len(changed))] if choose.random() < .2 else changed
            done = self.trace(self.file(bytes(cut)), "-o", str(self.folder / "out.json"))
            self.assertIn(done.returncode, (0, 2), f"{bytes(cut)}: {done.stderr}")

    def test_words_behind_two_dashes_are_files(self):
        name = self.document(_EVENTS).rename(self.folder / "--html").name
        done = libraries.run(libraries.WEFT, "trace", "--", name, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("send", done.stdout)

    def test_names_do_not_control_the_terminal(self):
        events = [dict(each) for each in _EVENTS]
        events[1]["name"] = "\x1b]0;title\x07 \x9b31m \x7f\r\n"
        done = self.trace(self.document(events))
        self.assertEqual(done.returncode, 0)
        self.assertFalse(re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stdout),
                         repr(done.stdout))
        self.assertEqual(done.stdout.count("\n"), 2)

    def test_names_of_files_do_not_control_the_terminal(self):
        for name in (b"\xc2\x9b31m", b"\x9b31m", b"\xc3", b"\x7f\x1b[31m"):
            done = subprocess.run([libraries.WEFT, "trace", os.fsencode(self.folder) + b"/" + name],
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, 2)
            shown = done.stderr.decode()  # fails for what is no UTF-8
            self.assertFalse(re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown), repr(shown))
            self.assertIn(f"\\x{name[0]:02x}", shown)
        done = subprocess.run([libraries.WEFT, "trace", self.folder / "Größe€"],
                              capture_output=True, text=True, check=False)
        self.assertIn("Größe€", done.stderr)

    def test_names_stay_within_the_page(self):
        pages = []
        for name in ("send", "</script><script>alert(1)</script><!--<script>"):
            events = [dict(each) for each in _EVENTS]
            events[1]["name"] = name
            page = self.folder / "page.html"
            self.assertEqual(self.trace(self.document(events), "--html", str(page)).returncode, 0)
            pages.append(page.read_text())
        for tag in ("<script", "</script", "<!--"):
            self.assertEqual(pages[1].count(tag), pages[0].count(tag), tag)


if __name__ == "__main__":
    sys.exit(libraries.main())
