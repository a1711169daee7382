"""`weft run --check` finds each misuse, and nothing in a program that nearly commits it."""

import ctypes
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import sysconfig
import tempfile
import unittest

WEFT = os.environ["WEFT_BIN"]
MISUSE = os.environ["WEFT_MISUSE"]
PATTERNS = os.environ["WEFT_PATTERNS"]
TRAPS = os.environ["WEFT_TRAPS"]
CHECKED_CPP = os.environ["WEFT_CHECKED_CPP"]
WAIT_S = 60
# Carriers differ in when memory is read and how errors arrive.
CARRIERS = ("auto", "off")
# Both ends are in the program, and each reports what it sees.
BOTH_ENDS = {"remote-refused", "refused-peer"}
# The call does not return after the report, as with adapters, but for a late acknowledgement.
HANGS = {"unacknowledged-event"}
RETURNS = {"unacknowledged-event.late"}


# The runtime of an instrumented device, or the name of the sanitizer; empty: there is none.
SANITIZER = os.environ.get("WEFT_CHECK_SANITIZER", "")
# Without the variables of this test, which `weft run` would warn of.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("WEFT_BIN", "WEFT_MISUSE", "WEFT_PATTERNS", "WEFT_TRAPS",
                               "WEFT_CHECKED_CPP", "WEFT_CHECK_SANITIZER")}
if SANITIZER.endswith(".so"):
    ENVIRONMENT |= {"LD_PRELOAD": SANITIZER, "ASAN_OPTIONS": "detect_leaks=0"}
# These need the blocks of the C library, where a sanitizer has its own.
HEAP = {"freed-memory", "freed-posted"}
# These need the debug registers of the processor.
WATCHING = {"early-access", "polled-write"}


def run(*words, options=(), before=None):
    return subprocess.run([WEFT, "run", "--quiet", *options, "--", *words], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=WAIT_S,
                          check=False, env=ENVIRONMENT, preexec_fn=before)


def refuse_perf_event_open():
    """As containers do: this process and its children get EPERM (seccomp(2), BPF)."""
    load, equals, answer = 0x20, 0x15, 0x06
    number_on_x86_64, eperm = 298, 1
    program = struct.pack("HBBI" * 4, load, 0, 0, 0, equals, 0, 1, number_on_x86_64,
                          answer, 0, 0, 0x50000 | eperm, answer, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(program)
    block = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(code)))
    libc = ctypes.CDLL(None)
    no_new_privileges, seccomp, with_filter = 38, 22, 2
    libc.prctl(no_new_privileges, 1, 0, 0, 0)
    libc.prctl(seccomp, with_filter, block, 0, 0)


def names():
    listed = subprocess.run([MISUSE], text=True, stdout=subprocess.PIPE, check=False)
    return listed.stdout.split()


def watches():
    """Whether memory can be watched here."""
    told = subprocess.run([WEFT, "doctor"], text=True, stdout=subprocess.PIPE, check=False).stdout
    return "lacks early-access and polled-write here" not in told


WATCHES = watches()


class Misuse(unittest.TestCase):
    def findings(self, *words, carrier="auto", options=(), ends=True):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            done = run(*words, options=["--check-report", path, "--same-host", carrier,
                                        *options])
            self.assertEqual(("end\n" in done.stdout, done.returncode),
                             (True, 0) if ends else (False, 66), done.stdout + done.stderr)
            # Also those of a child.
            found = []
            for report in sorted(pathlib.Path(folder).iterdir()):
                found += json.loads(report.read_text())["findings"]
            return found, done.stderr

    def test_each_is_found(self):
        for carrier in CARRIERS:
            for name in names():
                with self.subTest(case=name, carrier=carrier):
                    check = name.partition(".")[0]
                    if check in WATCHING and not WATCHES:
                        self.skipTest("the debug registers cannot be used: weft doctor")
                    if check in HEAP and SANITIZER:
                        self.skipTest("the blocks are those of the sanitizer")
                    ends = check not in HANGS or name in RETURNS
                    found, text = self.findings(MISUSE, name, "bad", carrier=carrier, ends=ends,
                                                options=[] if ends else ["--check=fatal"])
                    wanted = BOTH_ENDS if check in BOTH_ENDS else {check}
                    self.assertEqual({each["check"] for each in found}, wanted, text)
                    self.assertIn(f"check [{check}]", text)
                    # The first stack leads to the function that commits it.
                    functions = [frame["function"] for frame in found[0]["stacks"][0]["frames"]]
                    wanted = re.sub("[-.]", "_", name)
                    self.assertTrue(any(wanted in each for each in functions), text)

    def test_nearly_is_not_found(self):
        for carrier in CARRIERS:
            for name in names():
                with self.subTest(case=name, carrier=carrier):
                    found, text = self.findings(MISUSE, name, "near", carrier=carrier)
                    self.assertEqual(found, [], text)

    def test_stacks_have_files_and_lines(self):
        found, text = self.findings(MISUSE, "dead-key", "bad")
        stacks = {each["what"]: each["frames"] for each in found[0]["stacks"]}
        self.assertEqual(list(stacks), ["The request was posted here",
                                        "The region was deregistered here",
                                        "The region was registered here"])
        for frames in stacks.values():
            self.assertTrue(any("misuse.cc" in each.get("file", "") and each["line"] > 0
                                for each in frames), text)
        self.assertRegex(text, r"#\d+ .*dead_key.* at .*misuse\.cc:\d+")

    def test_what_is_undefined_has_a_pattern(self):
        defined = {"sent.opcode": "0", "received.byte_len": "40", "flushed.status": "5",
                   "flushed.wr_id": "1", "read.refused": "5678", "read.complete": "1234",
                   "read.forbidden": "5678"}
        undefined = {"sent.byte_len": 4, "received.imm_data": 4, "received.src_qp": 4,
                     "flushed.opcode": 4, "read.posted": 8}
        for carrier in CARRIERS:
            for options in ([], ["--check"]):
                with self.subTest(carrier=carrier, options=options):
                    done = run(PATTERNS, options=[*options, "--same-host", carrier])
                    self.assertEqual(done.returncode, 0, done.stdout)
                    # It looks at the memory of a Read too early, and reads where it must not.
                    reports = re.findall(r"check \[(.*?)\]", done.stderr)
                    wanted = ["early-access"] if options and WATCHES else []
                    wanted += ["missing-right"] if options else []
                    self.assertEqual(reports, wanted, done.stderr)
                    shown = dict(line.split() for line in done.stdout.splitlines())
                    for name, value in defined.items():
                        self.assertEqual(shown[name], value, name)
                    for name, count in undefined.items():
                        self.assertEqual(shown[name] == "a5" * count, bool(options), name)

    def test_programs_that_use_traps_themselves(self):
        reported = {"early-handler": 1, "late-handler": 1, "replaced-handler": 0, "fork": 1,
                    "fork-first": 1, "exec": 0, "blocked": 0, "traced": 0}
        for how, times in reported.items():
            with self.subTest(how=how):
                done = run(TRAPS, how, options=["--check"])
                self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)
                found = re.findall(r"check \[(.*?)\]", done.stderr)
                self.assertEqual(found, ["early-access"] * times if WATCHES else [], done.stderr)
                if how == "replaced-handler" and WATCHES:
                    self.assertIn("the program has replaced their handler", done.stderr)

    def test_refused_registers_are_said_once(self):
        if not WATCHES or os.uname().machine != "x86_64":
            self.skipTest("the debug registers cannot be used: weft doctor")
        done = run(MISUSE, "early-access.after-the-next-post", "bad", options=["--check"],
                   before=refuse_perf_event_open)
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("perf_event_open(2) is refused (Operation not permitted)", done.stderr)

    def test_findings_are_marks_in_the_trace(self):
        for variant, times in (("bad", 1), ("near", 0)):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "trace.json"
                done = run(MISUSE, "dead-key", variant, options=["--check", "--trace", path])
                self.assertEqual(done.returncode, 0, done.stderr)
                events = json.loads(path.read_text())["traceEvents"]
            marks = [each["name"] for each in events if each.get("cat") == "check"]
            self.assertEqual(len(marks), times, marks)
            self.assertTrue(all(each.startswith("dead-key: Send ") for each in marks), marks)

    def test_off_reports_nothing(self):
        done = run(MISUSE, "dead-key", "bad")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_fatal_ends_the_program(self):
        done = run(MISUSE, "dead-key", "bad", options=["--check=fatal"])
        self.assertEqual(done.returncode, 66, done.stderr)
        self.assertNotIn("end", done.stdout)
        done = run(MISUSE, "dead-key", "near", options=["--check=fatal"])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_exit_status(self):
        for variant, status in (("bad", 7), ("near", 0)):
            done = run(MISUSE, "dead-key", variant, options=["--check-status", "7"])
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn("end", done.stdout)

    def test_suppressions(self):
        rules = {"dead-key": True, "dead-key:*dead_key*": True, "*:misuse.cc": True,
                 "dead-key:other*": False, "leak": False}
        for rule, covered in rules.items():
            with self.subTest(rule=rule), tempfile.NamedTemporaryFile("w") as file:
                file.write(f"# a comment\n\n{rule}\n")
                file.flush()
                found, _ = self.findings(MISUSE, "dead-key", "bad",
                                         options=["--check-suppressions", file.name])
                self.assertEqual(found == [], covered)

    def test_wrong_options(self):
        for options, text in ((["--check=often"], "--check or --check=fatal"),
                              (["--check-status", "256"], "0 to 255")):
            done = run(MISUSE, "dead-key", "near", options=options)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)

    def test_every_check_has_a_case(self):
        helped = subprocess.run([WEFT, "help", "check"], check=True, text=True,
                                stdout=subprocess.PIPE).stdout
        documented = re.findall(r"^  ([a-z]+(?:-[a-z]+)*)$", helped, re.MULTILINE)
        self.assertEqual(sorted(documented), sorted({name.partition(".")[0] for name in names()}))


class Allocators(unittest.TestCase):
    """Blocks are seen by way of free(3), whichever shared library has it."""

    def ends(self, name, variant, library, **variables):
        if not library or not os.path.exists(library):
            self.skipTest(f"no {library}")
        if SANITIZER and library != SANITIZER:
            self.skipTest("the blocks are those of the sanitizer")
        environment = {**ENVIRONMENT, "LD_PRELOAD": library, **variables}
        done = subprocess.run([WEFT, "run", "--quiet", "--check", "--", MISUSE, name, variant],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=WAIT_S, check=False, env=environment)
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)
        # Some machines have no debug registers, which is said once. No check of these needs them.
        return "".join(line for line in done.stderr.splitlines(True)
                       if "need the debug registers" not in line)

    def test_of_other_libraries(self):
        for library in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4"):
            path = f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}/{library}"
            for name in ("freed-memory", "freed-memory.by-realloc", "freed-memory.beside-threads",
                         "freed-posted"):
                with self.subTest(library=library, case=name):
                    said = self.ends(name, "bad", path)
                    self.assertIn(f"check [{name.partition('.')[0]}]", said)
                    self.assertEqual(self.ends(name, "near", path), "")

    # It reports what is freed too early itself, and has no blocks of the C library.
    def test_the_runtime_of_a_sanitizer_stays_in_front(self):
        path = subprocess.run(["g++", "-print-file-name=libasan.so"], text=True, check=False,
                              stdout=subprocess.PIPE).stdout.strip()
        for variant in ("bad", "near"):
            said = self.ends("freed-memory.beside-threads", variant, path,
                             ASAN_OPTIONS="detect_leaks=0")
            self.assertEqual(said, "")

    def test_only_with_checks(self):
        for options, loaded in (([], False), (["--check"], True)):
            done = run("env", options=options)
            self.assertEqual("libweft-heap.so" in done.stdout, loaded, done.stdout)


class CppLibrary(unittest.TestCase):
    """Programs of the C++ library, without `weft run`."""

    def run_program(self, how, variant, **variables):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            done = subprocess.run([CHECKED_CPP, how, variant], text=True, timeout=WAIT_S,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                                  env={**ENVIRONMENT, "WEFT_QUIET": "1",
                                       "WEFT_CHECK_REPORT": str(path), **variables})
            found = json.loads(path.read_text())["findings"] if path.exists() else []
            return done, found

    def test_each_way_to_ask(self):
        for how, variables in {"configure": {}, "own": {}, "environment": {"WEFT_CHECK": "1"},
                               "off": {"WEFT_CHECK": "1"}}.items():
            for variant in ("bad", "near"):
                with self.subTest(how=how, variant=variant):
                    done, found = self.run_program(how, variant, **variables)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertIn("end\n", done.stdout)
                    wanted = ["changed-send"] if variant == "bad" and how != "off" else []
                    self.assertEqual([each["check"] for each in found], wanted, done.stderr)
                    functions = [frame["function"] for each in found
                                 for frame in each["stacks"][0]["frames"]]
                    self.assertEqual(any("change_send" in each for each in functions),
                                     bool(wanted), done.stderr)

    def test_fatal_in_the_environment(self):
        done, _ = self.run_program("environment", "bad", WEFT_CHECK="fatal")
        self.assertEqual(done.returncode, 66, done.stdout + done.stderr)
        self.assertNotIn("end\n", done.stdout)

    def test_wrong_and_late_choices(self):
        done, _ = self.run_program("wrong", "near")
        self.assertIn('check "often": must be 0, 1 or fatal', done.stdout)
        done, _ = self.run_program("off", "near")
        self.assertIn('check "1": the process has begun with other checks', done.stdout)


if __name__ == "__main__":
    if SANITIZER and not SANITIZER.endswith(".so"):
        print(f"skipped: the sanitizer '{SANITIZER}' demands programs that are instrumented, and "
              "these know nothing of the device")
        sys.exit(77)
    unittest.main(verbosity=2)
