"""What `./dev soak` runs: attacks of hostile peers at random, connections one after the other,
kills, stops and forks, with one seed after the other, until WEFT_SOAK_HOURS are over; then one
table of what was run. WEFT_SOAK_ONLY is a regular expression: only the parts whose names match run.

A round of all parts churns 10^6 connections and kills either side 1000 times over each carrier; it
takes hours. Its parts run in slices that take turns, so that a short run has some of each.
"""

import dataclasses
import os
import random
import re
import time
from typing import Callable

import death
import endurance
import harness
import hostile
import hostile_layers
import hostile_pairs

_TCP = {"WEFT_SAME_HOST": "off"}
_FORKS_OF = 1000
_LIMIT_NS = 60_000_000_000  # of noticing a death: a soak may have the lowest priority


@dataclasses.dataclass
class Part:
    name: str
    what: str
    slice: int  # what one turn does
    run: Callable  # of stage, number and seed; returns what to say in the table, or None
    turns: int = 1  # in a row
    done: int = 0
    slices: int = 0
    seconds: float = 0
    last: str = ""
    failures: list = dataclasses.field(default_factory=list)

    def turn(self):
        """One slice. A failure is kept with the seed that finds it again."""
        number = random.SystemRandom().randrange(1 << 32)
        harness.seed.value = number
        began = time.monotonic()
        try:
            with harness.Stage() as stage:
                self.last = self.run(stage, self.slice, number) or self.last
            self.done += self.slice
        except (harness.Failure, OSError) as failure:
            self.failures.append(f"seed {number}: {failure}")
            print(f"FAILED {self.name}, {self.failures[-1]}", flush=True)
        self.slices += 1
        self.seconds += time.monotonic() - began

    def row(self):
        outcome = f"{len(self.failures)} FAILED" if self.failures else "passed"
        return (f"| {self.name} | {self.done} {self.what} | {self.slices} | {self.seconds:.0f} "
                f"| {outcome} | {self.last} |")


def _parts():
    death_parts = [
        Part(f"death.{name}{suffix}", "kills", 50,
             lambda stage, count, _, run=run, env=env: run(stage, count, env, _LIMIT_NS),
             turns=2)
        for name, run in (("of_the_client", death.of_the_client),
                          ("of_the_server", death.of_the_server))
        for suffix, env in (("", None), ("_tcp", _TCP))]
    fork_parts = [
        Part(f"forks.{manner}", "forks", _FORKS_OF,
             lambda stage, count, _, manner=manner: endurance.forks(stage, manner, count))
        for manner in ("exit", "exec", "use")]
    return [
        Part("hostile.mutated", "conversations", 2000, hostile.mutated),
        Part("hostile.pairs_mutated", "conversations", 2000, hostile_pairs.mutated),
        Part("hostile.layers_mutated", "conversations", 5000, hostile_layers.mutated),
        Part("endurance.churn", "connections", 100_000,
             lambda stage, count, _: endurance.churn(stage, count)),
        Part("endurance.pairs", "pairs", 5000,
             lambda stage, count, _: endurance.pairs(stage, count)),
        Part("endurance.pairs_tcp", "pairs", 5000,
             lambda stage, count, _: endurance.pairs(stage, count, _TCP)),
        *death_parts,
        Part("endurance.stops", "stops", 50, endurance.stops),
        Part("endurance.stops_tcp", "stops", 50,
             lambda stage, count, seed: endurance.stops(stage, count, seed, _TCP)),
        *fork_parts,
    ]


def _print_table(parts, began):
    print("\n| what | how much | slices | seconds | outcome | at the end of the last slice |")
    print("|---|---|---|---|---|---|")
    for part in parts:
        if part.slices:
            print(part.row())
    print(f"{(time.monotonic() - began) / 3600:.2f} hours; "
          f"{sum(len(part.failures) for part in parts)} failures", flush=True)
    for part in parts:
        for failure in part.failures:
            print(f"{part.name}: {failure}")


def soak(hours, only):
    began = time.monotonic()
    end = began + hours * 3600
    parts = [part for part in _parts() if re.search(only, part.name)]
    if not parts:
        print(f"no part matches {only}: " + ", ".join(part.name for part in _parts()))
        return 2
    while time.monotonic() < end:
        for part in parts:
            for _ in range(part.turns):
                if time.monotonic() < end:
                    part.turn()
            print(part.row(), flush=True)
    _print_table(parts, began)
    return 1 if any(part.failures for part in parts) else 0


if __name__ == "__main__":
    raise SystemExit(soak(float(os.environ.get("WEFT_SOAK_HOURS", "1")),
                          os.environ.get("WEFT_SOAK_ONLY", "")))
