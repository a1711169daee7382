"""What `./dev soak` runs: the attacks of hostile peers at random, seed after seed, and a table of
what was run. WEFT_SOAK_HOURS is how long.
"""

import os
import random
import time

import harness
import hostile
import hostile_layers
import hostile_pairs

_ATTACKS = {"hostile.mutated": (hostile.mutated, 2000),
            "hostile.pairs_mutated": (hostile_pairs.mutated, 2000),
            "hostile.layers_mutated": (hostile_layers.mutated, 5000)}


def attack(name, seed):
    """A row of the table."""
    mutated, conversations = _ATTACKS[name]
    began = time.monotonic()
    try:
        with harness.Stage() as stage:
            mutated(stage, conversations, seed)
        outcome = "passed"
    except harness.Failure as failure:
        outcome = f"FAILED: {failure}"
    return f"| {name} | {seed} | {conversations} | {time.monotonic() - began:.0f} | {outcome} |"


def soak(hours):
    end = time.monotonic() + hours * 3600
    rows = []
    while time.monotonic() < end:
        for name in _ATTACKS:
            rows.append(attack(name, random.SystemRandom().randrange(1 << 32)))
            print(rows[-1], flush=True)
    failed = sum("FAILED" in row for row in rows)
    print(f"{failed} of {len(rows)} seeds failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(soak(float(os.environ.get("WEFT_SOAK_HOURS", "1"))))
