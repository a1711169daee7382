"""The suites of the C++ layers on the kernel's rxe and siw, inside the guest.

The programs of the build run on rdma-core, by WEFT_BACKEND=system. The guest sees the build at the
same path as this machine does.
"""

import collections
import os
import pathlib
import re

import registry
from deviations import DEVIATIONS
from guest import GUEST, Guest
from harness import Failure, Skip, need

# The longest silence of a suite: the guest's processor is emulated, and the machine may be busy.
_SILENCE_S = 300
_MEMORY_MIB = 2048
_LINES_OF_A_FAILURE = 30
# Streams that take over a TCP connection exist on the embedded device only, as do its own counters.
_FILTERS = {
    "verbs_test": "-Backend.*:Devices.AreListedByNameAndBackend:Counters*.*",
    "connection_test": "*",
    "message_test": "*",
    "stream_test": "-Adopting.*",
    "conformance_test": "*",
}
# These fork, and a child of a process that has opened a device of rdma-core shares its context with
# it, which the kernel does not accept. So each runs in a process that has not.
_APART = {
    "message_test": ("Many.*", "Processes.MessagesOf*", "Processes.AKilledPeer*",
                     "Processes.Running*", "Processes.KeepaliveFinds*",
                     "Processes.KeepaliveSpares*"),
}
_DIRECTORIES = {name: name.removesuffix("_test") for name in _FILTERS}
_END = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+) \(\d+ ms\)$")


def build():
    """The folder of the build whose suites run."""
    return pathlib.Path(os.environ.get("WEFT_KERNEL_BUILD") or
                        pathlib.Path(__file__).resolve().parents[2] / "build/dev")


class Results:
    """What the tests of a suite ended with, as its output has it."""

    def __init__(self):
        self.ended = {}  # test: OK, FAILED or SKIPPED
        self.reasons = collections.Counter()
        self.failures = []  # what the tests that failed printed
        self._said = []  # what the running test has printed
        self._reason = ""
        self._running = ""

    def take(self, line):
        end = _END.match(line)
        if end:
            self.ended[end[2]] = end[1]
            if end[1] == "SKIPPED":
                self.reasons[self._reason] += 1
            elif end[1] == "FAILED":
                self.failures += [*self._said[-_LINES_OF_A_FAILURE:], line]
            self._running = ""
        elif line.startswith("[ RUN      ] "):
            self._running, self._reason, self._said = line[13:], "", []
        else:
            self._said.append(line)
            if line and not line.endswith(": Skipped"):
                self._reason = line

    def need_finished(self, name):
        need(not self._running, f"{name}: {self._running} did not end")

    def show(self, name):
        count = collections.Counter(self.ended.values())
        print(f"{name}: {count['OK']} passed, {count['SKIPPED']} skipped, "
              f"{count['FAILED']} failed")
        for reason, times in self.reasons.most_common():
            print(f"  {times} skipped: {reason}")
        for line in self.failures:
            print(f"  {line}")

    def failed(self):
        return [test for test, end in self.ended.items() if end == "FAILED"]


def follow(side, name, results):
    """Waits for the end of a process of the suite, while its output goes on."""
    seen = 0
    try:
        while True:
            side.expect("", _SILENCE_S, start=seen)
            for line in side.lines[seen:side.read]:
                results.take(line)
            seen = side.read
            if re.match(r"\[==========\] .* ran\. ", side.lines[seen - 1]):
                break
    except Failure as failure:
        results.show(name)
        results.need_finished(name)
        raise Failure(f"{name} stopped: {failure}") from failure


def index_of_gid(guest, device):
    """The index of the GID that is made of the guest's IPv4 address."""
    digits = "".join(f"{int(part):02x}" for part in GUEST[0].split("."))
    gid = f"0000:0000:0000:0000:0000:ffff:{digits[:4]}:{digits[4:]}"
    found = guest.run(f"cd /sys/class/infiniband/{device}/ports/1/gids && grep -lw {gid} *; true")
    need(found.strip(), f"{device} has no GID {gid}")
    return found.split()[0]


def environment(guest, device):
    words = ["WEFT_BACKEND=system", "WEFT_REQUIRE=system", f"WEFT_TEST_DEVICE={device}",
             f"WEFT_TEST_ADDRESS={GUEST[0]}"]
    if device == "rxe0":
        words.append(f"WEFT_TEST_GID={index_of_gid(guest, device)}")
    return words


def filters_of(kind, suite):
    """The filters of googletest, one for each process: all tests but what the embedded device
    alone has, and deviations."""
    apart = _APART.get(suite, ())
    wanted, left_out = _FILTERS[suite], [*apart, *DEVIATIONS.get((kind, suite), {})]
    if left_out:
        wanted += (":" if "-" in wanted else "-") + ":".join(left_out)
    return [wanted, *apart]


def run_suite(stage, kind, suite):
    program = build() / "tests" / _DIRECTORIES[suite] / suite
    if not program.exists():
        raise Skip(f"{program} is not built")
    with Guest(stage, device=kind, shared=(build(),), memory_mib=_MEMORY_MIB) as guest:
        name, results, settings = f"{suite} on {kind}", Results(), environment(guest, f"{kind}0")
        for tests in filters_of(kind, suite):
            side = guest.start(name, "env", *settings, program, f"'--gtest_filter={tests}'")
            follow(side, name, results)
            side.finish(status=None)
        results.show(name)
        for test, reason in DEVIATIONS.get((kind, suite), {}).items():
            print(f"  not run: {test}: {reason}")
        need(not results.failed(), f"failed on {kind}: {' '.join(results.failed())}")
        need("OK" in results.ended.values(), f"no test of {suite} has passed on {kind}")
        guest.need_healthy()


def add(kind, suite):
    registry.add(f"suites.{suite}.{kind}", lambda stage: run_suite(stage, kind, suite),
                 timeout_s=3600)


for _suite in _FILTERS:
    add("rxe", _suite)
    if _suite != "conformance_test":  # its queue pairs connect by number, without rdma_cm
        add("siw", _suite)
