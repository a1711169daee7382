"""Compares the instructions and system calls of the device's main paths with stored figures.

The program `operations` runs each path many times under valgrind. The figures depend on the
compiler, so they are stored with its version, and are compared only where it is the same. The clock
and other work on the machine add a little to them: looks are due every millisecond, and requests
wait for others only while the program posts quickly, which it does not while it has no processor.
So a path that costs more than its stored figure is measured again, and the smallest cost counts.
`--store` replaces the stored figures by those of this run.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
STORED = HERE / "stored.json"
COUNT = 100
# How often the paths are measured before a rise is believed.
ATTEMPTS = 3
# What a path may cost more than its stored figure before the test fails.
MORE_INSTRUCTIONS = 1.05
MORE_CALLS = 1.2
# Where requests wait for others, which they do while the clock says that the program posts quickly:
# on a busy machine more of them leave alone. If none waited, there would be a call for each.
MORE_GATHERED_CALLS = 2
GATHERED = "one post each"
# Of paths with hardly any calls.
FEW_CALLS = 0.2
# Smaller rises of a function are not named.
NAMED_RISE = 10
FIRST_MARK = 0x3FFF0000
# Lets the C library copy with the same instructions on all x86-64 processors.
SAME_COPIES = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM"
# What faults on purpose, traces, `weft top` and checks consist of. Without them a path has only
# branches around it, and no call.
OFF = re.compile(r"\bcheck::|\bfaults::|\bDeviceFaults\b|\bStreamFaults\b|\bLateCompletions\b|"
                 r"\bObservation\b|\bObserved(Stream|Local)Carrier\b|\bRequestWatch\b|"
                 r"\bRequestLatencies\b|\bQueuePairTrace\b|\bTraceFile\b|\bmove_shaped\b|"
                 r"_(observed|polled)\b|\bLiveServer\b")
# Answered without the kernel outside of valgrind; and calls that are made at most every 10 ms.
NO_CALLS = {"clock_gettime", "rt_sigaction", "rt_sigprocmask"}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def run(same_host, *command):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("WEFT_")}
    # The two ends are in one process, but have to copy as two processes do.
    environment |= {"WEFT_QUIET": "1", "WEFT_ADDR": "127.0.0.1", "WEFT_PROGRESS": "manual",
                    "WEFT_SAME_HOST": same_host, "WEFT_OWN_MEMORY": "0",
                    "GLIBC_TUNABLES": SAME_COPIES}
    done = subprocess.run([str(word) for word in command], text=True, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=280)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}:\n{done.stderr}")
    return done


def own_costs(path):
    """{function: instructions of its own} of one file that callgrind has written, and its name."""
    names, costs = {}, collections.Counter()
    trigger, function, is_call = "", None, False
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("desc: Trigger: Client Request: "):
            trigger = line.split(": ", 3)[3]
        named = re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line)
        if named:
            if named[3]:
                names[named[2]] = named[3]
            if named[1] == "fn":
                function = named[2]
        elif line.startswith("calls="):
            is_call = True  # the next line has the cost of the function that is called
        elif function and re.fullmatch(r"[\d+*-]\S* \d+", line):
            if not is_call:
                costs[function] += int(line.split()[1])
            is_call = False
    return trigger, {names.get(number, number): cost for number, cost in costs.items() if cost}


def short(function):
    """Without arguments and the namespace of the project, which are most of a long name."""
    name = function.replace("(anonymous namespace)::", "").replace("weft::", "")
    return name.split("(")[0] or name


def instructions(program, same_host):
    """{path: {function: instructions of an operation}}"""
    with tempfile.TemporaryDirectory() as folder:
        run(same_host, "valgrind", "--tool=callgrind",
            f"--callgrind-out-file={folder}/out", program, COUNT)
        found = {}
        for path in pathlib.Path(folder).iterdir():
            trigger, costs = own_costs(path)
            if not trigger:
                continue
            table = found[trigger] = collections.Counter()
            for function, cost in costs.items():
                table[short(function)] += cost / COUNT
        return found


def system_calls(program, same_host):
    """{path: {system call: calls of an operation}}"""
    done = run(same_host, "valgrind", "--tool=none", "--trace-syscalls=yes", program, COUNT)
    names = done.stdout.splitlines()
    found = {name: collections.Counter() for name in names}
    current = None
    for call, argument in re.findall(r"^SYSCALL\[[\d,]+\]\(\s*\d+\) sys_(\w+)\s*\(\s*(-?\d*)",
                                     done.stderr, re.MULTILINE):
        mark = int(argument or 0) - FIRST_MARK
        if call == "getpgid" and 0 <= mark < 2 * len(names):
            current = names[mark // 2] if mark % 2 == 0 else None
        elif current and call not in NO_CALLS:
            found[current][call] += 1 / COUNT
    return found


def switched_off(costs):
    """What a path called although it is off, in sentences."""
    for path, functions in costs.items():
        for name in functions:
            if OFF.search(name):
                yield f"{path}: {name} is called, although nobody asked for it"


def compiler():
    said = subprocess.run(["c++", "--version"], text=True, capture_output=True, check=True).stdout
    return f"{said.splitlines()[0]}, {os.uname().machine}"


def stored_figures(path, *, storing):
    """What the file has, which a run that only compares must be able to compare with."""
    if not shutil.which("valgrind"):
        skip("there is no valgrind; it is in Debian's package valgrind")
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not storing and stored.get("compiler") != compiler():
        skip(f"the stored figures are those of {stored.get('compiler')}, not of {compiler()}")
    return stored


def measure(program, same_host):
    costs = instructions(program, same_host)
    if unwanted := list(switched_off(costs)):
        sys.exit("\n".join(unwanted))
    calls = system_calls(program, same_host)
    return {path: {"instructions": round(sum(costs[path].values())),
                   "functions": {name: round(cost, 1)
                                 for name, cost in costs[path].most_common(40)},
                   "system_calls": {name: round(count, 2)
                                    for name, count in sorted(calls[path].items())
                                    if count >= 0.01}}
            for path in calls}


def rises(path, now, stored):
    """What has risen, in sentences; the functions that have grown most come first."""
    calls, calls_before = (sum(one["system_calls"].values()) for one in (now, stored))
    more_calls = MORE_GATHERED_CALLS if GATHERED in path else MORE_CALLS
    if calls > max(calls_before * more_calls, calls_before + FEW_CALLS):
        yield (f"{calls:.2f} system calls instead of {calls_before:.2f}: "
               f"{now['system_calls']} instead of {stored['system_calls']}")
    if now["instructions"] > stored["instructions"] * MORE_INSTRUCTIONS:
        yield f"{now['instructions']} instructions instead of {stored['instructions']}"
        grown = {name: cost - stored["functions"].get(name, 0)
                 for name, cost in now["functions"].items()}
        for name, rise in sorted(grown.items(), key=lambda one: -one[1])[:8]:
            if rise >= NAMED_RISE:
                yield f"  {name}: {now['functions'][name]}, {rise:.1f} more"


def smaller(one, other):
    """The cost with the fewer instructions and the system calls of the one with the fewer calls."""
    calls = min(one["system_calls"], other["system_calls"], key=lambda cost: sum(cost.values()))
    return {**min(one, other, key=lambda cost: cost["instructions"]), "system_calls": calls}


def all_rises(now, stored):
    return [f"{path}: {sentence}" for path, cost in now.items()
            for sentence in rises(path, cost, stored[path])]


def show(path, cost):
    calls = ", ".join(f"{count:g} {name}" for name, count in cost["system_calls"].items())
    print(f"{path}: {cost['instructions']} instructions, system calls: {calls or 'none'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--same-host", choices=("auto", "off"), default="off")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("program")
    settings = parser.parse_args()
    stored = stored_figures(STORED, storing=settings.store)
    now = measure(settings.program, settings.same_host)
    for path, cost in now.items():
        show(path, cost)
    if settings.store:
        stored["compiler"] = compiler()
        stored[settings.same_host] = now
        STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        return
    trouble = all_rises(now, stored[settings.same_host])
    for _ in range(ATTEMPTS - 1):
        if not trouble:
            break
        again = measure(settings.program, settings.same_host)
        now = {path: smaller(cost, again[path]) for path, cost in now.items()}
        trouble = all_rises(now, stored[settings.same_host])
    if trouble:
        sys.exit("more than the stored figures:\n" + "\n".join(trouble) +
                 f"\nIf this is intended, store the new figures with {pathlib.Path(__file__).name} "
                 "--store, and give the reason in the commit.")


if __name__ == "__main__":
    main()
