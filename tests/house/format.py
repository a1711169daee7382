"""The C++ code is as clang-format 14 writes it. ./dev format makes it so."""

import re
import shutil
import subprocess
import sys

import house

VERSION = "14"  # other versions differ in small things


def main():
    root = house.arguments(__doc__).parse_args().root.resolve()
    tool = shutil.which(f"clang-format-{VERSION}") or shutil.which("clang-format")
    if tool is None:
        house.skip("clang-format is not installed (./dev setup --all installs it)")
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)", said)
    if not found or found.group(1) != VERSION:
        house.skip(f"needs clang-format {VERSION}, found {said.strip()}")

    paths = house.sources(root, ("src", "include", "tests", "examples", "fuzz", "bench"))
    if not paths:
        return 0
    names = [str(path.relative_to(root)) for path in paths]
    done = subprocess.run([tool, "--dry-run", "-Werror", *names], cwd=root, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.findall(r"^(\S+?:\d+):\d+: error:", done.stdout, re.MULTILINE)
    places = list(dict.fromkeys(found))
    for place in places:
        print(f"{place}: not as clang-format writes it; run ./dev format")
    if done.returncode and not places:
        print(done.stdout)
    print(f"{len(paths)} files checked, {len(places)} findings")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
