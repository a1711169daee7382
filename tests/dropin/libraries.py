"""What the tests of the drop-in libraries share. Run with --build DIRECTORY."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

FOLDER = pathlib.Path()  # of the drop-in libraries
WEFT = pathlib.Path()    # the program
BUILD = pathlib.Path()
SKIP_STATUS = 77


def environment(**more):
    """For a program on the drop-in libraries, without `weft run`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    return {**clean, "LD_LIBRARY_PATH": str(FOLDER), **more}


def run(*command, **options):
    """Runs to the end; with text, both outputs, and no input."""
    options.setdefault("env", environment())
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, check=False, **options)


def needs(program):
    """The path of an installed program, or the test is skipped."""
    path = shutil.which(program)
    if not path:
        raise unittest.SkipTest(f"{program} is not installed")
    return path


def needs_plain_libraries():
    """Other people's programs cannot load what was built with a sanitizer, unless it came first."""
    text = subprocess.run(["readelf", "--dynamic", "--wide", FOLDER / "libibverbs.so.1"],
                          check=True, text=True, stdout=subprocess.PIPE).stdout
    if re.search(r"lib(a|t|ub)san", text):
        raise unittest.SkipTest("the libraries are built with a sanitizer")


def copied_program(folder):
    """A copy of `weft` in `folder`, and the empty folder in which it looks for its libraries."""
    copy, beside = pathlib.Path(folder, "bin", "weft"), pathlib.Path(folder, "lib", "weft")
    copy.parent.mkdir(parents=True)
    beside.mkdir(parents=True)
    shutil.copy(WEFT, copy)
    return copy, beside


def main():
    global BUILD, FOLDER, WEFT  # pylint: disable=global-statement
    sys.modules["libraries"] = sys.modules[__name__]
    arguments = sys.argv[1:]
    at = arguments.index("--build")
    BUILD = pathlib.Path(arguments[at + 1]).resolve()
    FOLDER, WEFT = BUILD / "lib" / "weft", BUILD / "bin" / "weft"
    result = unittest.main(module="__main__", argv=[sys.argv[0], *arguments[:at],
                                                    *arguments[at + 2 :]], exit=False).result
    if result.wasSuccessful() and len(result.skipped) == result.testsRun:
        print("skipped:", "; ".join(sorted({reason for _, reason in result.skipped})))
        return SKIP_STATUS
    return 0 if result.wasSuccessful() else 1
