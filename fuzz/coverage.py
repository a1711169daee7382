#!/usr/bin/env python3
"""Prints what the inputs of the fuzz targets reach: one line for each target, with the edges of
Weft's own code that were taken, and the number of functions that were never called. --functions
names these functions.

Each argument is what a target printed for `-runs=0 -print_coverage=1`, in a file that is called
NAME.coverage.
"""

import argparse
import pathlib
import re
import sys

FUNCTION = re.compile(r"^(?:UN)?COVERED_FUNC: hits: (\d+) edges: (\d+)/(\d+) (.+) (\S+):(\d+)$")
INPUTS = re.compile(r"^#\d+\s+INITED cov: \d+ ft: \d+ corp: (\d+)/")
OWN_CODE = re.compile(r"/(?:src|include)/")


class Coverage:
    """The edges of one target, and the functions that no input reaches."""

    def __init__(self, text: str):
        self.inputs = self.taken = self.edges = 0
        self.missing = []
        for line in text.splitlines():
            if found := INPUTS.match(line):
                self.inputs = int(found[1])
            elif (found := FUNCTION.match(line)) and is_own(found[5]):
                self.taken += int(found[2])
                self.edges += int(found[3])
                if int(found[1]) == 0:
                    self.missing.append(f"{found[4]} ({found[5].rpartition('/../')[2]}:{found[6]})")

    def percent(self) -> float:
        return 100 * self.taken / self.edges if self.edges else 0.0


def is_own(path: str) -> bool:
    return bool(OWN_CODE.search(path)) and not path.startswith("/usr/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    print(f"{'target':28}{'inputs':>8}{'edges':>16}{'taken':>9}   functions never called")
    for file in options.files:
        coverage = Coverage(file.read_text(errors="replace"))
        edges = f"{coverage.taken}/{coverage.edges}"
        print(f"{file.stem:28}{coverage.inputs:8}{edges:>16}{coverage.percent():8.1f}%"
              f"{len(coverage.missing):6}")
        if options.functions:
            print("".join(f"    {name}\n" for name in coverage.missing), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
