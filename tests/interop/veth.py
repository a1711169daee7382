"""Two hosts that are only network namespaces, joined by a pair of veth devices.

The namespaces belong to one new user namespace, which needs no privilege where such are allowed;
elsewhere it raises Skip with the reason.
"""

import os
import shutil
import socket
import subprocess

from harness import Skip
from lossy_link import Place

_DEVICE = "weft-veth"
_TABLE = ("10.78.0.1", "fd78::1"), ("10.78.0.2", "fd78::2")


class VethPair:
    """Two Places with a wire between them. A context manager.

    addresses: (IPv4, IPv6) of each; prefix_bits: of the IPv4 subnet."""

    def __init__(self, addresses=_TABLE, prefix_bits=24):
        self._owners, self.places = [], ()
        self._addresses, self._prefix_bits = addresses, prefix_bits

    def __enter__(self):
        for tool in ("ip", "unshare", "nsenter"):
            if shutil.which(tool) is None:
                raise Skip(f"{tool} is not installed: no namespaces")
        try:
            self._own("unshare", "--user", "--map-root-user", "--net")
            self._own(*self._in(0, "unshare", "--net"))
            self._configure()
            self.places = tuple(Place(owner.pid, *addresses)
                                for owner, addresses in zip(self._owners, self._addresses))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for place in self.places:
            place.close()
        for owner in self._owners:
            owner.stdin.close()  # what keeps it alive
            owner.wait()
            owner.stdout.close()
        self.places, self._owners = (), []

    def take_down(self, number):
        """The link of one Place. Nothing answers the other one any more."""
        self._ip(number, "link", "set", _DEVICE, "down")

    def _own(self, *enter):
        """A process that keeps a namespace until this one closes its input. The tools replace
        themselves by what they start, so its pid is the namespace's."""
        owner = subprocess.Popen([*enter, "sh", "-c", "echo ready; read end"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        self._owners.append(owner)
        said = owner.stdout.readline().strip()
        if said != "ready":
            raise Skip(f"no namespaces: {said or 'their owner ended at once'}")

    def _in(self, number, *command):
        return ["nsenter", f"--target={self._owners[number].pid}", "--user", "--net",
                "--preserve-credentials", *command]

    def _ip(self, number, *words):
        done = subprocess.run(self._in(number, "ip", *map(str, words)), capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise Skip(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")

    def _configure(self):
        self._ip(0, "link", "add", _DEVICE, "type", "veth", "peer", "name", _DEVICE, "netns",
                 self._owners[1].pid)
        for number, (ipv4, ipv6) in enumerate(self._addresses):
            self._ip(number, "address", "add", f"{ipv4}/{self._prefix_bits}", "dev", _DEVICE)
            if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6"):
                self._ip(number, "address", "add", f"{ipv6}/64", "dev", _DEVICE, "nodad")
            for device in ("lo", _DEVICE):
                self._ip(number, "link", "set", device, "up")
