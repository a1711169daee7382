"""The examples of the Python package, as a user starts them; and the package itself, by pip."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "python/examples"
PROGRAM = pathlib.Path(os.environ["WEFT_TEST_PROGRAM"])


def run(*command, **more):
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
                          check=False, env={**os.environ, "PATH": path, **more})
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}")
    return done.stdout


def has(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


class Examples(unittest.TestCase):
    def test_ping_pong(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "latency.svg")
            said = run(sys.executable, "-B", EXAMPLES / "ping_pong.py", "--turns", "20",
                       "--plot", file)
            self.assertRegex(said, r"(?m)^ +262144 +\d+\.\d +\d+\.\d$")
            if file.exists():
                self.assertIn("<svg", file.read_text(encoding="utf-8"))
            else:
                self.assertIn("matplotlib is not installed", said)

    @unittest.skipUnless(has("numpy"), "needs the package python3-numpy")
    def test_parameter_server(self):
        self.assertEqual(run(sys.executable, "-B", EXAMPLES / "parameter_server.py"),
                         "y = 3.00 x + 1.00\n")

    @unittest.skipUnless(PROGRAM.exists(), "needs the program weft")
    def test_slow_nfs(self):
        said = run(sys.executable, "-B", EXAMPLES / "slow_nfs.py",
                   ROOT / "tests/data/capture/nfs3_rxe.pcap.zst")
        self.assertIn("1163 RPCs", said)
        self.assertIn("slowest: NFSv3 WRITE", said)
        self.assertIn("warning: ", said)


@unittest.skipUnless(has("pip"), "needs the package python3-pip")
class Installed(unittest.TestCase):
    def test_pip_installs_the_package_without_a_network(self):
        with tempfile.TemporaryDirectory() as folder:
            site = pathlib.Path(folder, "site")
            run(sys.executable, "-m", "pip", "install", "--no-index", "--no-cache-dir",
                "--disable-pip-version-check", "--target", site, ROOT / "python")
            said = run(sys.executable, "-B", "-c",
                       "import weft.connection, weft.aio; print(weft.__version__, weft.__file__)",
                       PYTHONPATH=str(site))
            version, file = said.split()
            self.assertTrue(file.startswith(str(site)))
            self.assertTrue((site / "weft/py.typed").exists())
            listed = run(sys.executable, "-m", "pip", "list", "--path", site,
                         "--disable-pip-version-check")
            self.assertRegex(listed, rf"weft +{version}")


@unittest.skipUnless(has("mypy"), "needs the package mypy")
class Types(unittest.TestCase):
    def test_the_package_has_correct_types(self):
        self.assertIn("no issues found", run(sys.executable, "-m", "mypy", "--cache-dir",
                                             "/dev/null", "--strict", ROOT / "python/weft"))

    # The only error is that of a program that takes bytes for text.
    def test_programs_see_the_types(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text("from weft.stream import connect\n"
                               "taken: str = connect('host', 7174).receive(1)\n", encoding="utf-8")
            done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", "/dev/null",
                                   "--check-untyped-defs", "--ignore-missing-imports", program,
                                   *sorted(EXAMPLES.glob("*.py"))],
                                  text=True, stdout=subprocess.PIPE, timeout=240, check=False,
                                  env={**os.environ, "MYPYPATH": str(ROOT / "python")})
        self.assertIn('has type "bytes"', done.stdout)
        self.assertIn("Found 1 error in 1 file", done.stdout)


class Versions(unittest.TestCase):
    def test_the_package_has_the_version_of_the_library(self):
        said = run(sys.executable, "-B", "-c", "import weft; from weft._library import c; "
                   "print(weft.__version__, c.version().decode())")
        self.assertEqual(len(set(said.split())), 1, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
