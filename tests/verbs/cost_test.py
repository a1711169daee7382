"""What the C++ types cost on the data path, in instructions, against the C calls. Run with the
program to measure."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
# A load of the pointer in the handle, and a look at the sign of the result (data_path.hpp).
MOST_APART = 3
NAMES = ("post_send", "post_receive", "post_write", "poll")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def measure(program):
    """What the program says of itself, and {function: instructions of its own}."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("WEFT_")}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        said = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program], text=True,
            env={**environment, "WEFT_QUIET": "1"}, capture_output=True, check=False, timeout=240)
        if said.returncode != 0:
            sys.exit(f"the program ended with {said.returncode}:\n{said.stderr}")
        table = subprocess.run(["callgrind_annotate", "--threshold=100", "--auto=no", out],
                               text=True, capture_output=True, check=True).stdout
    costs = {}
    for line in table.splitlines():
        match = re.match(r"\s*([\d,]+)\s.*?:(\w+_c(?:pp)?)(?:'\d+)?\s", line + " ")
        if match:
            costs[match.group(2)] = (costs.get(match.group(2), 0)
                                     + int(match.group(1).replace(",", "")))
    words = (line.split() for line in said.stdout.splitlines())
    return {name: int(number) for name, number in words}, costs


def main(program):
    for tool in ("valgrind", "callgrind_annotate"):
        if not shutil.which(tool):
            skip(f"there is no {tool}; it is in Debian's package valgrind")
    said, costs = measure(program)
    trouble = []
    for name in NAMES:
        per_call = {}
        for kind in ("c", "cpp"):
            function = f"{name}_{kind}"
            if function not in costs:
                sys.exit(f"callgrind knows nothing of {function}")
            per_call[kind] = costs[function] / said["rounds"]
        print(f"{name}: {per_call['c']:.1f} instructions in C, {per_call['cpp']:.1f} in C++")
        # Far fewer would mean that part of it is in a function of its own.
        if abs(per_call["cpp"] - per_call["c"]) > MOST_APART:
            trouble.append(name)
    if said["allocations"]:
        trouble.append(f"{said['allocations']} allocations")
    if trouble:
        sys.exit(f"too much: {', '.join(trouble)}")


if __name__ == "__main__":
    main(sys.argv[1])
