"""The steps of the Containerfile, in a folder of its own: nothing is installed."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def steps():
    """The instructions of the file, each as one line."""
    lines = [line for line in (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
             if line and not line.startswith("#")]
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()


class Container(unittest.TestCase):
    def test_it_is_the_system_that_the_tests_run_on(self):
        release = re.search(r"^FROM .*/debian:(\d+)$", "\n".join(steps()), re.MULTILINE).group(1)
        self.assertIn(f"| Debian {release} on x86-64",
                      (ROOT / "README.md").read_text(encoding="utf-8"))

    def test_its_steps_set_up_what_the_tests_need(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            for name, inside in (("bin", ""), ("setup", ""), ("var", "lib/apt/lists")):
                (place / name / inside).mkdir(parents=True)
            # Notes what would be installed, and has nothing installed yet.
            for name, text in (("apt-get", f'echo "$@" >> {place}/calls'), ("dpkg-query", "exit 0"),
                               ("sudo", 'exec "$@"')):
                program = place / "bin" / name
                program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
                program.chmod(0o755)
            for step in steps():
                word, rest = step.split(maxsplit=1)
                if word == "COPY":
                    *sources, into = rest.split()
                    for source in sources:
                        shutil.copy(ROOT / source, f"{place}{into}")
                elif word == "RUN":
                    command = re.sub(r"(?<!\S)/(setup|var)", rf"{place}/\1", rest)
                    done = subprocess.run(["sh", "-c", command], text=True, check=False, timeout=60,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT,
                                          env={**os.environ,
                                               "PATH": f"{place}/bin:{os.environ['PATH']}"})
                    self.assertEqual(done.returncode, 0, done.stdout)
            calls = (place / "calls").read_text(encoding="utf-8")
            for package in ("cmake", "libibverbs-dev", "libgtest-dev", "perftest", "python3-pip"):
                self.assertRegex(calls, rf"install .*\b{package}\b")
            self.assertFalse((place / "setup").exists())
            self.assertEqual(list((place / "var/lib/apt/lists").iterdir()), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
