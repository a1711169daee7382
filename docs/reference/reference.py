"""Writes the reference of the C++ library to DIRECTORY/html; a warning of Doxygen is an error.

Usage: reference.py DIRECTORY
"""

import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def settings(directory):
    return {
        "PROJECT_NAME": "Weft",
        "PROJECT_BRIEF": '"RDMA on any Linux machine"',
        "OUTPUT_DIRECTORY": f'"{directory}"',
        "INPUT": f'"{ROOT / "include"}" "{HERE / "main.md"}"',
        "USE_MDFILE_AS_MAINPAGE": f'"{HERE / "main.md"}"',
        "FILE_PATTERNS": "*.hpp *.md",
        "RECURSIVE": "YES",
        "FULL_PATH_NAMES": "YES",
        "STRIP_FROM_PATH": f'"{ROOT / "include"}"',
        "STRIP_FROM_INC_PATH": f'"{ROOT / "include"}"',
        "FILTER_PATTERNS": f'"*.hpp={sys.executable} -B {HERE / "comments.py"}"',
        "FILTER_SOURCE_FILES": "NO",
        "EXCLUDE_SYMBOLS": "*::detail *::detail::*",
        "EXTRACT_ALL": "YES",
        "MACRO_EXPANSION": "YES",
        "EXPAND_ONLY_PREDEF": "YES",
        "PREDEFINED": "WEFT_API=",
        "MULTILINE_CPP_IS_BRIEF": "NO",
        "JAVADOC_AUTOBRIEF": "YES",
        "MARKDOWN_SUPPORT": "YES",
        "AUTOLINK_SUPPORT": "NO",
        "SORT_MEMBER_DOCS": "NO",
        "GENERATE_LATEX": "NO",
        "HAVE_DOT": "NO",
        "QUIET": "YES",
        "WARNINGS": "YES",
        "WARN_IF_DOC_ERROR": "YES",
        "WARN_AS_ERROR": "FAIL_ON_WARNINGS",
    }


def doxygen(chosen):
    text = "".join(f"{name} = {value}\n" for name, value in chosen.items())
    return subprocess.run(["doxygen", "-"], input=text, text=True, check=False).returncode


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if not shutil.which("doxygen"):
        print("skipped: doxygen is not installed")
        return 77
    directory = pathlib.Path(sys.argv[1]).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    return doxygen(settings(directory))


if __name__ == "__main__":
    sys.exit(main())
