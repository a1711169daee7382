"""Programs in sandboxes: as another user, without privileges, in namespaces, under a seccomp filter
that allows what docs/security.md lists, where no file can be written, without /dev/shm, and in a
container of an ordinary user.

A place of these tests is entered by each side between fork and exec (harness.Side).
"""

import ctypes
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile

import cases
import harness
import pingpong
import rdmacm_utils
from harness import Skip, need
from veth import VethPair

_LIBC = ctypes.CDLL(None, use_errno=True)
_NOBODY = 65534
_FEW = 50
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 22, 24, 38
_SECCOMP_MODE_FILTER = 2


def _check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _no_new_privileges():
    _check(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


class OrdinaryUser:
    """Another user than root; the user of the tests where that is not root."""

    def __init__(self):
        for path in (harness.weft(), os.environ["WEFT_INTEROP_BIN"]):
            self.need_open(path)

    @staticmethod
    def need_open(path):
        """Skips where the user cannot come to the file."""
        if os.geteuid() == 0:
            for folder in pathlib.Path(path).resolve().parents:
                if not folder.stat().st_mode & 1:
                    raise Skip(f"{folder} is closed to other users")

    @staticmethod
    def enter():
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)


class NoPrivileges:
    """No capability in any set, which the harness sees to, and no way to get one by exec."""

    @staticmethod
    def enter():
        for capability in range(64):
            _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # an ordinary user has none to drop
        harness.shed_privileges()
        _no_new_privileges()


def _need_mount_namespaces():
    if not harness.succeeds("unshare", "--user", "--map-root-user", "--mount", "true"):
        raise Skip("no mount namespaces")


def _enter_mount_namespace():
    user, group = os.geteuid(), os.getegid()
    _check(_LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"),
                       ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    _check(_LIBC.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "private mounts")


class NoSharedMemory:
    """A mount namespace whose /dev has the usual devices and no folder: POSIX shared memory and
    semaphores fail."""

    _DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

    def __init__(self):
        _need_mount_namespaces()
        if not os.path.isdir("/dev/shm"):
            raise Skip("there is no /dev/shm here")

    @classmethod
    def enter(cls):
        _enter_mount_namespace()
        _check(_LIBC.mount(b"none", b"/dev/shm", b"tmpfs", 0, b"size=64k,mode=755"), "a new /dev")
        for name in cls._DEVICES:
            path = f"/dev/shm/{name}"
            with open(path, "wb"):
                pass
            _check(_LIBC.mount(f"/dev/{name}".encode(), path.encode(), None, _MS_BIND, None), path)
        _check(_LIBC.mount(b"/dev/shm", b"/dev", None, _MS_BIND | _MS_REC, None), "/dev")
        need(os.listdir("/dev") and not os.path.exists("/dev/shm"), "/dev/shm is still there")


class Namespace:
    """A user and a network namespace, as of `unshare -Urn`. close() comes after the sides' end."""

    def __init__(self):
        self._link = VethPair()
        self._link.__enter__()
        self.enter = self._link.places[0].enter

    def close(self):
        self._link.__exit__()


class Container(OrdinaryUser):
    """A container of podman, started by an ordinary user. Its files are the host's /usr and this
    build, read-only, but for the folder `writable`; its network is the host's; podman's own seccomp
    filter is in force. Each side has a container and with it a process namespace of its own."""

    _RUNTIMES = ("runc", "crun")  # crun refuses hosts with both versions of control groups
    _END_S = 100  # a container outlives podman

    def __init__(self, writable=None):
        super().__init__()
        harness.installed("podman")
        self.writable = writable
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-container-"))
        self._make_files()
        failed = "no runtime of podman is installed"
        for self._runtime in filter(shutil.which, self._RUNTIMES):
            done = subprocess.run(self.wrap(["true"]), capture_output=True, text=True, check=False,
                                  stdin=subprocess.DEVNULL, timeout=harness.WAIT_S,
                                  preexec_fn=self.enter)
            if done.returncode == 0:
                return
            failed = f"{self._runtime}: {done.stderr.strip().splitlines()[-1:]}"
        self.close()
        raise Skip(f"podman cannot run a container here: {failed}")

    def _make_files(self):
        """The root has links to what is in the host's /usr, as the host's own."""
        root = self._folder / "root"
        for name in ("run", "root", *(f"root/{each}" for each in (
                "usr", "run", "proc", "dev", "sys", "etc", "tmp"))):
            (self._folder / name).mkdir()
        for name in ("bin", "lib", "lib32", "lib64", "sbin"):
            if os.path.islink(f"/{name}"):
                (root / name).symlink_to(os.readlink(f"/{name}"))
        if os.geteuid() == 0:
            for path in (self._folder, *self._folder.rglob("*")):
                os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)

    def wrap(self, argv):
        build = str(pathlib.Path(harness.weft()).resolve().parents[1])
        return ["env", f"HOME={self._folder}", f"XDG_RUNTIME_DIR={self._folder}/run",
                "podman", "--runtime", self._runtime, "--cgroup-manager=cgroupfs",
                "--storage-driver=vfs", "--log-level=fatal", "run", "--rm", "-i", "--env-host",
                "--network=host", "-v", "/usr:/usr:ro",
                "-v", "/etc/alternatives:/etc/alternatives:ro", "-v", f"{build}:{build}:ro",
                *(("-v", f"{self.writable}:{self.writable}") if self.writable else ()),
                "--rootfs", str(self._folder / "root"),
                "timeout", "-k", "1", str(self._END_S), *map(str, argv)]

    def close(self):
        shutil.rmtree(self._folder, ignore_errors=True)


class ReadOnly:
    """A mount namespace in which the root is read-only, but for the folder `writable`, and the
    usual places for files are empty and read-only."""

    _COVERED = ("/tmp", "/var/tmp", "/dev/shm", "/run")

    def __init__(self, writable=None):
        _need_mount_namespaces()
        self.writable = writable

    def enter(self):
        _enter_mount_namespace()
        if self.writable:
            folder = os.fsencode(self.writable)
            _check(_LIBC.mount(folder, folder, None, _MS_BIND, None), self.writable)
        for path in self._COVERED:
            if os.path.isdir(path):
                _check(_LIBC.mount(b"none", path.encode(), b"tmpfs", _MS_RDONLY, b"size=4k"), path)
        _check(_LIBC.mount(b"/", b"/", None, _MS_BIND | _MS_REC, None), "a bind of /")
        # Flags that the mount had before are locked and must stay.
        kept = os.statvfs("/").f_flag & 0x40F  # noatime, noexec, nodev, nosuid, read-only
        os.chroot("/proc/self/root")
        _check(_LIBC.mount(None, b"/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept, None),
               "a read-only /")


def documented_calls():
    """The names in the block `seccomp` of docs/security.md."""
    page = pathlib.Path(__file__).resolve().parents[2] / "docs/security.md"
    block = re.search(r"^```seccomp\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    need(block, "docs/security.md has no list of system calls")
    return [word for line in block[1].splitlines() for word in line[11:].split()]


def optional_calls():
    """The names in the table behind it."""
    page = pathlib.Path(__file__).resolve().parents[2] / "docs/security.md"
    behind = page.read_text().partition("These are used where they are allowed")[2]
    table = behind.partition("##")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    need(rows, "docs/security.md has no table of optional calls")
    return {name for row in rows for name in re.findall(r"`(\w+)", row.split("|")[1])}


class Traced:
    """strace(1) writes down the system calls of each side."""

    def __init__(self, stage):
        self._strace, self._stage, self._files = harness.installed("strace"), stage, []
        if not harness.succeeds(self._strace, "-o", "/dev/null", "true"):
            raise Skip("strace cannot trace here")

    def wrap(self, argv):
        self._files.append(self._stage.scratch(f"calls_{len(self._files)}"))
        return [self._strace, "-f", "-qq", "-o", self._files[-1], *argv]

    def calls(self):
        return {found[1] for name in self._files for found in re.finditer(
            r"^(?:\d+ +)?(\w+)\(", pathlib.Path(name).read_text(errors="replace"), re.MULTILINE)}


@cases.case("sandbox.traced")
def traced(stage):
    """The system calls of programs are those that docs/security.md lists."""
    place = Traced(stage)
    for program in ("rping", "ibv_rc_pingpong", "ibv_ud_pingpong"):
        _converse(program, stage, (place, place))
    stage.place = place
    _netcat(stage)
    _example(stage)
    found = place.calls()
    need("sendmsg" in found or "sendto" in found, f"the traces have {sorted(found)}")
    missing = found - set(documented_calls()) - optional_calls()
    need(not missing, f"docs/security.md does not list {sorted(missing)}")


def call_numbers():
    for name in ("asm/unistd_64.h", "asm-generic/unistd.h"):
        for folder in ("/usr/include", *pathlib.Path("/usr/include").glob("*-linux-gnu*")):
            path = pathlib.Path(folder) / name
            if path.exists():
                return {found[1]: int(found[2]) for found in
                        re.finditer(r"^#define __NR_(\w+)\s+(\d+)", path.read_text(), re.MULTILINE)}
    raise Skip("the kernel's headers are not installed")


class Seccomp:
    """A filter that answers ENOSYS to each call that is not in the list."""

    def __init__(self):
        numbers = call_numbers()
        allowed = sorted({numbers[name] for name in documented_calls() if name in numbers})
        load, equals, answer = 0x20, 0x15, 0x06
        program = [(load, 0, 0, 0)]
        program += [(equals, len(allowed) - at, 0, number) for at, number in enumerate(allowed)]
        program += [(answer, 0, 0, 0x50000 | 38), (answer, 0, 0, 0x7FFF0000)]
        self._code = b"".join(struct.pack("HBBI", *line) for line in program)
        self._buffer = ctypes.create_string_buffer(self._code)
        self._filter = ctypes.create_string_buffer(
            struct.pack("HxxxxxxP", len(program), ctypes.addressof(self._buffer)))

    def enter(self):
        _no_new_privileges()
        _check(_LIBC.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._filter, 0, 0), "seccomp")


def _converse(program, stage, places, address="127.0.0.1"):
    if program == "rping":
        rdmacm_utils.rping(stage, address, places=places, count=_FEW)
    else:
        pingpong.pingpong(stage, program=program, count=_FEW, places=places, address=address)


def _in_place(program, kind):
    def run(stage):
        place = kind()
        _converse(program, stage, (place, place))

    return run


def _in_namespace(program):
    def run(stage):
        with VethPair() as link:
            try:
                _converse(program, stage, (link.places[0], link.places[0]))
            finally:
                for side in stage.sides:  # the sides go before their network does
                    if side.process.poll() is None:
                        side.signal(9)

    return run


@cases.case("sandbox.set_user_id")
def set_user_id(stage):
    """A program with more rights than its caller opens no file that the caller's environment names:
    secure_getenv(3)."""
    OrdinaryUser()
    if os.geteuid() != 0:
        raise Skip("only root can make a program of another user")
    program = stage.scratch("advertise")
    os.chmod(os.path.dirname(program), 0o755)
    shutil.copy(pathlib.Path(harness.weft()).parent / "../examples/advertise", program)
    if os.statvfs(program).f_flag & os.ST_NOSUID:
        raise Skip("the file system has no set-user-ID programs")
    os.chown(program, _NOBODY, -1)
    for mode, written in ((0o755, 3), (0o4755, 0)):
        os.chmod(program, mode)
        folder = stage.scratch(f"files_{mode:o}")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        names = {name: os.path.join(folder, name)
                 for name in ("WEFT_STATS", "WEFT_CAPTURE", "WEFT_TRACE")}
        stage.plain(f"program_{mode:o}", program, env=names).finish()
        files = os.listdir(folder)
        need(len(files) == written, f"mode {mode:o}: the program has written {files}")


# Each runs in each place, beside those above. What a place itself forbids is left out there.
_PROGRAMS = ("ibv_devinfo.verbose", "ibv_uc_pingpong.events", "ibv_srq_pingpong.events",
             "ucmatose.ipv4", "rdma_server.ipv4", "ib_send_bw.raw_inline",
             "ib_read_bw.raw_bidirectional", "ib_atomic_bw.raw_cmp_and_swap", "rstream.poll",
             "udaddy.ipv4")


def _netcat(stage):
    """A program of TCP sockets, each of whose calls is that of a stream."""
    program = os.path.realpath(harness.installed("nc"))  # a container has no /etc
    port, options = harness.free_port(), ["--sockets=always"]
    server = stage.start("server", program, "-l", "-N", "127.0.0.1", port, options=options)
    server.await_listening(port)
    client = stage.start("client", program, "-N", "127.0.0.1", port, options=options, say=True)
    lines = [f"line {number} {'x' * number}" for number in range(_FEW)]
    for line in lines:
        client.say(line)
    client.end_input()
    client.finish()
    server.finish()
    found = [line for line in server.lines if not line.startswith("weft: ")]
    need(found == lines, f"the server has {len(found)} lines of {len(lines)}")


def _example(stage):
    """A program of the C++ library, of the layer that has a loop of events."""
    program = pathlib.Path(harness.weft()).parent / "../examples/ping_pong"
    side = stage.start("example", str(program), _FEW)
    side.finish()
    need(f"{_FEW} rounds" in side.output, "the example has not reached its end")


def _all_in_place(kind):
    def run(stage):
        place = kind()
        try:
            for name in _PROGRAMS:
                _run_in(stage, place, name, cases.CASES[name].run)
            _run_in(stage, place, "nc", _netcat)
            _run_in(stage, place, "ping_pong", _example)
        finally:
            if hasattr(place, "close"):
                place.close()

    return run


def _run_in(stage, place, name, run):
    try:
        with harness.Stage() as inner:
            inner.place = place
            run(inner)
            stage.ran += inner.ran
    except harness.Failure as failure:
        raise harness.Failure(f"{name}: {failure}") from failure


PLACES = {"user": OrdinaryUser, "no_privileges": NoPrivileges, "namespace": Namespace,
          "read_only": ReadOnly, "seccomp": Seccomp, "no_shared_memory": NoSharedMemory,
          "container": Container}

for _name, _kind in PLACES.items():
    cases.add(f"sandbox.programs_{_name}", _all_in_place(_kind), timeout_s=300)

for _program in ("rping", "ibv_rc_pingpong", "ibv_ud_pingpong"):
    for _name, _kind in (("user", OrdinaryUser), ("no_privileges", NoPrivileges),
                         ("read_only", ReadOnly), ("seccomp", Seccomp),
                         ("no_shared_memory", NoSharedMemory)):
        cases.add(f"{_program}.sandbox_{_name}", _in_place(_program, _kind))
    cases.add(f"{_program}.sandbox_namespace", _in_namespace(_program))
