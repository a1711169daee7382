"""The table of RFC 5042 in docs/security.md has a row for each section of the RFC that describes an
attack, and each code file and each test that it names exists."""

import fnmatch
import re
import sys

import house

PAGE = "docs/security.md"
# Sections 5.1 to 5.3: attacks that end-to-end security answers. 6: those of remote peers. 7: those
# of local ones. Only the sections at the ends of the RFC's table of contents.
SECTIONS = (
    "5.1.1", "5.1.2", "5.1.3", "5.2", "5.3",
    "6.1.1", "6.2.1", "6.2.2", "6.2.3",
    "6.3.1", "6.3.2", "6.3.3", "6.3.4", "6.3.5", "6.3.6",
    "6.4.1", "6.4.2", "6.4.3.1", "6.4.3.2", "6.4.3.3", "6.4.4", "6.4.5", "6.4.6", "6.5",
    "7.1", "7.2", "7.3",
)
NAME = re.compile(r"`([^`]+)`")
TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+),\s*(\w+)\s*\)")
# A text in a file of interop, which may be the name of a case; {} in it stands for anything.
TEXT = re.compile(r'"([\w.{}-]+)"')
HOLE = re.compile(r"\{[^}]*\}")
# A threat that nothing here answers says so in the last column.
ANSWERED = re.compile(r"^kept\b")


def rows(text):
    """Line number and columns of each row of the table under the heading "RFC 5042"."""
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("## "):
            inside = line == "## RFC 5042"
        elif inside and line.startswith("| ") and not line.startswith("| section"):
            yield number, [column.strip() for column in line.strip("|").split("|")]


class Tests:
    """What can be named: tests of GoogleTest, cases of interop, fuzz targets, test programs."""

    def __init__(self, root):
        self.units, self.cases, self.programs = set(), set(), set()
        for path in house.files(root, ("tests", "fuzz")):
            if path.suffix == ".cc":
                self.programs.add(path.stem)
                self.units.update(".".join(names) for names in TEST.findall(house.read(path)))
            elif path.suffix == ".py" and path.parent.name == "interop":
                texts = TEXT.findall(house.read(path))
                self.cases.update(HOLE.sub("x", text) for text in texts)
            elif path.suffix == ".py":
                self.programs.add(path.stem)

    def has(self, name):
        if name in self.programs:
            return True
        beginning = name.partition("*")[0]
        if name.startswith("interop."):
            return bool(fnmatch.filter(self.cases, name.removeprefix("interop.")))
        if "*" not in name:
            return name in self.units
        return any(unit.startswith(beginning) for unit in self.units)


def check_sections(report, page):
    """Each section has a row; what belongs to none has a dash."""
    number, named = 1, set()
    for number, columns in rows(house.read(page)):
        for section in columns[0].split(", "):
            if section != "-" and section not in SECTIONS:
                report.fail(page, number, f"RFC 5042 has no attack in section {section}")
            named.add(section)
    for section in SECTIONS:
        if section not in named:
            report.fail(page, number, f"no row is about section {section}")


def check(report, page, tests, sources):
    for number, columns in rows(house.read(page)):
        if len(columns) != 5:
            report.fail(page, number, "a row has section, threat, code, test and verdict")
            continue
        _, threat, code, test, verdict = columns
        for name in NAME.findall(code):
            if not any(source.endswith("/" + name) for source in sources):
                report.fail(page, number, f"there is no file {name}")
        for name in NAME.findall(test):
            if not tests.has(name):
                report.fail(page, number, f"there is no test {name}")
        if ANSWERED.match(verdict) and not NAME.findall(test):
            report.fail(page, number, f"{threat}: kept, and no test is named")


def main():
    root = house.arguments(__doc__).parse_args().root.resolve()
    report = house.Report(root)
    sources = {"/" + path.relative_to(root).as_posix() for path in house.sources(root)}
    check_sections(report, root / PAGE)
    check(report, root / PAGE, Tests(root), sources)
    return report.finish(1)


if __name__ == "__main__":
    sys.exit(main())
