"""Weft as a subproject builds its libraries only and leaves the other project's settings alone.

Run with --build DIRECTORY --version X.Y.Z.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
SETTINGS = argparse.Namespace()
# Compiled with the flags of the build that is tested, the sources are in ccache already.
SAME_FLAGS = re.compile(r"(CMAKE_BUILD_TYPE|CMAKE_CXX_FLAGS(?:_[A-Z]+)?|CMAKE_CXX_COMPILER|"
                        r"CMAKE_INTERPROCEDURAL_OPTIMIZATION|WEFT_WERROR):[A-Z]+=(.*)")
# What the cache may hold besides CMake's own entries and those of Weft.
EXPECTED = re.compile(r"CMAKE_(?!INSTALL_(?!PREFIX|SO_NO_EXE))|_CMAKE_|FETCHCONTENT_|FIND_PACKAGE_|"
                      r"PKG_CONFIG_|WEFT_|weft_|parent_|(__pkg_config_\w+|pkgcfg_lib)_WEFT_|"
                      r"fmt_DIR$|prefix_result$")
OTHER_TARGETS = re.compile(r"(weft|weft_ibverbs|weft_rdmacm|weft_sockets|weft_fabric|weft_capture|"
                           r"weft_bench|\w+_test|example_\w+|\w+_replay|weft_man): phony$",
                           re.MULTILINE)


def run(*command):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("WEFT_")}
    # Objects that differ in the build folder only may serve as well.
    environment |= {"CCACHE_NOHASHDIR": "1", "WEFT_QUIET": "1"}
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1700,
                          check=False, env=environment)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}")
    return done.stdout


def cache(build):
    return pathlib.Path(build, "CMakeCache.txt").read_text().splitlines()


class Subproject(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Beside the build that is tested: where ccache has a base_dir, it finds the objects of that
        # build only from a folder of the same depth.
        beside = pathlib.Path(SETTINGS.build).resolve().parent
        folder = tempfile.TemporaryDirectory(prefix="subproject-", dir=beside)
        cls.addClassCleanup(folder.cleanup)
        cls.place = pathlib.Path(folder.name)
        flags = [f"-D{found[1]}={found[2]}" for found in map(SAME_FLAGS.fullmatch,
                                                             cache(SETTINGS.build)) if found]
        # Configuring stops if a setting of the parent has changed.
        run("cmake", "-G", "Ninja", "-S", HERE / "subproject", "-B", cls.place,
            f"-DWEFT_SOURCE={HERE.parents[1]}", *flags)

    def test_a_consumer_builds_and_runs(self):
        run("cmake", "--build", self.place, "--target", "consumer", "--parallel", "2")
        self.assertEqual(run(self.place / "consumer"), f"weft0 of weft {SETTINGS.version}\n")

    def test_there_are_the_libraries_and_nothing_else(self):
        targets = run("cmake", "--build", self.place, "--target", "help")
        self.assertIn("weft_shared: phony", targets)
        self.assertFalse(OTHER_TARGETS.findall(targets))

    def test_the_cache_has_entries_of_weft_only(self):
        names = [line.split(":")[0] for line in cache(self.place) if re.match(r"\w+:\w+=", line)]
        self.assertIn("WEFT_TESTS", names)
        self.assertFalse([name for name in names if not EXPECTED.match(name)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--version", required=True)
    SETTINGS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
