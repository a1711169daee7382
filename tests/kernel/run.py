"""Runs one test against a device of the kernel, in a guest that it boots, or lists them all.

usage: run.py CASE       exit status 0: passed, 1: failed, 77: skipped, with the reason printed
       run.py --list     NAME TIMEOUT_SECONDS for each
"""

import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import harness  # noqa: E402
import registry  # noqa: E402

# Each adds its tests to registry.CASES.
import layers  # noqa: E402, F401
import package  # noqa: E402, F401
import siw  # noqa: E402, F401
import siw_parameters  # noqa: E402, F401
import siw_perftest  # noqa: E402, F401
import suites  # noqa: E402, F401

SKIP_STATUS = 77


def run(case):
    stage, start = harness.Stage(), time.monotonic()
    result, status = "passed", 0
    try:
        with stage:
            case.run(stage)
    except harness.Skip as reason:
        result, status = "skipped", SKIP_STATUS
        print(f"skipped: {reason}")
    except harness.Failure as failure:
        result, status = "failed", 1
        print(f"FAILED {case.name}: {failure}")
    print(f"{case.name}: {result} in {time.monotonic() - start:.1f} s")
    return status


def main(arguments):
    if arguments == ["--list"]:
        for case in registry.CASES.values():
            print(case.name, case.timeout_s)
        return 0
    if len(arguments) != 1 or arguments[0] not in registry.CASES:
        print(__doc__, file=sys.stderr)
        return 2
    return run(registry.CASES[arguments[0]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
