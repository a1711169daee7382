"""Weft's Debian packages on a bare Debian, in the guest: dpkg installs them, and an ordinary user
without any privilege runs programs. The guest has no RDMA device."""

import contextlib
import pathlib
import re
import subprocess

import registry
import suites
from guest import Guest, image
from harness import Skip, need

_ROOT = "/bare"
_USER = "setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set -all --no-new-privs"
_LIMIT_S = 600


def packages(stage):
    """The packages of this build that a user of the program installs: it, and its libraries."""
    settings = suites.build() / "CPackConfig.cmake"
    if not settings.exists():
        raise Skip(f"no {settings}: ./dev test --kernel builds everything")
    folder = pathlib.Path(stage.scratch("packages"))
    done = subprocess.run(["cpack", "--config", settings, "-B", folder], capture_output=True,
                          text=True, check=False)
    need(done.returncode == 0, f"cpack: {done.stdout}{done.stderr}")
    return [path for path in sorted(folder.glob("*.deb"))
            if re.match(r"(weft|libweft|libweft-capture)[0-9.]*_", path.name)]


class Debian:
    """The bare Debian in the guest."""

    def __init__(self, guest, bare):
        self._guest = guest
        guest.run(f"mkdir {_ROOT} && tar -C {_ROOT} -xf {bare} && "
                  f"for folder in proc sys dev; do mount --rbind /$folder {_ROOT}/$folder; done && "
                  f"mkdir -p {_ROOT}/user && chown 1000:1000 {_ROOT}/user")

    def as_root(self, command):
        return self._guest.run(f"chroot {_ROOT} {command}")

    def start(self, name, command):
        return self._guest.start(
            name, f"chroot {_ROOT} env HOME=/user {_USER} sh -c 'ulimit -l 64; {command}'")

    def as_user(self, command):
        side = self.start("user", command)
        side.finish(_LIMIT_S)
        return side.output


def converse(debian, guest, port, server, client, options=""):
    """Server and client of a program, both by the user; `options` of `weft run`."""
    one = debian.start("server", f"exec weft run {options} -- {server}")
    guest.await_listening(port)
    other = debian.start("client", f"exec weft run {options} -- {client}")
    other.finish(_LIMIT_S)
    one.finish(_LIMIT_S)
    return one, other


@contextlib.contextmanager
def installed(stage):
    """A bare Debian in the guest with the packages, and the guest."""
    files = packages(stage)
    with Guest(stage, device="none", shared=(image(), files[0].parent), memory_mib=2048) as guest:
        debian = Debian(guest, image() / "bare.tar")
        for file in files:
            guest.run(f"cp {file} {_ROOT}/tmp/")
        debian.as_root("dpkg --install " + " ".join(f"/tmp/{file.name}" for file in files))
        yield debian, guest
        names = " ".join(file.name.partition("_")[0] for file in files)
        debian.as_root(f"dpkg --purge {names}")
        left = debian.as_root("find / -xdev -name '*weft*' -not -path '/tmp/*'").split()
        need(not left, f"left behind: {left}")
        guest.need_healthy()


def package(stage):
    with installed(stage) as (debian, guest):
        need("Weft works here" in debian.as_user("weft doctor"), "weft doctor finds an obstacle")
        need("weft0" in debian.as_user("weft run -- ibv_devices"), "ibv_devices shows no weft0")
        rping = "rping -a 127.0.0.1 -p 7174 -C 10 -v -V"
        _, client = converse(debian, guest, 7174, f"{rping} -s", f"{rping} -c")
        pings = sum(line.startswith("ping data:") for line in client.lines)
        need(pings == 10, f"the client shows {pings} pings, expected 10")
        write = "ib_write_bw -F -R -p 7175 -n 20 -s 65536"
        _, client = converse(debian, guest, 7175, write, f"{write} 127.0.0.1")
        need(re.search(r"^\s*65536\s+20\s", client.output, re.MULTILINE),
             "ib_write_bw shows no result")


def need_carrier(side, wanted):
    lines = [line for line in side.lines if ": TCP" in line or ": same host" in line]
    need(lines and all(line.rstrip().endswith(wanted) for line in lines),
         f"{wanted}: {side.output}")


_SAME_HOST = ": same host, without TCP"
_STAGED = (": same host, without TCP, payload through shared memory, because the kernel does not "
           "let the processes read each other's memory")


def yama(stage):
    """With Ubuntu's ptrace_scope the ends of a connection name each other, as WEFT_PTRACER says,
    and connections of others take two copies."""
    with installed(stage) as (debian, guest):
        guest.run("echo 1 > /proc/sys/kernel/yama/ptrace_scope")
        rping = "rping -a 127.0.0.1 -C 10"
        for port, options, wanted in ((7180, "--verbose", _SAME_HOST),
                                      (7181, "--verbose --ptracer off", _STAGED)):
            sides = converse(debian, guest, port, f"{rping} -p {port} -s", f"{rping} -p {port} -c",
                             options)
            need_carrier(sides[1], wanted)
        # A server has one peer after the other, and then a second one at the same time.
        for port, mode, wanted in ((7182, "peer", _STAGED), (7183, "any", _SAME_HOST)):
            weft = f"exec weft run --verbose --ptracer {mode} -- rping -a 127.0.0.1 -p {port}"
            server = debian.start("server", f"{weft} -s -P")
            guest.await_listening(port)
            for _ in range(2):
                client = debian.start("client", f"{weft} -c -C 10")
                client.finish(_LIMIT_S)
                need_carrier(client, _SAME_HOST)
            first = debian.start("first", f"{weft} -c -v")
            first.expect("ping data:", _LIMIT_S)
            client = debian.start("second", f"{weft} -c -C 10")
            client.finish(_LIMIT_S)
            need_carrier(client, wanted)
            for side in (first, server):
                guest.kill(side)
                side.finish(_LIMIT_S, status=None)


registry.add("package.ordinary_user", package, timeout_s=1800)
registry.add("package.yama", yama, timeout_s=1800)
