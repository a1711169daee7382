"""docs/tour.md does what it says: its commands run one after the other, and say what it shows."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "dropin"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "interop"))
import harness  # pylint: disable=wrong-import-position
import libraries  # pylint: disable=wrong-import-position

SOURCE = pathlib.Path(__file__).parents[2]
MARK = "--- block "


def blocks():
    """(commands, what they are shown to say) of each block of commands."""
    text = (SOURCE / "docs/tour.md").read_text()
    found = re.findall(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", text, re.M | re.S)
    return [(commands, shown.splitlines()) for commands, shown in found]


class Tour(unittest.TestCase):
    def test_every_command_does_what_is_shown(self):
        libraries.needs_plain_libraries()
        for program in ("ibv_devices", "rping", "nc", "cmake", "c++", "pkg-config"):
            libraries.needs(program)
        script = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
        for number, (commands, _) in enumerate(blocks()):
            script += [f"echo '{MARK}{number}'", commands]
        # Where this build is, and a port that nobody has.
        text = "\n".join(script).replace("$SOURCE/build/dev", str(libraries.BUILD))
        text = text.replace("PORT=7174", f"PORT={harness.free_port()}")
        with tempfile.TemporaryDirectory() as place:
            done = subprocess.run(["bash", "-c", text], cwd=SOURCE, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False, timeout=240,
                                  env={**os.environ, "TMPDIR": place})
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        said = re.split(rf"^{MARK}\d+\n", done.stdout, flags=re.M)[1:]
        self.assertGreater(len(said), 5)
        for output, (_, shown) in zip(said, blocks(), strict=True):
            squeezed = re.sub(r"\s+", " ", output)
            for line in shown:
                self.assertIn(re.sub(r"\s+", " ", line.strip()), squeezed)


if __name__ == "__main__":
    sys.exit(libraries.main())
