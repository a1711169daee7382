"""The text of the files: line length, tabs, #pragma once, TODO with a reason, no private paths; in
src/ no random numbers but the kernel's, no environment but by secure_getenv(3), and nothing that
the compiler of the fuzz targets refuses."""

import re
import sys

import house

LINE_LENGTH = 100
SCRIPTS = {".py", ".sh", ".cmake"}
# Text that is checked for paths and TODOs only: tables and the like may be wide.
PROSE = {".md", ".txt", ".json", ".map", ".in"}

# Directories of one machine, which mean nothing on another. Spelt so as not to match itself.
PRIVATE_PATH = re.compile(r"(?<![\w.\-$}/])/(?:home|root|work)/")
TODO = re.compile(r"\b(?:TODO|FIXME)\b(?!\([^)]+\): \S|: \S+ \S+ \S+)")

# What a stranger must not guess comes from base/kernel_random.h alone.
OTHER_RANDOM = re.compile(
    r"\b(?:mt19937|random_device|\w+_engine\b|minstd_rand|ranlux|knuth_b|s?rand(?:_r|om_r)?\("
    r"|srandom\(|[delnmj]rand48(?:_r)?\()|(?<![.>])(?<!& )\brandom\(\)")
# A sandbox or an old kernel refuses it, and base/kernel_random.h has what helps then.
GETRANDOM = re.compile(r"\b(?:getrandom|getentropy)\((?!2\))|<sys/random\.h>")

# A set-user-ID program must not follow its caller's environment. The program weft has no more
# rights than its caller.
ANY_CALLERS_ENVIRONMENT = re.compile(r"(?<!secure_)\bgetenv\(")

# Algorithms that return a std::ranges::subrange: clang 14, which builds the fuzz targets, does not
# compile that class of libstdc++ 12.
SUBRANGE = re.compile(r"\branges::(?:(?:stable_)?partition|unique|remove(?:_if)?|rotate|search"
                      r"|search_n|equal_range|find_end|subrange)\(")


def is_script(path):
    if path.suffix in SCRIPTS or path.name == "CMakeLists.txt":
        return True
    return path.suffix == "" and path.open("rb").read(2) == b"#!"


def check(report, path):
    text = house.read(path)
    code = path.suffix in house.SOURCE_SUFFIXES
    prose = path.suffix in PROSE and path.name != "CMakeLists.txt"
    for number, line in enumerate(text.split("\n"), 1):
        if not prose:
            if len(line) > LINE_LENGTH:
                report.fail(path, number, f"{len(line)} characters; a line has at most "
                                          f"{LINE_LENGTH}")
            if "\t" in line:
                report.fail(path, number, "a tab; indent with spaces, and write \\t in a string")
        if PRIVATE_PATH.search(line):
            report.fail(path, number, "a path of one machine; say it relative to the project")
        if code and "src" in path.parts and OTHER_RANDOM.search(line):
            report.fail(path, number, "a generator that can be predicted; use base/kernel_random.h")
        if code and "src" in path.parts and GETRANDOM.search(line):
            report.fail(path, number, "a call that may be refused; use base/kernel_random.h")
        if (code and "src" in path.parts and "cli" not in path.parts
                and ANY_CALLERS_ENVIRONMENT.search(line)):
            report.fail(path, number, "the environment of any caller; use secure_getenv(3)")
        if code and "src" in path.parts and SUBRANGE.search(line):
            report.fail(path, number, "clang 14 does not compile it; use the algorithm of "
                                      "namespace std")
        if path.parent.name != "house" and TODO.search(line):
            report.fail(path, number, "a TODO without a reason; write `TODO: what is missing and "
                                      "why`")
    if code and path.suffix == ".h" and not re.search(r"^#pragma once$", text, re.MULTILINE):
        report.fail(path, 1, "no `#pragma once`")


def main():
    root = house.arguments(__doc__).parse_args().root.resolve()
    report = house.Report(root)
    paths = [path for path in house.files(root)
             if not house.DATA_DIRECTORIES.intersection(path.relative_to(root).parts)]
    paths += [path for path in sorted(root.iterdir()) if path.is_file()
              and (path.suffix in PROSE | SCRIPTS or path.name == "dev")]
    checked = [path for path in paths
               if path.suffix in house.SOURCE_SUFFIXES | PROSE or is_script(path)]
    for path in checked:
        check(report, path)
    return report.finish(len(checked))


if __name__ == "__main__":
    sys.exit(main())
