"""What the house tests share: finding files, reading C++ without its comments, reporting."""

import argparse
import pathlib
import re
import sys

SOURCE_SUFFIXES = {".h", ".hpp", ".cc", ".c", ".inc"}
TREES = ("src", "include", "tests", "examples", "fuzz", "bench", "cmake", "docs", ".ci")
# Not written by hand, or recorded from elsewhere.
DATA_DIRECTORIES = {"corpus", "captures", "data", "golden"}
SKIP_STATUS = 77


class Report:
    """Collects findings. A failure names the place and the rule; a warning is only printed."""

    def __init__(self, root):
        self.root = root
        self.failures = []
        self.warnings = []

    def _place(self, path, line):
        return f"{path.relative_to(self.root)}:{line}"

    def fail(self, path, line, text):
        self.failures.append(f"{self._place(path, line)}: {text}")

    def warn(self, path, line, text):
        self.warnings.append(f"{self._place(path, line)}: warning: {text}")

    def finish(self, checked):
        for text in self.warnings + self.failures:
            print(text)
        print(f"{checked} files checked, {len(self.failures)} findings")
        return 1 if self.failures else 0


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2]
    )
    return parser


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP_STATUS)


def files(root, trees=TREES):
    """Files of the project, sorted. Build directories and hidden files are left out."""
    found = []
    for tree in trees:
        base = root / tree
        for path in base.rglob("*") if base.is_dir() else ():
            inside = path.relative_to(base).parts
            if any(part.startswith((".", "build", "__pycache__")) for part in inside[:-1]):
                continue
            if not inside[-1].startswith(".") and path.is_file() and not path.is_symlink():
                found.append(path)
    return sorted(found)


def sources(root, trees=("src", "include")):
    return [path for path in files(root, trees) if path.suffix in SOURCE_SUFFIXES]


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


_LITERALS = re.compile(
    r"""//(?:\\\n|[^\n])*                                # line comment
      | /\*.*?\*/                                        # block comment
      | \b(?:u8|[uUL])?R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"   # raw string
      | "(?:\\.|[^"\\\n])*"                              # string
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'              # character, not a digit separator
    """,
    re.VERBOSE | re.DOTALL,
)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def code_only(text):
    """The text with comments and the contents of literals blanked: every line keeps its length."""

    def replace(match):
        found = match.group(0)
        if found.startswith("/"):
            return _blank(found)
        return '"' + _blank(found[1:-1]) + '"'

    return _LITERALS.sub(replace, text)


_INCLUDE = re.compile(r'\s*#\s*include\s*(<[^>]+>|"[^"]+")')


def includes(path):
    """(line, name, quoted) for each #include of a file."""
    text = read(path)
    code = code_only(text).split("\n")
    for number, line in enumerate(text.split("\n"), 1):
        found = _INCLUDE.match(line)
        if found and "#" in code[number - 1]:
            name = found.group(1)
            yield number, name[1:-1], name[0] == '"'
