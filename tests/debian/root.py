"""Makes a folder with the RDMA programs of another release of Debian, and what they need to run.

usage: root.py SUITE [FOLDER]     SUITE is trixie, sid, ...; FOLDER is build/debian/SUITE by default

The packages come from the mirror that apt is configured with. They are unpacked and neither
installed nor configured. What is there already is used again: FOLDER/stamp names the release and
this script.
"""

import hashlib
import pathlib
import shutil
import subprocess
import sys

_HERE = pathlib.Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_PACKAGES = (
    "ibverbs-utils", "rdmacm-utils", "perftest", "qperf", "fio", "ucx-utils", "libfabric-bin",
    "mpich", "openmpi-bin", "python3-pyverbs",
    # What the tests themselves and the libraries of Weft need.
    "python3", "bash", "dash", "sed", "grep", "coreutils", "iproute2", "mount", "util-linux",
    "libisal2", "libnl-route-3-200", "libstdc++6", "libzstd1")
# Of this machine: names of hosts, users and services, which no package brings.
_OF_THIS_MACHINE = ("hosts", "passwd", "group", "services", "protocols")
# Since the /usr merge these are links, which no package contains.
_LINKS = ("bin", "sbin", "lib", "lib64")


def mirror():
    """Debian's archive as apt is configured with."""
    lines = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(SUITE)", "Created-By: "
         "Packages"], check=True, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        origin, uri, _ = line.split("|")
        if origin == "Debian" and "security" not in uri:
            return uri
    raise SystemExit("root.py: apt is configured with no archive of Debian")


def stamp_of(suite):
    return f"{suite} {hashlib.sha256((_HERE / 'root.py').read_bytes()).hexdigest()}\n"


def make(suite, folder):
    work = folder.with_name(folder.name + ".new")
    shutil.rmtree(work, ignore_errors=True)
    # A mirror may lag behind, so the date until which its lists are valid does not matter.
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=extract", "--include=" + ",".join(_PACKAGES),
         "--aptopt=APT::Install-Recommends \"false\"",
         "--aptopt=Acquire::Check-Valid-Until \"false\"", suite, work, mirror()],
        check=True, stdin=subprocess.DEVNULL)
    for name in _LINKS:
        if not (work / name).exists():
            (work / name).symlink_to(f"usr/{name}")
    for name in ("proc", "dev", "sys", "tmp", "etc", *_ROOT.parts[1:2]):
        (work / name).mkdir(exist_ok=True)
    (work / str(_ROOT).lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name in _OF_THIS_MACHINE:
        if pathlib.Path("/etc", name).exists():
            shutil.copy(pathlib.Path("/etc", name), work / "etc" / name)
    (work / "stamp").write_text(stamp_of(suite))
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    suite = arguments[0]
    folder = pathlib.Path(arguments[1] if len(arguments) == 2 else _ROOT / "build/debian" / suite)
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == stamp_of(suite):
        return 0
    print(f"unpacking programs of Debian {suite} (half a minute)", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    make(suite, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
