"""Runs one interoperability test with the programs of another release of Debian, or lists them all.

usage: run.py CASE       exit status as of tests/interop/run.py
       run.py --list     NAME TIMEOUT_SECONDS for each

WEFT_DEBIAN_ROOT is the folder that root.py has made. The test runs in user and mount namespaces of
its own, in which this folder is the root; the folder of the project and /tmp are those of this
machine. Weft is the one of this machine's build.
"""

import ctypes
import os
import pathlib
import re
import sys

_HERE = pathlib.Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_INTEROP = _HERE.parent / "interop"
# Programs that root.py unpacks.
_WANTED = re.compile(
    r"(ib_(send|write|read|atomic)_(bw|lat)|ibv_\w+|rping|rdma_x?server|ucmatose|cmtime|udaddy|"
    r"mckey|rstream|riostream|rcopy|udpong|qperf|fio|ucx_info|ucx_perftest|fi_pingpong|"
    r"mpich|openmpi|openshmem|pyverbs)\.")
SKIP_STATUS = 77

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NAMESPACES = 0x10000000 | 0x00020000  # CLONE_NEWUSER, CLONE_NEWNS
_BIND, _RECURSIVE, _PRIVATE, _DETACH = 0x1000, 0x4000, 0x40000, 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def _call(function, *arguments):
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _bind(source, target):
    _call(_LIBC.mount, os.fsencode(source), os.fsencode(target), None, _BIND | _RECURSIVE, None)


def enter(root):
    """Makes `root` the root of this process, with what it has to share with this machine."""
    user, group = os.getuid(), os.getgid()
    _call(_LIBC.unshare, _NEW_NAMESPACES)
    pathlib.Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    pathlib.Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
    pathlib.Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    _call(_LIBC.mount, None, b"/", None, _RECURSIVE | _PRIVATE, None)
    _bind(root, root)
    for path in ("/proc", "/dev", "/sys", "/tmp", _ROOT):
        _bind(path, root + str(path))
    # And not chroot(2), after which a process can make no user namespace.
    os.chdir(root)
    _call(_LIBC.syscall, _PIVOT_ROOT[os.uname().machine], b".", b".")
    _call(_LIBC.umount2, b".", _DETACH)
    os.chdir("/")


def main(arguments):
    sys.path.insert(0, str(_INTEROP))
    if arguments == ["--list"]:
        import cases
        import run  # noqa: F401
        for case in cases.CASES.values():
            if _WANTED.match(case.name) and not case.long and "sandbox" not in case.name:
                print(case.name, case.timeout_s)
        return 0
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    root = os.environ.get("WEFT_DEBIAN_ROOT", "")
    if not os.path.exists(os.path.join(root, "stamp")):
        print("skipped: WEFT_DEBIAN_ROOT names no folder of tests/debian/root.py")
        return SKIP_STATUS
    try:
        enter(os.path.realpath(root))
    except OSError as error:
        print(f"skipped: no user namespaces here ({error})")
        return SKIP_STATUS
    for name in ("WEFT_DEBIAN_ROOT", "WEFT_INTEROP_RESULTS"):
        os.environ.pop(name, None)
    os.environ["PATH"] = "/usr/local/bin:/usr/bin:/usr/sbin"
    os.execv("/usr/bin/python3",
             ["/usr/bin/python3", "-B", str(_INTEROP / "run.py"), *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
