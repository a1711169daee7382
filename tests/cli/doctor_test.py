"""`weft doctor`: what it says of this machine, and how it tries the device."""

import ctypes
import errno
import json
import os
import pathlib
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "dropin"))
import libraries  # pylint: disable=wrong-import-position

DROP = ("WEFT_", "LD_LIBRARY_PATH")

# Ends with the errno value of reading a word of its parent, whose addresses it has as a copy.
READS_ITS_PARENT = r"""
import ctypes, os
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]
library = ctypes.CDLL(None, use_errno=True)
word, copy = ctypes.c_int(7), ctypes.c_int(0)
pieces = [Piece(ctypes.addressof(each), 4) for each in (copy, word)]
parent, child = os.getpid(), os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
got = library.process_vm_readv(parent, ctypes.byref(pieces[0]), 1, ctypes.byref(pieces[1]), 1, 0)
os._exit(0 if got == 4 else ctypes.get_errno())
"""


# Of a filter of system calls: the number of the call is at 0, its first argument at 16.
LOAD, EQUALS, ANSWER = 0x20, 0x15, 0x06
DECIDE = [(ANSWER, 0, 0, 0x50000 | errno.EPERM), (ANSWER, 0, 0, 0x7FFF0000)]


def refuse_netlink():
    """For the child: socket(AF_NETLINK) fails with EPERM."""
    number = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
    install_filter([(LOAD, 0, 0, 0), (EQUALS, 0, 3, number), (LOAD, 0, 0, 16), (EQUALS, 0, 1, 16),
                    *DECIDE])


def install_filter(lines):
    """The instructions of BPF decide on each system call of this process (seccomp(2))."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code)))
    library = ctypes.CDLL(None, use_errno=True)
    for call in ((38, 1, 0, 0, 0), (22, 2, program, 0, 0)):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        if library.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


MACHINES = ("x86_64", "aarch64")
# Optional calls, with their numbers on these machines, and what the note about each says.
OPTIONAL_CALLS = {
    "preadv2": (327, 286, "poll and read"),
    "msync": (26, 227, "registering memory takes longer"),
    "mincore": (27, 232, "reads a byte of each page"),
    "getrandom": (318, 278, "/dev/urandom"),
    "process_vm_readv": (310, 270, "memory that is unmapped"),
    "sendmmsg": (307, 269, "leave one by one"),
    "recvmmsg": (299, 243, "arrive one by one"),
    "socketpair": (53, 199, "begins with TCP"),
    "membarrier": (324, 283, "locks of the data path"),
    "flock": (73, 32, "counters below /sys/class/infiniband"),
    "rt_sigpending": (127, 136, "just before `ibv_get_cq_event` sleeps"),
    "rt_tgsigqueueinfo": (297, 240, "no details of the signal"),
    "statx": (332, 291, "treated as a pipe"),
}


def refuse_call(name):
    """For the child: the system call fails with EPERM, as sandboxes do it."""
    number = OPTIONAL_CALLS[name][MACHINES.index(os.uname().machine)]
    install_filter([(LOAD, 0, 0, 0), (EQUALS, 0, 1, number), *DECIDE])


def doctor(*arguments, before=(), preexec_fn=None, **more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(DROP)}
    return libraries.run(*before, libraries.WEFT, "doctor", *map(str, arguments),
                         env={**clean, **more}, preexec_fn=preexec_fn)


def findings(done):
    """What was found, by subject; the last of each."""
    return {entry["subject"]: entry for entry in json.loads(done.stdout)["findings"]}


class Doctor(unittest.TestCase):
    def setUp(self):
        libraries.needs_plain_libraries()  # its self-test runs itself with them

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
        for subject in ("adapters", "rdma-core", "addresses", "descriptors", "priority",
                        "system calls", "debug registers", "ports", "open port", "device",
                        "personality", "self-test"):
            self.assertIn(found[subject]["health"], ("ok", "note"), subject)
        self.assertIn("weft0", found["device"]["sentence"])

    def test_it_shows_whether_the_thread_may_have_priority(self):
        def refuse_priority():
            number = {"x86_64": 141, "aarch64": 140}[os.uname().machine]
            install_filter([(LOAD, 0, 0, 0), (EQUALS, 0, 1, number), *DECIDE])

        self.assertIn("WEFT_PRIORITY=-20", findings(doctor("--json"))["priority"]["sentence"])
        refused = findings(doctor("--json", preexec_fn=refuse_priority))["priority"]
        self.assertEqual(refused["health"], "ok")
        self.assertIn("may not have the priority -20 (Operation not permitted)",
                      refused["sentence"])

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
        self.assertIn("leave TCP", found["sentence"])
        if found["health"] != "ok":
            self.assertIn("read each other's memory", found["sentence"])
            self.assertTrue(found["fix"])
        found = findings(doctor("--json", WEFT_SAME_HOST="staged"))["same host"]
        self.assertEqual(found["health"], "note")
        self.assertIn("leave TCP, but", found["sentence"])
        self.assertIn("takes two copies, because WEFT_SAME_HOST is staged.", found["sentence"])
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

    def test_lines_that_are_no_result_are_no_problem(self):
        for variables in ({"WEFT_LINK": "latency=1ms"}, {"LD_PRELOAD": "/nonexistent.so"},
                          {"WEFT_FAULT": "RNR at arrival nth=1000"}):
            done = doctor("--json", **variables)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("With 127.0.0.1", findings(done)["self-test"]["sentence"])
            self.assertIn("read", findings(done)["self-test"]["sentence"])

    def test_it_knows_whether_processes_may_read_each_other(self):
        """Where Yama has the scope 1, a process may read its children, and no other process."""
        refused = subprocess.run([sys.executable, "-c", READS_ITS_PARENT], check=False,
                                 stdin=subprocess.DEVNULL).returncode
        found = findings(doctor("--json"))["process memory"]
        self.assertEqual(found["health"], "note" if refused else "ok", found)
        if refused:
            self.assertIn(os.strerror(refused), found["sentence"])

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

    def test_names_of_programs_do_not_control_the_terminal(self):
        libraries.needs_plain_libraries()
        script = ("import ctypes, socket\n"
                  "ctypes.CDLL(None).prctl(15, b'\\x1b[31m\\xc2\\x9b', 0, 0, 0)\n"  # PR_SET_NAME
                  "with socket.socket() as end:\n"
                  "    end.bind(('127.0.0.1', 0)); end.listen()\n"
                  "    print(end.getsockname()[1], flush=True); input()\n")
        with subprocess.Popen([libraries.WEFT, "run", "-q", "--", sys.executable, "-c", script],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            port = int(program.stdout.readline())
            done = doctor()
            program.communicate("\n")
        self.assertIn(f"TCP port {port} at 127.0.0.1", " ".join(done.stdout.split()))
        self.assertIn("?[31m??", done.stdout)
        self.assertNotIn("\033", done.stdout)

    def test_it_knows_its_own_library(self):
        libraries.needs_plain_libraries()
        done = doctor("--json", before=(libraries.WEFT, "run", "-q", "--"))
        self.assertIn("Weft's own libibverbs.so.1", findings(done)["rdma-core"]["sentence"])

    def test_addresses_that_cannot_be_listed(self):
        done = doctor("--json", preexec_fn=refuse_netlink)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot be listed: getifaddrs: Operation not permitted",
                      findings(done)["addresses"]["sentence"])
        self.assertNotIn("loopback interface is down", done.stdout)

    def test_optional_calls_that_are_refused_are_notes(self):
        if os.uname().machine not in MACHINES:
            self.skipTest("the numbers of the calls are not known for this machine")
        known = findings(doctor("--json"))["system calls"]["sentence"]
        for name, (_, _, words) in OPTIONAL_CALLS.items():
            with self.subTest(call=name):
                self.assertIn(name, known)
                done = doctor("--json", preexec_fn=lambda refused=name: refuse_call(refused))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                notes = [each["sentence"] for each in json.loads(done.stdout)["findings"]
                         if each["subject"] == "system calls" and each["health"] == "note"]
                mine = [note for note in notes if note.startswith(name)]
                self.assertEqual(len(mine), 1, notes)
                self.assertIn("is not available (Operation not permitted): ", mine[0])
                self.assertIn(words, mine[0])
                self.assertNotIn(name + ",", findings(done)["system calls"]["sentence"])

    def test_who_reaches_addresses_of_ipv4_in_ipv6(self):
        for address, who in (("::ffff:127.0.0.1", "programs of this host only"),
                             ("::ffff:0.0.0.0", "every host that reaches this one")):
            with socket.socket(socket.AF_INET6) as end:
                for port in range(28672, 28672 + 1024):
                    try:
                        end.bind((address, port))
                        break
                    except OSError:
                        continue
                end.listen()
                said = json.loads(doctor("--json").stdout)["findings"]
            mine = [each["sentence"] for each in said if f"TCP port {port} at [{address}]" in
                    each["sentence"]]
            self.assertEqual(len(mine), 1, said)
            self.assertIn(f"is open to {who}", mine[0])

    def test_ports_of_datagrams_have_their_owner(self):
        libraries.needs_plain_libraries()
        script = ("import socket\n"
                  "ends = [socket.socket(family, socket.SOCK_DGRAM) for family in\n"
                  "        (socket.AF_INET, socket.AF_INET, socket.AF_INET)]\n"
                  "for end, address in zip(ends, ('127.0.0.1', '0.0.0.0', '127.0.0.1')):\n"
                  "    end.bind((address, 0))\n"
                  "ends[2].connect(('127.0.0.1', ends[0].getsockname()[1]))\n"
                  "print(*(end.getsockname()[1] for end in ends), flush=True); input()\n")
        with subprocess.Popen([libraries.WEFT, "run", "-q", "--", sys.executable, "-c", script],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            here, everywhere, connected = program.stdout.readline().split()
            said = [each["sentence"] for each in json.loads(doctor("--json").stdout)["findings"]
                    if each["subject"] == "open port"]
            program.communicate("\n")
        for port, address, who in ((here, "127.0.0.1", "programs of this host only"),
                                   (everywhere, "0.0.0.0", "every host that reaches this one")):
            mine = [sentence for sentence in said
                    if f"UDP port {port} at {address} is open to {who} (" in sentence]
            self.assertEqual(len(mine), 1, said)
            self.assertIn(f"process {program.pid}).", mine[0])
        # A connected one takes datagrams of its peer only.
        self.assertFalse([sentence for sentence in said if f" port {connected} " in sentence], said)

    def test_reserved_ports_are_not_given_to_connections(self):
        unshare = shutil.which("unshare")
        alone = [unshare, "--user", "--map-root-user", "--net", "--"]
        if not unshare or libraries.run(*alone, "true").returncode != 0:
            self.skipTest("no user and network namespaces")
        for reserved, notes in (("", 1), ("28672-29694", 1), ("28672-29695", 0),
                                ("22,28600-29000,29001-30000", 0)):
            script = ('echo "28000 60999" >/proc/sys/net/ipv4/ip_local_port_range && '
                      f'echo "{reserved}" >/proc/sys/net/ipv4/ip_local_reserved_ports && exec "$@"')
            done = doctor("--json", before=[*alone, "sh", "-c", script, "sh"])
            said = [each for each in json.loads(done.stdout)["findings"]
                    if each["subject"] == "ports" and "outgoing" in each["sentence"]]
            self.assertEqual(len(said), notes, reserved)

    def test_a_missing_program_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            copy, beside = libraries.copied_program(folder)
            (beside / "libibverbs.so.1").touch()
            done = libraries.run(copy, "doctor", "--json")
        for subject in ("device", "self-test"):
            self.assertIn(f"{beside}/selftest cannot be started: No such file",
                          findings(done)[subject]["sentence"])

    def test_options_that_make_no_sense(self):
        nonsense = (["--serve", "--peer", "::1"], ["--serve", "--json"], ["--port", "20886"],
                    ["--port", "0"], ["--port", "x"], ["--pear"])
        for options in nonsense:
            done = doctor(*options)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn("weft doctor --help", done.stderr)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(libraries.main())
