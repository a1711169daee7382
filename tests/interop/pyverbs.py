"""rdma-core's own tests, as python3-pyverbs ships them, on the device."""

import collections
import gzip
import os
import re
import shutil

import cases
import harness
from harness import Skip, need

_TESTS = "/usr/share/doc/rdma-core/tests"
_PYTHON = "/usr/bin/python3"  # the one that Debian's package is for
_WITHIN_S = 240

# The tests of connection management look at sysfs for the network interface of a device. Their own
# mount namespace shows them one; where there are no namespaces, they are skipped.
_AS_IF_OF_LOOPBACK = """
if mount -t tmpfs none /sys/class 2>/dev/null; then
  mkdir -p /sys/class/infiniband/weft0/device/net/lo
fi
exec "$@"
"""

# Newer releases of the tests ask the kernel for that interface, which knows nothing of the device.
_RDMA = """#!/bin/sh
echo '[{"ifname": "weft0", "port": 1, "state": "ACTIVE", "netdev": "lo"}]'
"""
# They pass their objects to processes, which since Python 3.14 would have to be told how.
_AS_BEFORE = """
import multiprocessing
multiprocessing.set_start_method("fork")
"""

_SKIPPED = re.compile(r" \.\.\. (?:.*\s)?skipped ['\"](.*)['\"]$")
_VENDORS = re.compile(r"(?i)mlx5|efa\b|\bDC\b|cuda|tag matching|PCI device")

# What passes at the least, with and without the interface, by the number of tests that the release
# of rdma-core has: 44, 56 and 65. More is to be noted here.
_PASSED = {273: {True: 142, False: 132}, 321: {True: 151, False: 140}, 390: {True: 184, False: 170}}


def unpack(scratch):
    """The tests as python finds them: the package compresses the larger ones."""
    os.makedirs(scratch)
    for name in os.listdir(_TESTS):
        source, target = os.path.join(_TESTS, name), os.path.join(scratch, name)
        if name.endswith(".gz"):
            with gzip.open(source) as packed, open(target.removesuffix(".gz"), "wb") as plain:
                shutil.copyfileobj(packed, plain)
        else:
            shutil.copy(source, target)


def prepare(scratch):
    """What the tests need of the machine, as variables of the environment."""
    programs, modules = os.path.join(scratch, "bin"), os.path.join(scratch, "modules")
    os.makedirs(programs)
    os.makedirs(modules)
    with open(os.path.join(programs, "rdma"), "w", encoding="ascii") as file:
        file.write(_RDMA)
        os.fchmod(file.fileno(), 0o755)
    with open(os.path.join(modules, "sitecustomize.py"), "w", encoding="ascii") as file:
        file.write(_AS_BEFORE)
    return {"PATH": programs + os.pathsep + os.environ["PATH"], "PYTHONPATH": modules}


def may_mount():
    return harness.succeeds("unshare", "--user", "--map-root-user", "--mount", "mount", "-t",
                            "tmpfs", "none", "/sys/class")


def results_of(lines):
    """The reasons of those that were skipped, and the names of those that failed."""
    skipped, failed = collections.Counter(), []
    for line in lines:
        found = re.search(r"^(?:FAIL|ERROR): (\w+) ", line)
        if found:
            failed.append(found.group(1))
        found = _SKIPPED.search(line)
        if found:
            skipped[found.group(1)] += 1
    return skipped, failed


def described(passed, skipped, total):
    """One sentence for the table: each reason, those of other vendors' devices as one."""
    vendors = sum(count for why, count in skipped.items() if _VENDORS.search(why))
    others = [f"{count} {why}" for why, count in skipped.most_common() if not _VENDORS.search(why)]
    return (f"{passed} of {total}; skipped: {vendors} for other vendors' devices, "
            + ", ".join(others))


@cases.case("pyverbs.rdma_core_tests", timeout_s=_WITHIN_S + 60)
def rdma_core_tests(stage):
    if not os.path.isdir(_TESTS):
        raise Skip("python3-pyverbs is not installed")
    place = stage.scratch("rdma-core")
    unpack(os.path.join(place, "tests"))
    command = [_PYTHON, os.path.join(place, "tests", "run_tests.py"), "-v"]
    with_interface = may_mount()
    if with_interface:
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                   _AS_IF_OF_LOOPBACK, "sh", *command]
    # A namespace of its own is anybody's but for root's without capabilities: user_namespaces(7).
    side = stage.start("tests", harness.installed(command[0]), *command[1:], env=prepare(place),
                       privileged=with_interface)
    stage.ran[-1] = "tests: weft run -- python3 run_tests.py -v"
    side.finish(_WITHIN_S, status=None)
    ran = re.search(r"^Ran (\d+) tests", side.output, re.MULTILINE)
    need(ran, "the tests did not come to their end")
    total = int(ran.group(1))
    skipped, failed = results_of(side.lines)
    need(not failed, f"failed: {', '.join(sorted(failed))}")
    passed = total - sum(skipped.values())
    least = _PASSED.get(total, _PASSED[273])[with_interface]
    need(passed >= least, f"only {passed} passed, and not {least}")
    stage.note = described(passed, skipped, total)
    print(stage.note)
