"""Compares the instructions that `weft dissect` takes for a packet with stored figures.

For each kind of traffic it reads two captures of different length under valgrind. The difference
leaves out what the start of the program costs, so the figures do not depend on the time or on other
work on the machine. They depend on the compiler, so they are stored with its version, and are
compared only where it is the same. `--store` replaces the stored figures by those of this run.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cost_test import SAME_COPIES, compiler, stored_figures  # noqa: E402

STORED = pathlib.Path(__file__).resolve().parent / "stored_captures.json"
# What a packet may cost more than its stored figure before the test fails.
MORE_INSTRUCTIONS = 1.05
# Packets of the two captures. A Write of the large ones has 256 packets.
KINDS = {"large-roce": (1_000, 3_000), "large-iwarp": (500, 1_500),
         "small-roce": (4_000, 12_000), "small-iwarp": (4_000, 12_000)}


def one_processor():
    """A thread that reads ahead would change the figures."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


def run(*command):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("WEFT_")}
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True,
                          env=environment | {"GLIBC_TUNABLES": SAME_COPIES}, timeout=280,
                          preexec_fn=one_processor, check=False)
    # 1: there are findings.
    if done.returncode not in (0, 1):
        sys.exit(f"{command[0]} ended with {done.returncode}:\n{done.stderr}")
    return done


def instructions(weft, capture):
    said = run("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", weft, "dissect",
               capture).stderr
    return int(re.search(r"Collected : (\d+)", said)[1])


def measure(weft, make):
    """{kind: instructions of a packet}"""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "made.pcap"
        for kind, lengths in KINDS.items():
            costs, packets = [], []
            for length in lengths:
                packets.append(int(run(make, kind, length, path).stdout.split()[0]))
                costs.append(instructions(weft, path))
            found[kind] = round((costs[1] - costs[0]) / (packets[1] - packets[0]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("weft")
    parser.add_argument("make")
    settings = parser.parse_args()
    stored = stored_figures(STORED, storing=settings.store)
    now = measure(settings.weft, settings.make)
    for kind, cost in now.items():
        print(f"{kind}: {cost} instructions a packet")
    if settings.store:
        STORED.write_text(json.dumps({"compiler": compiler(), "packets": now}, indent=1) + "\n",
                          encoding="utf-8")
        return
    trouble = [f"{kind}: {cost} instructions instead of {stored['packets'][kind]}"
               for kind, cost in now.items()
               if cost > stored["packets"][kind] * MORE_INSTRUCTIONS]
    if trouble:
        sys.exit("more than the stored figures:\n" + "\n".join(trouble) +
                 f"\nIf this is intended, store the new figures with {pathlib.Path(__file__).name} "
                 "--store, and give the reason in the commit.")


if __name__ == "__main__":
    main()
