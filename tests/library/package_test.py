"""What is installed serves other projects. Run with --build DIRECTORY --version X.Y.Z."""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
SETTINGS = argparse.Namespace()


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200,
                          check=False, env={**os.environ, "WEFT_QUIET": "1", **more})
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}")
    return done.stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.place = pathlib.Path(cls.folder.name)
        cls.prefix = cls.place / "installed"
        run("cmake", "--install", SETTINGS.build, "--prefix", cls.prefix)

    def libraries(self):
        return next(path.parent for path in self.prefix.rglob("libweft.so"))

    def check(self, program):
        said = run(program, LD_LIBRARY_PATH=str(self.libraries()))
        self.assertEqual(said, f"weft0 of weft {SETTINGS.version}\n")

    def build(self, name, *options):
        build = self.place / name
        run("cmake", "-S", HERE / "consumer", "-B", build, *options)
        run("cmake", "--build", build, "--target", "consumer", "--parallel", "2")
        return build / "consumer"

    def test_find_package(self):
        self.check(self.build("found", f"-DCMAKE_PREFIX_PATH={self.prefix}"))

    def test_pkg_config(self):
        path = str(next(self.prefix.rglob("weft.pc")).parent)
        # The prefix is where it was configured for; this one was moved.
        flags = shlex.split(run("pkg-config", "--define-prefix", "--cflags", "--libs", "weft",
                                "weft-capture", PKG_CONFIG_PATH=path))
        program = self.place / "by_pkg_config"
        run("c++", "-std=c++20", HERE / "consumer/main.cc", "-o", program,
            f"-I{self.prefix}/include", f"-L{self.libraries()}", *flags)
        self.check(program)

    @unittest.skipUnless(os.environ.get("WEFT_TEST_LONG", "0") != "0", "builds everything again")
    def test_add_subdirectory(self):
        self.check(self.build("inside", f"-DWEFT_SOURCE={HERE.parents[1]}", "-DBUILD_TESTING=OFF",
                              "-DWEFT_BENCH=OFF"))

    def test_installed_program_finds_its_libraries(self):
        said = run(self.prefix / "bin/weft", "run", "-q", "--",
                   next(self.prefix.rglob("selftest")), "gids")
        self.assertIn("device weft0", said)

    def test_library_needs_no_verbs_library(self):
        needed = run("readelf", "--dynamic", "--wide", self.libraries() / "libweft.so")
        self.assertNotIn("libibverbs", needed)
        self.assertNotIn("librdmacm", needed)

    def test_reading_captures_needs_no_libpcap(self):
        library = self.libraries() / "libweft-capture.so"
        self.assertNotIn("libpcap", run("readelf", "--dynamic", "--wide", library))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--version", required=True)
    SETTINGS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
