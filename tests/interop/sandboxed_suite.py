"""The suite of other people's programs in each sandbox: one long test for each of them, which runs
all cases of the programs and says for each why it was left out, if it was."""

import os
import re
import shutil
import time
import traceback

import cases
import harness
import sandboxes

_TIMEOUT_S = 3600


class _Stage(harness.Stage):
    """Runs all sides in the place, and counts them. Its files may be written by any user."""

    def __init__(self, place):
        super().__init__()
        self.place, self.inside = place, 0
        if getattr(place, "writable", None):
            self.environment |= {"TMPDIR": place.writable,
                                 "XDG_RUNTIME_DIR": os.path.join(place.writable, "runtime")}

    def start(self, name, program, *arguments, place=None, **options):
        if place is None:
            self.inside += 1
            if hasattr(self.place, "need_open"):
                self.place.need_open(shutil.which(program) or program)
        return super().start(name, program, *arguments, place=place, **options)

    def scratch(self, name):
        path = super().scratch(name)
        os.chmod(os.path.dirname(path), 0o777)
        return path


def _suite():
    """The cases of programs of Debian's packages that choose no sandbox themselves. Those that kill
    programs again and again take minutes, and say nothing of the place."""
    return [case for case in cases.CASES.values()
            if case.package and not case.long and not case.sources
            and not re.search(r"\.(sandbox|killed)_", case.name)]


def _run(case, place):
    """Returns "passed", "skipped" or "failed", and why."""
    stage = _Stage(place)
    try:
        with stage:
            case.run(stage)
    except harness.Skip as reason:
        return "skipped", str(reason)
    except harness.Failure as failure:
        return "failed", str(failure)
    except Exception:  # pylint: disable=broad-except
        return "failed", traceback.format_exc()
    if not stage.inside:
        return "skipped", "its programs run in places of their own"
    return "passed", ""


def _place(name):
    """In places where no file can be written, one folder stays writable: there the tests put files
    for the programs, and the device puts its counters for the tests."""
    kind, folder = sandboxes.PLACES[name], os.environ.get("WEFT_INTEROP_SCRATCH")
    if name not in ("read_only", "container") or not folder:
        return kind()
    os.makedirs(os.path.join(folder, "runtime"), mode=0o700, exist_ok=True)
    os.chmod(folder, 0o1777)
    return kind(writable=folder)


def _left_out(name, forbidden):
    return next((reason for pattern, reason in forbidden.items()
                 if re.fullmatch(pattern, name)), None)


def _all_in(name, forbidden):
    def run(stage):
        place, found = _place(name), {"passed": [], "skipped": [], "failed": []}
        try:
            for case in _suite():
                start, reason = time.monotonic(), _left_out(case.name, forbidden)
                result, why = ("skipped", reason) if reason else _run(case, place)
                found[result].append(case.name)
                print(f"{case.name}: {result} in {time.monotonic() - start:.1f} s"
                      + (f": {why}" if why else ""), flush=True)
        finally:
            if hasattr(place, "close"):
                place.close()
        stage.note = ", ".join(f"{len(names)} {result}" for result, names in found.items() if names)
        print(stage.note)
        harness.need(found["passed"] and not found["failed"],
                     f"{stage.note}: {' '.join(found['failed'])}")

    return run


# These have fixed names.
_XRC = r"ib_\w+\.raw_xrc.*"

# Interpreters, servers and libraries, and programs that look through folders or change files.
_WITH_OTHER_CALLS = "|".join((
    "asyncio", "bash", "ceph", "dovecot", "dtest", "erlang", "etcd", "fi_info", "fi_pingpong",
    "fio", "haproxy", "httpd", "ibstat", "ibstatus", "inetd", "iperf3", "java", "libfabric",
    "librpma", "mariadb", "memcached", "mpich", "nginx", "node", "openmpi", "openssh", "openshmem",
    "postgresql", "pyverbs", "qemu", "qperf", "rcopy", "redis", "rsync", "socat", "tgt",
    "ucx_info", "ucx_perftest", "varnish"))

# What a place itself forbids, by cases, with the reason.
_FORBIDDEN = {
    "user": {r"(ceph|fio|mariadb|openssh|postgresql|rsync)\..*":
             "its files belong to the user of the tests",
             r"(dovecot|inetd|tgt)\..*": "the program changes users, or is managed by root",
             r"httpd\..*": "it opens /dev/stderr, which belongs to the user of the tests",
             _XRC: "perftest writes files in /tmp, which no other user could open afterwards"},
    "no_privileges": {
        r"dovecot\..*": "the program changes users",
        r"(mpich|openmpi|openshmem|pyverbs)\..*":
            "root needs a capability to make a user namespace"},
    "namespace": {
        r"dovecot\..*": "the program changes users",
        r"libfabric\.greeting_(alone|iwarp)|nc\.(to_plain|fallback)|nginx\.daemon"
        r"|rdma_(client|server)\.of_a_connection|tgt\..*": "one of its sides is outside"},
    "seccomp": {rf"({_WITH_OTHER_CALLS})\..*|nc\.file":
                "the program makes system calls of its own that Weft does not need",
                r"ib_\w+\.shared_heap.*": "there is no shared heap without memfd_create"},
    "read_only": {
        r"dovecot\..*": "the program changes users",
        r"(httpd|memcached|mpich|openmpi|openshmem|openssh|postgresql|pyverbs|rsync)\..*":
            "it needs a user namespace of its own, which nothing below another root may make",
        _XRC: "perftest writes files in /tmp"},
    "container": {
        r"(ceph|fio|mariadb|openssh|postgresql|rsync)\..*":
            "its files belong to the user of the tests",
        r"(dovecot|inetd|java|nginx)\..*": "the container has no users and no settings in /etc",
        r"haproxy\.hands_over|openshmem\..*": "the program gets no signals from outside",
        r"tgt\..*": "the program is managed by root"},
    "no_shared_memory": {
        r"dovecot\..*": "the program changes users",
        r"(postgresql|pyverbs)\..*": "the program needs /dev/shm for itself"},
}

for _name in sandboxes.PLACES:
    cases.add(f"sandbox.suite_{_name}", _all_in(_name, _FORBIDDEN.get(_name, {})),
              timeout_s=_TIMEOUT_S, long=True)


# --- Programs that allow themselves no other threads (RLIMIT_NPROC) -------------------------------
#
# The kernel enforces that where they do not run as root. Streams have their threads by then.

@cases.case("sandbox.haproxy")
def haproxy(_stage):
    result, why = _run(cases.CASES["haproxy.http"], sandboxes.OrdinaryUser())
    if result == "skipped":
        raise harness.Skip(why)
    harness.need(result == "passed", why)


_SERVER = """
import resource, socket, sys
def forbid_threads():
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
if sys.argv[2] == "first":
    forbid_threads()
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    if sys.argv[2] == "later":
        forbid_threads()
    for _ in range(3):
        connection, _ = server.accept()
        connection.sendall(b"answer to " + connection.recv(100))
        connection.close()
"""
_CLIENT = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
for i in range(3):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
        server.sendall(b"%d" % i)
        print(server.recv(100).decode())
"""


def _forbids_threads(when):
    def run(stage):
        python = shutil.which("python3", path="/usr/bin")  # one that another user may read
        if not python:
            raise harness.Skip("there is no /usr/bin/python3")
        stage.place, port = sandboxes.OrdinaryUser(), harness.free_port()
        options = ("--sockets=always",)
        server = stage.start("server", python, "-c", _SERVER, port, when, options=options)
        server.await_listening(port)
        client = stage.start("client", python, "-c", _CLIENT, port, options=options)
        client.finish()
        server.finish()
        harness.need(all(f"answer to {i}" in client.lines for i in range(3)),
                     f"the client says {client.lines}")

    return run


for _when in ("first", "later"):
    cases.add(f"sandbox.forbids_threads_{_when}", _forbids_threads(_when))
