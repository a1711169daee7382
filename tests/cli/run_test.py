"""`weft run`, and what else the program says."""

import contextlib
import json
import os
import pathlib
import pty
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "dropin"))
import libraries  # pylint: disable=wrong-import-position


def plain_environment(**more):
    drop = ("WEFT_", "LD_LIBRARY_PATH")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    return {**clean, **more}


def weft(*arguments, **more):
    return libraries.run(libraries.WEFT, *arguments, env=plain_environment(**more))


class Run(unittest.TestCase):
    def test_exit_status_is_the_programs(self):
        libraries.needs_plain_libraries()
        for status in (0, 1, 7, 255):
            self.assertEqual(weft("run", "--", "sh", "-c", f"exit {status}").returncode, status)

    def test_a_signal_ends_the_program_itself(self):
        libraries.needs_plain_libraries()
        done = weft("run", "--", "sh", "-c", "kill -TERM $$")
        self.assertEqual(done.returncode, -signal.SIGTERM)

    def test_it_becomes_the_program(self):
        libraries.needs_plain_libraries()
        with subprocess.Popen([libraries.WEFT, "run", "-q", "--", "sh", "-c", "echo $$"],
                              text=True, env=plain_environment(), stdout=subprocess.PIPE) as run:
            self.assertEqual(int(run.communicate()[0]), run.pid)

    def test_arguments_arrive_unchanged(self):
        libraries.needs_plain_libraries()
        wanted = ["-q", "--", "", "a b", "--addr", "-h"]
        script = 'for word; do printf "[%s]" "$word"; done'
        for separator in (["--"], []):
            done = weft("run", "-q", *separator, "sh", "-c", script, "sh", *wanted)
            self.assertEqual(done.stdout, "".join(f"[{word}]" for word in wanted), done.stderr)

    def test_standard_error_is_not_needed(self):
        libraries.needs_plain_libraries()
        for redirection in ("2>&-", "2>/dev/full"):
            done = subprocess.run(["sh", "-c", f'"$0" run -- sh -c "echo ran" {redirection}',
                                   libraries.WEFT], text=True, stdout=subprocess.PIPE,
                                  env=plain_environment(), check=False)
            self.assertEqual((done.returncode, done.stdout), (0, "ran\n"), redirection)

    def test_lost_output_is_an_error(self):
        for command in ("help", "help run", "help faults", "--version", "doctor"):
            done = subprocess.run(["sh", "-c", f'"$0" {command} >/dev/full', libraries.WEFT],
                                  text=True, stderr=subprocess.PIPE, env=plain_environment(),
                                  check=False)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn("standard output cannot be written", done.stderr)

    def test_no_such_program(self):
        for name in ("no-such-program", "/no/such/program"):
            done = weft("run", "--", name)
            self.assertEqual(done.returncode, 127)
            self.assertIn(f"there is no program {name}", done.stderr)

    def test_not_executable(self):
        with tempfile.NamedTemporaryFile() as file:
            for name in (file.name, "/"):
                done = weft("run", "--", name)
                self.assertEqual(done.returncode, 126)
                self.assertIn("not an executable file", done.stderr)

    def test_the_program_comes_behind_a_rule(self):
        libraries.needs_plain_libraries()
        rules = ["ENOMEM at create-qp", "EINVAL at reg-mr"]
        done = weft("run", "-q", "--fault", rules[0], "--fault", rules[1], "sh", "-c",
                    'printf "%s" "$WEFT_FAULT"')
        self.assertEqual(done.stdout.split("\n"), rules, done.stderr)

    def test_one_line_for_all_processes(self):
        libraries.needs("ibv_devices")
        libraries.needs_plain_libraries()
        done = weft("run", "--", "sh", "-c", "ibv_devices; ibv_devices")
        self.assertEqual(done.stdout.count("weft0"), 2)
        self.assertEqual(done.stderr,
                         "weft: weft0 (embedded iWARP device, seen as RoCE) serves sh\n")

    def test_sockets_are_preloaded(self):
        libraries.needs_plain_libraries()
        library = f"{libraries.FOLDER}/libweft-sockets.so"
        self.assertTrue(os.path.exists(library))
        library = f"{libraries.FOLDER}/libweft-node.so:{library}"
        done = weft("run", "--sockets", "--", "env")
        self.assertIn("its TCP sockets are RDMA streams", done.stderr)
        self.assertIn(f"LD_PRELOAD={library}", done.stdout.splitlines())
        self.assertNotIn("WEFT_SOCKETS", done.stdout)
        done = weft("run", "-q", "--sockets=fallback", "env", LD_PRELOAD="libc.so.6")
        self.assertEqual(done.stderr, "")
        self.assertIn(f"LD_PRELOAD=libc.so.6:{library}", done.stdout.splitlines())
        self.assertIn("WEFT_SOCKETS=fallback", done.stdout.splitlines())
        done = weft("run", "--sockets=maybe", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--sockets=fallback", done.stderr)

    def test_the_shared_heap_is_preloaded(self):
        libraries.needs_plain_libraries()
        node = f"{libraries.FOLDER}/libweft-node.so"
        heap = f"{libraries.FOLDER}/libweft-shared-heap.so"
        self.assertIn(f"LD_PRELOAD={heap}:{node}", weft("run", "env").stdout.splitlines())
        done = weft("run", "env", LD_PRELOAD="libc.so.6")
        self.assertIn(f"LD_PRELOAD={heap}:libc.so.6:{node}", done.stdout.splitlines())
        for options in (("--shared-heap", "off"), ("--sockets",)):
            self.assertNotIn(heap, weft("run", *options, "env").stdout)
        done = weft("run", "--sockets", "--shared-heap", "all", "env")
        self.assertIn(heap, done.stdout)
        self.assertIn("WEFT_SHARED_HEAP=all", done.stdout.splitlines())
        for variable, value in (("WEFT_SHARED_HEAP", "some"), ("WEFT_SHARED_HEAP_LIMIT", "0"),
                                ("WEFT_SHARED_HEAP_LIMIT", "1G")):
            done = weft("run", "env", **{variable: value})
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{variable}={value}: must be", done.stderr)

    def test_the_node_of_the_device_is_there(self):
        libraries.needs_plain_libraries()
        node = "/dev/infiniband/uverbs0"
        done = weft("run", "-q", "--", "stat", "-c", "%F", node)
        self.assertEqual(done.stdout, "character special file\n", done.stderr)
        script = f"test -r {node} && test -w {node} && cat < {node} && cat {node} && echo all"
        self.assertEqual(weft("run", "-q", "--", "sh", "-c", script).stdout, "all\n")
        self.assertNotEqual(weft("run", "-q", "--", "stat", node + "x").returncode, 0)

    def test_sockets_need_their_library(self):
        with tempfile.TemporaryDirectory() as folder:
            copy, beside = libraries.copied_program(folder)
            (beside / "libibverbs.so.1").touch()
            done = libraries.run(copy, "run", "--sockets", "--", "/bin/true",
                                 env=plain_environment())
            self.assertEqual(done.returncode, 126)
            self.assertIn(f"libweft-sockets.so, which --sockets needs, is not in {beside}",
                          done.stderr)
            self.assertIn("install it again", done.stderr)

    def test_says_that_the_library_of_the_node_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            copy, beside = libraries.copied_program(folder)
            (beside / "libibverbs.so.1").touch()
            done = libraries.run(copy, "run", "--", "/bin/echo", "runs", env=plain_environment())
            self.assertEqual(done.stdout, "runs\n", done.stderr)
            self.assertIn(f"libweft-node.so is not in {beside}", done.stderr)

    def test_a_folder_that_the_loader_would_cut_is_refused(self):
        for name in ("a b", "a:b", "a;b"):
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder, name)
                copy = root / "bin" / "weft"
                beside = root / "lib" / "weft"
                copy.parent.mkdir(parents=True)
                beside.parent.mkdir()
                beside.symlink_to(libraries.FOLDER)
                shutil.copy(libraries.WEFT, copy)
                done = libraries.run(copy, "run", "--", "/bin/echo", "ran", env=plain_environment())
                self.assertEqual((done.returncode, done.stdout), (126, ""), name)
                self.assertIn(f"{beside}, because its name has", done.stderr)
                done = libraries.run(copy, "doctor", "--json", env=plain_environment())
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(f"{beside}, because its name has", done.stdout)
                done = libraries.run(copy, "doctor", "--serve", env=plain_environment())
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(f"{beside}, because its name has", done.stderr)

    def test_options_become_variables(self):
        libraries.needs_plain_libraries()
        done = weft("run", "--quiet", "--addr", "127.0.0.1", "--personality",
                    "iwarp", "--progress", "manual", "--no-ack",
                    "--no-crc", "--priority", "-20", "--port-offset", "5",
                    "--capture", "x.pcapng", "--", "env", LD_LIBRARY_PATH="/before")
        self.assertEqual(done.stderr, "")
        lines = done.stdout.splitlines()
        for line in ("WEFT_ADDR=127.0.0.1", "WEFT_PERSONALITY=iwarp",
                     "WEFT_PROGRESS=manual", "WEFT_ACK=0", "WEFT_CRC=0",
                     "WEFT_PRIORITY=-20", "WEFT_PORT_OFFSET=5",
                     f"WEFT_CAPTURE={os.getcwd()}/x.pcapng",
                     f"LD_LIBRARY_PATH={libraries.FOLDER}:/before"):
            self.assertIn(line, lines)

    def test_descriptors_up_to_the_hard_limit(self):
        libraries.needs_plain_libraries()
        done = libraries.run("sh", "-c", f"ulimit -S -n 64; '{libraries.WEFT}' run -q -- sh -c "
                             "'ulimit -S -n; ulimit -H -n'", env=plain_environment())
        soft, hard = done.stdout.split()
        self.assertEqual(soft, hard)

    def test_static_programs_are_warned_of(self):
        compiler = libraries.needs("cc")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "still")
            built = subprocess.run([compiler, "-static", "-x", "c", "-", "-o", path],
                                   input="int main(void) { return 3; }", text=True, check=False,
                                   stderr=subprocess.DEVNULL)
            if built.returncode != 0:
                self.skipTest("the compiler cannot link statically")
            done = weft("run", "-q", "--", path)
            self.assertEqual(done.returncode, 3)
            self.assertIn("linked statically", done.stderr)

    def test_programs_whose_sockets_stay_are_named(self):
        libraries.needs_plain_libraries()
        compiler = libraries.needs("cc")
        # The note by which Go's linker names its programs: owner, length and type as in the ELF
        # specification, and a build ID.
        note = """
        .section .note.go.buildid,"a",%note
        .align 4
        .long 4, 8, 4
        .ascii "Go\\0\\0"
        .ascii "build-id"
        .previous
        """
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program")
            for options, code, said in (([], f"__asm__({json.dumps(note)});", "is a Go program"),
                                        (["-static"], "", "cannot load the library for sockets"),
                                        ([], "", None)):
                built = subprocess.run([compiler, *options, "-x", "c", "-", "-o", path],
                                       input=code + "int main(void) { return 3; }", text=True,
                                       check=False, stderr=subprocess.PIPE)
                if built.returncode != 0 and options:
                    continue  # the compiler cannot link statically
                self.assertEqual(built.returncode, 0, built.stderr)
                done = weft("run", "--sockets", "--", path)
                self.assertEqual(done.returncode, 3)
                self.assertEqual(said is None, "its TCP sockets are RDMA streams" in done.stderr)
                if said:
                    self.assertIn(said, done.stderr)

    def test_setuid_programs_are_warned_of(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make a program of somebody else")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "raised")
            shutil.copy(libraries.needs("true"), path)
            os.chown(path, 65534, -1)
            path.chmod(path.stat().st_mode | stat.S_ISUID)
            done = weft("run", "-q", "--", path)
            self.assertIn("more privileges than its caller", done.stderr)


class Misuse(unittest.TestCase):
    def check(self, status, sentence, *arguments, **more):
        done = weft(*arguments, **more)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_usage_errors_are_2(self):
        self.check(2, "no option '--bogus'", "run", "--bogus", "--", "true")
        self.check(2, "which program?", "run")
        self.check(2, "which program?", "run", "--")
        self.check(2, "no such command or option: bogus\n      `weft --help`", "bogus")
        self.check(2, "doctor: no such option or argument: x\n      `weft doctor --help`", "doctor",
                   "x")
        self.check(2, "pid = x: must be a number\n      `weft top --help`", "top", "x")
        self.check(2, "--slowest: Value -1 not in range", "dissect", "--slowest", "-1", "x.pcap")
        self.check(2, "--clock-offset excludes --live", "dissect", "--live", "lo",
                   "--clock-offset", "a.pcap=1")
        self.check(2, "--port: needs --peer or --serve\n      `weft doctor --help`", "doctor",
                   "--port", "20886")
        self.check(2, "--port: Value 0 not in range 1 to 65535\n      `weft doctor --help`",
                   "doctor", "--port", "0")
        self.check(2, "`weft run --help` lists its options", "run", "--addr")
        self.check(2, "Usage", )
        self.check(2, "no help on 'bogus'", "help", "bogus")

    def test_words_behind_two_dashes_are_operands(self):
        self.check(1, "top: processes 999999998, 999999999: no Weft device", "top", "--once",
                   "999999998", "--", "999999999")
        self.check(2, "pid = --once: must be a number", "top", "--", "--once")
        self.check(2, "doctor: no such option or argument: --json", "doctor", "--", "--json")
        self.check(2, "no help on '--version'", "help", "--", "--version")
        self.check(2, "no such command or option: doctor", "--", "doctor")

    def test_wrong_values_are_said_before_the_start(self):
        self.check(2, "WEFT_ADDR=localhost: must be a numeric IP address", "run", "--addr",
                   "localhost", "--", "true")
        self.check(2, "WEFT_PROGRESS=fast: must be auto, thread or manual", "run", "--progress",
                   "fast", "--", "true")
        self.check(2, "WEFT_PORT_OFFSET=70000: must be a number from 0 to 65535", "run", "--",
                   "true", WEFT_PORT_OFFSET="70000")
        for priority in ("-21", "20", "1x", "high"):
            self.check(2, f"WEFT_PRIORITY={priority}: must be a number from -20 to 19", "run",
                       "--priority", priority, "--", "true")
        self.check(2, "WEFT_PERSONALITY=opa: must be roce, iwarp or ib", "run", "--personality",
                   "opa", "--", "true")
        self.check(2, "--check-suppressions /no/such/file: No such file or directory; name a file",
                   "run", "--check-suppressions", "/no/such/file", "--", "true")
        self.check(2, "WEFT_GIDS=some: must be one or all", "run", "--", "true", WEFT_GIDS="some")

    def test_processes_without_a_device_are_named(self):
        self.check(1, "top: process 999999999: no Weft device", "top", "--once", "999999999")
        self.check(1, "top: processes 999999998, 999999999: no Weft device", "top", "--once",
                   "999999998", "999999999")

    def test_misspelt_variables_are_pointed_out(self):
        done = weft("run", "-q", "--", "true", WEFT_ADR="127.0.0.1")
        self.assertIn("WEFT_ADR has no effect", done.stderr)


class Background(unittest.TestCase):
    # A shell of a terminal that starts a job in the background, and says how it ended or stopped.
    SHELL = """
import os, subprocess, sys
job = subprocess.Popen(sys.argv[1:], preexec_fn=os.setpgrp)
_, status = os.waitpid(job.pid, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else f"ended {os.waitstatus_to_exitcode(status)}")
if os.WIFSTOPPED(status):
    job.kill()
"""

    def in_background(self, *arguments):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(sys.executable, [sys.executable, "-c", self.SHELL, str(libraries.WEFT),
                                       *arguments], plain_environment())
        said = b""
        with contextlib.suppress(OSError):  # EIO: the shell has ended
            while data := os.read(terminal, 4096):
                said += data
        os.close(terminal)
        os.waitpid(pid, 0)
        return said.decode()

    def test_top_that_needs_no_keys_is_not_stopped(self):
        for option in ((), ("--json",)):
            self.assertIn("ended 0", self.in_background("top", "--once", *option))


class Help(unittest.TestCase):
    def test_version(self):
        self.assertRegex(weft("--version").stdout, r"^weft \d+\.\d+\.\d+\n$")

    def test_help(self):
        self.assertEqual(weft("--help").stdout, weft("help").stdout)
        self.assertIn("run", weft("help").stdout)
        self.assertIn("--capture", weft("help", "run").stdout)

    def test_environment(self):
        text = weft("help", "environment").stdout
        for name in ("ADDR", "ACK", "CAPTURE", "CRC", "CRC_STRICT", "GIDS", "PERSONALITY",
                     "PORT_OFFSET", "PROGRESS", "QUIET"):
            self.assertIn(f"\n  WEFT_{name}\n", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertNotIn("\033", text)


if __name__ == "__main__":
    sys.exit(libraries.main())
