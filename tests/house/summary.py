"""Ends a test run: skipped and failed tests by name, then the counts alone on a line.

usage: summary.py JUNIT_XML     (as written by ctest --output-junit)

The exit status is 1 if a test failed or none ran.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

LAST_WORDS = 12  # lines of a failed test
# What ctest calls a test that skipped itself. Any other "notrun" is a test that could not run: its
# program is missing, or a fixture failed.
SKIPPED_ITSELF = re.compile(r"SKIP_(RETURN_CODE|REGULAR_EXPRESSION)")


def outcome(case):
    """passed, failed or skipped."""
    status = case.get("status")
    output = case.findtext("system-out") or ""
    if status == "run":
        return "passed"
    if status == "disabled":
        return "skipped"
    skipped = case.find("skipped")
    if status == "notrun" and skipped is not None:
        if SKIPPED_ITSELF.match(skipped.get("message", "")) and "[  FAILED  ]" not in output:
            return "skipped"
    return "failed"


def reason(case):
    """Why a test was skipped, in its own words."""
    if case.get("status") == "disabled":
        return "disabled"
    lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines()]
    for index, line in enumerate(lines):
        # GoogleTest writes the place, then the message up to the closing line.
        if re.search(r":\d+: Skipped$", line):
            message = []
            for text in lines[index + 1 :]:
                if text.startswith("[  SKIPPED ]"):
                    break
                message.append(text)
            return " ".join(filter(None, message)) or "no reason given"
    for line in lines:
        found = re.match(r"skip(?:ped|ping)?\b[:,]?\s+(.+)", line, re.IGNORECASE)
        if found:
            return found.group(1)
    return next((line for line in reversed(lines) if line), "no reason given")


def last_words(case):
    """The last lines of a failed test, which remain if the log of the whole run is cut."""
    lines = [line.rstrip() for line in (case.findtext("system-out") or "").splitlines()]
    return [f"    {line}" for line in filter(None, lines)][-LAST_WORDS:]


def summarise(root):
    """The text to print and the exit status."""
    cases = {"passed": [], "failed": [], "skipped": []}
    for case in root.iter("testcase"):
        cases[outcome(case)].append(case)
    lines = []
    if cases["skipped"]:
        lines.append("skipped:")
        lines += [f"  {case.get('name')}: {reason(case)}" for case in cases["skipped"]]
    if cases["failed"]:
        lines.append("failed:")
        for case in cases["failed"]:
            lines += [f"  {case.get('name')}", *last_words(case)]
    if not cases["passed"] and not cases["failed"]:
        lines.append("no test ran")
    counts = ", ".join(f"{len(cases[what])} {what}" for what in ("passed", "failed", "skipped"))
    return "\n".join(lines + [counts]), int(bool(cases["failed"]) or not cases["passed"])


def main():
    try:
        root = ElementTree.parse(sys.argv[1]).getroot()
    except (OSError, ElementTree.ParseError) as error:
        print(f"the test run left no results: {error}", file=sys.stderr)
        root = ElementTree.Element("testsuite")
    text, status = summarise(root)
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
