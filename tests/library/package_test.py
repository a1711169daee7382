"""What is installed serves other projects. Run with --build DIRECTORY --version X.Y.Z."""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
SETTINGS = argparse.Namespace()
MANUALS = ["weft-dissect.1", "weft-doctor.1", "weft-run.1", "weft-top.1", "weft-trace.1", "weft.1"]


def run(*command, **more):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200,
                          check=False, env={**plain, "PATH": path, "WEFT_QUIET": "1", **more})
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}")
    return done.stdout


def libraries(root):
    return next(path.parent for path in root.rglob("libweft.so"))


def needed_by(path):
    """The shared objects that an ELF file asks for; of others, none."""
    if path.is_symlink() or not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
        return set()
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", "--wide", path)))


class Consumers(unittest.TestCase):
    """One program, built in each of the ways to find the library."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.place = pathlib.Path(folder.name)
        cls.prefix = cls.place / "installed"
        run("cmake", "--install", SETTINGS.build, "--prefix", cls.prefix)

    def check(self, program):
        output = run(program, LD_LIBRARY_PATH=str(libraries(self.prefix)))
        self.assertEqual(output, f"weft0 of weft {SETTINGS.version}\nconnection: 42\n"
                                 "message: 4 bytes\nstream: 3 bytes\n")
        self.assertFalse([name for name in needed_by(program) if "verbs" in name or "cm" in name])

    def build(self, name, *options):
        build = self.place / name
        run("cmake", "-G", "Ninja", "-S", HERE / "consumer", "-B", build,
            "-DCMAKE_CXX_FLAGS=-Wall -Wextra", *options)
        said = run("cmake", "--build", build, "--target", "consumer", "--parallel", "2")
        self.assertNotIn("warning", said)
        return build / "consumer"

    def test_find_package(self):
        self.check(self.build("found", f"-DCMAKE_PREFIX_PATH={self.prefix}"))

    def test_pkg_config(self):
        # Nothing is told where the library is but where its .pc file is.
        path = str(next(self.prefix.rglob("weft.pc")).parent)
        flags = shlex.split(run("pkg-config", "--cflags", "--libs", "weft", "weft-capture",
                                PKG_CONFIG_PATH=path))
        program = self.place / "by_pkg_config"
        run("c++", "-std=c++20", HERE / "consumer/main.cc", "-o", program, *flags)
        self.check(program)

    def test_pkg_config_names_what_is_missing(self):
        path = str(next(self.prefix.rglob("weft.pc")).parent)
        with self.assertRaisesRegex(AssertionError, "libibverbs"):
            run("pkg-config", "--cflags", "weft", PKG_CONFIG_LIBDIR=path)

    def test_components(self):
        project = self.place / "components"
        project.mkdir()
        for wanted, expected in (("weft capture", None), ("weft nothing", "no component nothing")):
            (project / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.22)\nproject(components CXX)\n"
                f"find_package(weft REQUIRED COMPONENTS {wanted})\n"
                "get_target_property(found weft::weft TYPE)\n", encoding="utf-8")
            command = ("cmake", "-S", project, "-B", project / "build",
                       f"-DCMAKE_PREFIX_PATH={self.prefix}")
            if expected is None:
                run(*command)
                continue
            with self.assertRaisesRegex(AssertionError, expected):
                run(*command)

    def test_program_in_c(self):
        path = str(next(self.prefix.rglob("weft.pc")).parent)
        flags = shlex.split(run("pkg-config", "--cflags", "--libs", "weft", PKG_CONFIG_PATH=path))
        program = self.place / "in_c"
        run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
            HERE / "consumer/main.c", "-o", program, *flags)
        said = run(program, LD_LIBRARY_PATH=str(libraries(self.prefix)))
        self.assertIn(f"weft {SETTINGS.version} listens: 1", said)

    def test_installed_program_finds_its_libraries(self):
        said = run(self.prefix / "bin/weft", "run", "-q", "--",
                   next(self.prefix.rglob("selftest")), "gids")
        self.assertIn("device weft0", said)

    def test_library_needs_no_verbs_library(self):
        needed = needed_by(libraries(self.prefix) / f"libweft.so.{SETTINGS.version}")
        self.assertIn("libc.so.6", needed)
        self.assertFalse([name for name in needed if "ibverbs" in name or "rdmacm" in name])


@unittest.skipUnless(all(map(shutil.which, ("dpkg-deb", "dpkg-shlibdeps", "file"))),
                     "needs the packages dpkg-dev and file")
class DebianPackages(unittest.TestCase):
    """The packages that `./dev package` makes, of this build, unpacked into an empty root."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        place = pathlib.Path(folder.name)
        run("cpack", "--config", pathlib.Path(SETTINGS.build, "CPackConfig.cmake"), "-B", place)
        cls.packages = {path.name.split("_")[0]: path for path in place.glob("*.deb")}
        cls.root = place / "root"
        database = cls.root / "var/lib/dpkg"
        for name in ("updates", "info"):
            (database / name).mkdir(parents=True)
        for name in ("status", "available"):
            (database / name).touch()
        # Their dependencies are checked by a test of their own.
        run("dpkg", f"--root={cls.root}", "--log=/dev/null", "--force-not-root", "--force-depends",
            "--unpack", *cls.packages.values())
        cls.soversion = ".".join(SETTINGS.version.split(".")[:2])

    def field(self, package, name):
        return run("dpkg-deb", "--field", self.packages[package], name).strip()

    def files(self, package):
        listed = run("dpkg-deb", "--contents", self.packages[package])
        paths = [line.split(maxsplit=5)[5].split(" -> ")[0] for line in listed.splitlines()]
        return [self.root / path for path in paths if not path.endswith("/")]

    def test_there_is_a_package_for_each_use(self):
        self.assertEqual(set(self.packages),
                         {f"libweft{self.soversion}", f"libweft-capture{self.soversion}",
                          "libweft-dev", "weft", "python3-weft", "weft-doc"})

    def test_they_are_whole(self):
        for name in self.packages:
            self.assertEqual(run("dpkg", f"--root={self.root}", "--verify", name), "")
            self.assertEqual(self.field(name, "Version"), SETTINGS.version)
            here = run("dpkg", "--print-architecture").strip()
            self.assertEqual(self.field(name, "Architecture"),
                             "all" if name in ("python3-weft", "weft-doc") else here)
            self.assertTrue(self.field(name, "Description").startswith("RDMA "))
            folder = self.root / "usr/share/doc" / name
            self.assertIn("MIT", (folder / "copyright").read_text(encoding="utf-8"))
            self.assertTrue((folder / "changelog.gz").exists())

    @unittest.skipUnless(shutil.which("lintian"), "needs the package lintian")
    def test_lintian_finds_nothing(self):
        said = run("lintian", "--allow-root", "--fail-on", "none", *self.packages.values())
        found = [line for line in said.splitlines() if line[:2] in ("E:", "W:")]
        self.assertEqual(found, [])

    def test_an_unmodified_program_runs_from_there(self):
        if not shutil.which("ibv_devices"):
            self.skipTest("needs the package ibverbs-utils")
        said = run(self.root / "usr/bin/weft", "run", "--", "ibv_devices")
        self.assertRegex(said, r"weft0\s+[0-9a-f]{16}")

    def test_the_self_test_passes_from_there(self):
        said = run(self.root / "usr/bin/weft", "doctor")
        self.assertIn("Weft works here", said)

    def test_a_program_is_compiled_from_there(self):
        place = pathlib.Path(self.root.parent, "compiled")
        place.mkdir()
        folder = libraries(self.root)
        flags = shlex.split(run("pkg-config", "--cflags", "--libs", "weft",
                                PKG_CONFIG_PATH=str(folder / "pkgconfig")))
        run("cc", "-std=c99", HERE / "consumer/main.c", "-o", place / "in_c", *flags)
        run("cmake", "-G", "Ninja", "-S", HERE / "consumer", "-B", place / "build",
            f"-DCMAKE_PREFIX_PATH={self.root}/usr")
        run("cmake", "--build", place / "build", "--target", "consumer")
        for program in (place / "in_c", place / "build/consumer"):
            self.assertIn(f"weft {SETTINGS.version}",
                          run(program, LD_LIBRARY_PATH=str(folder)))

    def test_python_finds_its_modules_there(self):
        said = run("/usr/bin/python3", "-B", "-c",
                   "import weft.aio, weft.capture, weft.connection; print(weft.__file__)",
                   PYTHONPATH=str(self.root / "usr/lib/python3/dist-packages"),
                   LD_LIBRARY_PATH=str(libraries(self.root)))
        self.assertTrue(said.startswith(str(self.root)), said)

    def test_nothing_stands_where_the_system_has_its_own(self):
        place = libraries(self.root)
        self.assertEqual({path.name for path in place.glob("lib*.so.*") if not path.is_symlink()},
                         {f"libweft.so.{SETTINGS.version}",
                          f"libweft-capture.so.{SETTINGS.version}"})
        self.assertEqual({path.name for path in (place / "weft").iterdir()},
                         {"libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1",
                          "libweft-dissect.so", "libweft-heap.so", "libweft-node.so",
                          "libweft-shared-heap.so", "libweft-sockets.so", "selftest"})

    def test_others_that_are_linked_to_it_will_need_it(self):
        named = set()
        for name in (f"libweft{self.soversion}", f"libweft-capture{self.soversion}"):
            said = run("dpkg-deb", "--info", self.packages[name], "shlibs")
            library, version, package = re.match(r"(\S+) (\S+) (\S+) \(>= \2\)$", said).groups()
            self.assertEqual(package, name)
            named.add(f"{library}.so.{version}")
        self.assertEqual(named, {path.name for path in libraries(self.root).glob("lib*.so.*")
                                 if path.is_symlink()})

    def test_manuals_documents_and_examples(self):
        manuals = self.root / "usr/share/man/man1"
        self.assertEqual(sorted(path.name for path in manuals.iterdir()),
                         [f"{name}.gz" for name in MANUALS])
        documents = self.root / "usr/share/doc/weft-doc"
        for name in ("tour.md", "examples/ping_pong.cc", "examples/python/ping_pong.py"):
            self.assertTrue((documents / name).exists(), name)

    def test_each_header_is_there(self):
        public = HERE.parents[1] / "include"
        for header in public.rglob("*.hpp"):
            copy = self.root / "usr/include" / header.relative_to(public)
            self.assertEqual(copy.read_bytes(), header.read_bytes())

    def test_dependencies_are_what_is_linked_to(self):
        inside = {path.name for path in self.root.rglob("*")}
        listed = run("ldconfig", "-p")
        for package in self.packages:
            needed = set().union(*map(needed_by, self.files(package))) - inside
            owners = set()
            for name in needed:
                path = re.search(rf"{re.escape(name)} \(.*x86-64.*\) => (.*)", listed)
                if not path:
                    self.skipTest(f"{name} is not where the dynamic linker looks")
                real = os.path.realpath(path.group(1))
                owners.add(self.owner(real) or self.owner(real.removeprefix("/usr")))
            depends = {word.split()[0] for word in self.field(package, "Depends").split(", ")
                       if word}
            self.assertLessEqual(owners, depends, package)

    @staticmethod
    def owner(path):
        done = subprocess.run(["dpkg", "-S", path], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False)
        return done.stdout.split(":")[0]

    def test_reading_captures_needs_no_libpcap(self):
        needed = needed_by(libraries(self.root) / f"libweft-capture.so.{SETTINGS.version}")
        self.assertFalse([name for name in needed if "pcap" in name])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--version", required=True)
    SETTINGS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
