"""Runs one interoperability test, or lists them all.

usage: run.py CASE          exit status 0: passed, 1: failed, 77: skipped, with the reason printed
       run.py --list        NAME TIMEOUT_SECONDS LABEL for each
       run.py --sanitized   the names of those that an instrumented build runs

Each run leaves a line of JSON in the file that WEFT_INTEROP_RESULTS names, for a table.
"""

import fcntl
import json
import os
import subprocess
import sys
import time

import cases
import harness

# Each adds its tests to cases.CASES.
import accepting  # noqa: F401
import bad_input  # noqa: F401
import bypasses  # noqa: F401
import captures  # noqa: F401
import ceph  # noqa: F401
import check  # noqa: F401
import connections  # noqa: F401
import counted  # noqa: F401
import crowds  # noqa: F401
import dapl  # noqa: F401
import daemons  # noqa: F401
import datagrams  # noqa: F401
import faults  # noqa: F401
import gids  # noqa: F401
import death  # noqa: F401
import disconnects  # noqa: F401
import endurance  # noqa: F401
import half_spoken  # noqa: F401
import hostile  # noqa: F401
import hostile_layers  # noqa: F401
import hostile_local  # noqa: F401
import hostile_pairs  # noqa: F401
import hostile_programs  # noqa: F401
import iscsi  # noqa: F401
import killed  # noqa: F401
import killed_peer  # noqa: F401
import left_to_kernel  # noqa: F401
import libfabric  # noqa: F401
import lids  # noqa: F401
import links  # noqa: F401
import lossy  # noqa: F401
import mpi  # noqa: F401
import perftest  # noqa: F401
import pingpong  # noqa: F401
import prefork  # noqa: F401
import pyverbs  # noqa: F401
import qperf  # noqa: F401
import rdmacm_utils  # noqa: F401
import refusals  # noqa: F401
import rsockets  # noqa: F401
import rpma  # noqa: F401
import sandboxes  # noqa: F401
import services  # noqa: F401
import shared_heap  # noqa: F401
import shared_ports  # noqa: F401
import sockets  # noqa: F401
import sources  # noqa: F401
import spdk  # noqa: F401
import storage  # noqa: F401
import sysfs  # noqa: F401
import top  # noqa: F401
import traces  # noqa: F401
import targets  # noqa: F401
import two_hosts  # noqa: F401
import ucx  # noqa: F401
import vanished_host  # noqa: F401
import verbs_utils  # noqa: F401

# They run cases of the modules above.
import clean_captures  # noqa: F401
import sandboxed_suite  # noqa: F401

SKIP_STATUS = 77


def version_of(package):
    """As Debian counts it, or nothing where there is no dpkg."""
    try:
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package],
                              capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def record(case, stage, result, seconds, note):
    """One line for this case in the results; what an earlier run said of it goes."""
    path = os.environ.get("WEFT_INTEROP_RESULTS")
    if not path:
        return
    line = {"case": case.name, "program": case.program, "package": case.package,
            "version": case.package and version_of(case.package), "result": result, "note": note,
            "personalities": stage.personalities(), "seconds": round(seconds, 2),
            "ran": stage.ran[:4]}
    with open(path, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        kept = [text for text in file
                if json.loads(text)["case"] in cases.CASES.keys() - {case.name}]
        file.truncate(0)
        file.writelines(kept + [json.dumps(line, ensure_ascii=False) + "\n"])


def run(case):
    stage, start = harness.Stage(), time.monotonic()
    result, note, status = "passed", "", 0
    try:
        if case.long and not harness.is_long():
            raise harness.Skip("a long test: ./dev test --long runs it")
        with stage:
            case.run(stage)
        note = stage.note
    except harness.Skip as reason:
        result, note, status = "skipped", str(reason), SKIP_STATUS
        print(f"skipped: {reason}")
    except harness.Failure as failure:
        result, note, status = "failed", str(failure), 1
        print(f"FAILED {case.name}: {failure}")
    seconds = time.monotonic() - start
    record(case, stage, result, seconds, note)
    print(f"{case.name}: {result} in {seconds:.1f} s")
    return status


def main(arguments):
    if arguments == ["--list"]:
        for case in cases.CASES.values():
            print(case.name, case.timeout_s, "sources" if case.sources else "packages")
        return 0
    if arguments == ["--sanitized"]:
        for case in cases.CASES.values():
            if case.sanitized:
                print(case.name, case.timeout_s, "packages")
        return 0
    if len(arguments) != 1 or arguments[0] not in cases.CASES:
        print(__doc__, file=sys.stderr)
        return 2
    return run(cases.CASES[arguments[0]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
