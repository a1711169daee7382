"""The language of comments and documents: plain technical English, and names and paths that exist.

A comment that names a function or type of the project fails if there is none of that name: `X::y`,
`X::y()` and `y()` are looked up in the code. Functions of libraries that the code itself does not
use are in LIBRARY; a comment may also write them like a manual page, as in dlopen(3).

The idiom of docs/contributing.md, "English", is only counted. --list shows each place.
"""

import collections
import re
import sys

import house

CODE_TREES = ("src", "include", "tests", "examples", "fuzz", "bench")

# Functions that comments name and the code does not call, as in their manual pages.
LIBRARY = """
gai_strerror(3)
"""

# What to write instead is in docs/contributing.md.
IDIOM = {
    "who, whoever, whom": r"\b[Ww]ho(?:ever|m|mever)?\b(?!\s*=)",
    "nobody, somebody, someone": r"\b(?:[Nn]obody|[Ss]ome(?:body|one)|[Nn]o one|[Aa]nybody)\b",
    "is told, tells": r"\b(?:is|are|was|were|be|been) told\b|\btells?\b|\btelling\b",
    "says, has said, heard": r"\b(?:says?|(?:has|have|had|is|was|been) (?:said|heard))\b",
    "of ours, of theirs": r"\bof (?:ours|theirs)\b",
    "stands before, behind, for": r"\b[Ss]tands? (?:before|behind|in front|for itself|alone)\b",
    "comes to nothing": r"\b(?:comes?|came|coming) to (?:nothing|naught)\b",
    "has gone, goes away": r"\b(?:has|have|had|is|are) gone\b|\bgoes away\b",
    "patience": r"\b[Pp]atien(?:ce|t)\b",
    "wish": r"\b[Ww]ish(?:es|ed)?\b",
    "so many": r"\b[Ss]o many\b",
    "newcomer, stranger": r"\b(?:[Nn]ewcomers?|[Ss]trangers?)\b",
}
_IDIOM = {name: re.compile(pattern) for name, pattern in IDIOM.items()}

_WORD = re.compile(r"[A-Za-z_]\w*")
# X::y, X::y() or y(), but not y(3) and not `->y()`, whose object is a variable.
_NAMED = re.compile(r"(?<![\w:>.~$/\-])((?:[A-Za-z_]\w*::)+)?(~?[A-Za-z_]\w*)(\(\))?(?![\w(]|::)")
# Namespaces of others.
FOREIGN = {"std", "asio", "fmt", "testing", "chrono", "ranges", "boost", "nlohmann", "CLI", "kj"}


def comments(text):
    """(line, text) for each line of a comment."""
    code = house.code_only(text).split("\n")
    for number, line in enumerate(text.split("\n"), 1):
        blank = code[number - 1]
        # A comment is what code_only() has blanked and that does not lie between quotes.
        start = next((at for at in range(len(line))
                      if line.startswith(("//", "/*"), at) and blank[at:at + 2].strip() == ""
                      and blank[:at].count('"') % 2 == 0), None)
        if start is not None:
            yield number, line[start:]
        elif line.strip() and not blank.strip():
            yield number, line  # inside of /* */


class Names:
    """The identifiers of the code: all, and those in the bodies of each class and after `X::`."""

    def __init__(self):
        self.all = set()
        self.of = collections.defaultdict(set)
        self.bases = collections.defaultdict(set)

    _CLASS = re.compile(r"\b(?:class|struct|union|namespace|enum(?:\s+class)?)\s+"
                        r"(?:\[\[[^\]]*\]\]\s*|[A-Z_]+\s+)?([\w:]+)([^;{}()]*)\{")
    # The last name of each base, without its template arguments.
    _BASE = re.compile(r"(\w+)\s*(?:<[^,]*>\s*)?(?:,|$)")
    _SCOPED = re.compile(r"\b(\w+)(?:<[^<>]*>)?::(~?\w+)")

    def add(self, code):
        self.all.update(_WORD.findall(code))
        for owner, name in self._SCOPED.findall(code):
            self.of[owner].add(name)
        for found in self._CLASS.finditer(code):
            name = found.group(1).rpartition("::")[2]
            _, colon, bases = found.group(2).partition(":")
            if colon:
                self.bases[name].update(self._BASE.findall(bases))
            depth, at = 0, found.end() - 1
            for brace in re.finditer(r"[{}]", code[at:]):
                depth += 1 if brace.group() == "{" else -1
                if depth == 0:
                    self.of[name].update(_WORD.findall(code[at:at + brace.start()]))
                    break

    def has(self, owner, name):
        if name.lstrip("~") == owner:
            return True
        seen, pending = set(), [owner]
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            if name in self.of[at]:
                return True
            pending += self.bases.get(at, ())
        return False


def library():
    return {word.partition("(")[0] for word in LIBRARY.split()}


def unknown(names, known, scope, name, call):
    """Whether a comment's name is one that should be in the code and is not."""
    owners = scope.split("::")[:-1] if scope else []
    if owners:
        if owners[0] in FOREIGN or owners[-1] in FOREIGN:
            return False
        if owners[-1] not in names.all:
            return True
        if owners[-1] in names.of:
            return not names.has(owners[-1], name)
        return name not in names.all
    return bool(call) and name.lstrip("~") not in names.all and name not in known


# A file or folder of the project, perhaps with *. Folders of a build and of an installation have
# other names in front.
_PATH = re.compile(r"(?<![\w./${}<>*-])(?:src|include|tests|examples|fuzz|bench|docs|cmake)/"
                   r"[\w./*-]*[\w*]")


def check_paths(report, path, lines):
    for number, line in lines:
        for name in _PATH.findall(line):
            if re.search(r"[A-Z]{4}", name):
                continue  # with a placeholder, as in NAME_test.cc
            if not any(True for _ in report.root.glob(name)):
                report.fail(path, number, f"there is no {name}")


def check_names(report, path, lines, names, known):
    for number, line in lines:
        if re.match(r"// namespace\b", line):
            continue
        for scope, name, call in _NAMED.findall(line):
            if unknown(names, known, scope, name, call):
                report.fail(path, number, f"the comment names {scope}{name}{call}, which does not "
                                          "exist")


def count_idiom(path, lines, counts, places):
    for number, line in lines:
        for name, pattern in _IDIOM.items():
            found = len(pattern.findall(line))
            if found:
                counts[name] += found
                places.append((path, number, name))


def main():
    parser = house.arguments(__doc__)
    parser.add_argument("--list", action="store_true", help="show each place with the idiom")
    options = parser.parse_args()
    root = options.root.resolve()
    report, names = house.Report(root), Names()
    paths = house.sources(root, CODE_TREES)
    for path in paths:
        names.add(house.code_only(house.read(path)))

    counts, places, known = collections.Counter(), [], library()
    for path in paths:
        lines = list(comments(house.read(path)))
        check_names(report, path, lines, names, known)
        check_paths(report, path, lines)
        count_idiom(path, lines, counts, places)
    documents = [path for path in house.files(root, ("docs",)) if path.suffix == ".md"]
    for path in [*documents, root / "README.md"]:
        if path.is_file():
            lines = list(enumerate(house.read(path).split("\n"), 1))
            check_paths(report, path, lines)
            count_idiom(path, lines, counts, places)

    if options.list:
        for path, number, name in places:
            print(f"{path.relative_to(root)}:{number}: {name}")
    if places:
        print(f"warning: {sum(counts.values())} times words of the idiom (docs/contributing.md, "
              "English; --list shows them): "
              + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    return report.finish(len(paths) + len(documents))


if __name__ == "__main__":
    sys.exit(main())
