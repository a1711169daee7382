"""Writes docs/compatibility.md from the results of run.py.

usage: table.py RESULTS_JSONL PAGE

The page shows what was run, and the result. It omits what differs between two runs, ports and
times, so that a change of the page is a change of the product.
"""

import json
import pathlib
import re
import sys

_INTRO = """# Compatibility

`tests/interop` runs unmodified programs of Debian's packages on the device. `./dev table` writes
this page from the results of the last `./dev test`; it lists the tests that this run reached.
*Case* is the test's name without the program's: `./dev test -R 'interop.PROGRAM.CASE$'` repeats
it, and `tests/interop` states what it checks. *Personality* is what the device looked like; if the
two sides differ, the server's is first.
"""

# What is not found by the tests of this page.
_PEERS = pathlib.Path(__file__).with_name("peers.md").read_text(encoding="utf-8")

_PORTS = re.compile(r" (?:-l?p|--port)[ =]?\d+| -P \d{5}\b|(?<=127\.0\.0\.1)[ :]\d{5}\b")
_FOLDERS = re.compile(r"/(?:[\w.+-]+/)+(?=[\w.+-])")


def command(line):
    """What one side ran, without what is drawn anew each time."""
    program = line.partition(" -- ")[2] or line.partition(": ")[2]
    return _FOLDERS.sub("", _PORTS.sub("", program))


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def row(result):
    outcome = result["result"]
    if result["note"]:
        outcome += f": {cell(result['note'])}"
    # The client shows most: it has the server's options and the address.
    ran = f"`{cell(command(result['ran'][-1]))}`" if result["ran"] else ""
    looks = ", ".join(result["personalities"])
    return f"| {result['case'].partition('.')[2]} | {ran} | {looks} | {outcome} |"


def section(program, results):
    first = results[0]
    lines = [f"## {program}", "", f"{first['package']} {first['version'] or '(not installed)'}", "",
             "| case | what was run | personality | result |", "|---|---|---|---|"]
    return lines + [row(result) for result in results] + [""]


def overview(programs):
    lines = ["| program | package | version | passed | failed | skipped |",
             "|---|---|---|---:|---:|---:|"]
    for program, results in programs.items():
        counts = [sum(result["result"] == kind for result in results)
                  for kind in ("passed", "failed", "skipped")]
        lines.append(f"| [{program}](#{program}) | {results[0]['package']} | "
                     f"{results[0]['version'] or ''} | {' | '.join(map(str, counts))} |")
    return lines + [""]


def page(results):
    """The whole page; tests of programs of our own are no matter of compatibility."""
    programs = {}
    for result in sorted(results, key=lambda found: found["case"]):
        if result["package"]:
            programs.setdefault(result["program"], []).append(result)
    lines = [_INTRO, *overview(programs), _PEERS]
    for program, found in programs.items():
        lines += section(program, found)
    return "\n".join(lines).rstrip("\n") + "\n"


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with open(arguments[0], encoding="utf-8") as file:
            results = [json.loads(line) for line in file]
    except FileNotFoundError:
        print(f"no results at {arguments[0]}: ./dev test -L interop leaves them", file=sys.stderr)
        return 1
    with open(arguments[1], "w", encoding="utf-8") as out:
        out.write(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
