"""A bad link between two machines that are only network namespaces.

Each end is a process in a user and network namespace of its own, with a TUN device. A forwarder
between them drops, delays and reorders packets, as a seed decides. It needs no privilege where user
namespaces are allowed and /dev/net/tun may be opened; elsewhere it raises Skip with the reason.
"""

import ctypes
import dataclasses
import fcntl
import heapq
import os
import random
import select
import signal
import socket
import struct
import time

from harness import Skip

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFMTU = 0x8913, 0x8914, 0x8922
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCGIFINDEX = 0x8916, 0x891C, 0x8933
_IFF_UP = 0x1
_NAME = b"tun0"
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass
class Weather:
    """What the link does to packets, each way."""

    loss: float = 0.01
    reorder: float = 0.05  # this many overtake those that wait
    delay_s: float = 0.002
    mtu: int = 9000


class Place:
    """One end. `enter` takes the calling process there, as a child does before its program."""

    def __init__(self, pid, ipv4, ipv6):
        self.pid, self.ipv4, self.ipv6 = pid, ipv4, ipv6
        self._descriptors = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
                             for kind in ("user", "net")]

    def enter(self):
        for descriptor in self._descriptors:
            if _LIBC.setns(descriptor, 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def close(self):
        for descriptor in self._descriptors:
            os.close(descriptor)


class LossyLink:
    """Two Places joined by a link with this weather. A context manager."""

    def __init__(self, seed, weather=Weather()):
        self._seed, self._weather = seed, weather
        self._children, self._keep = [], []
        self.places = ()
        self._counts = None

    def __enter__(self):
        try:
            ends = [self._make_end(number) for number in (1, 2)]
            self._start_forwarder([tun for _, tun in ends])
            self.places = tuple(place for place, _ in ends)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for keep in self._keep:
            keep.close()
        for place in self.places:
            place.close()
        for pid in self._children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.waitpid(pid, 0)
        self._children = []

    def counts(self):
        """What the forwarder did until now: packets forwarded, dropped, and let overtake."""
        self._counts.sendall(b"?")
        return dict(zip(("forwarded", "dropped", "overtaking"),
                        struct.unpack("<3Q", self._counts.recv(24))))

    def _make_end(self, number):
        """A process that owns the namespaces until this one closes its socket, and its device."""
        ipv4, ipv6 = f"10.77.0.{number}", f"fd77::{number}"
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _own_namespaces(theirs, ipv4, ipv6, self._weather.mtu)
        theirs.close()
        self._children.append(pid)
        self._keep.append(ours)
        message, descriptors, _, _ = socket.recv_fds(ours, 4096, 1)
        if not descriptors:
            raise Skip(message.decode() or "the owner of a namespace ended at once")
        return Place(pid, ipv4, ipv6), descriptors[0]

    def _start_forwarder(self, tuns):
        self._counts, theirs = socket.socketpair()
        self._keep.append(self._counts)
        pid = os.fork()
        if pid == 0:
            try:
                Forwarder(tuns, theirs, self._seed, self._weather).run()
            finally:
                os._exit(1)
        self._children.append(pid)
        theirs.close()
        for tun in tuns:
            os.close(tun)


class Forwarder:
    """Moves packets between two devices. Each direction has its own random numbers, so that a
    packet's fate depends on its place in its direction and on nothing else."""

    def __init__(self, tuns, control, seed, weather):
        self._tuns, self._control, self._weather = tuns, control, weather
        self._random = {tun: random.Random(f"{seed}/{index}") for index, tun in enumerate(tuns)}
        self._peer = {tuns[0]: tuns[1], tuns[1]: tuns[0]}
        self._waiting = []  # (due, sequence, device, packet)
        self._sequence = 0
        self._forwarded = self._dropped = self._overtaking = 0

    def run(self):
        for tun in self._tuns:
            os.set_blocking(tun, False)
        while True:
            wait_s = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            ready, _, _ = select.select([*self._tuns, self._control], [], [], wait_s)
            for source in ready:
                if source is self._control:
                    self._answer()
                else:
                    self._take(source)
            self._deliver()

    def _answer(self):
        if not self._control.recv(1):
            os._exit(0)  # the test is over
        self._control.sendall(struct.pack("<3Q", self._forwarded, self._dropped,
                                          self._overtaking))

    def _take(self, source):
        for _ in range(64):
            try:
                packet = os.read(source, 65536)
            except BlockingIOError:
                return
            chance = self._random[source].random()
            if chance < self._weather.loss:
                self._dropped += 1
                continue
            overtakes = chance < self._weather.loss + self._weather.reorder
            self._overtaking += overtakes
            delay_s = 0 if overtakes else self._weather.delay_s
            self._sequence += 1
            heapq.heappush(self._waiting, (time.monotonic() + delay_s, self._sequence,
                                           self._peer[source], packet))

    def _deliver(self):
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, device, packet = heapq.heappop(self._waiting)
            try:
                os.write(device, packet)
                self._forwarded += 1
            except OSError:
                self._dropped += 1  # the device's queue is full: what a real link does as well


def _own_namespaces(parent, ipv4, ipv6, mtu):
    """In a child: makes the namespaces, hands over the device, and stays until the parent goes."""
    try:
        tun = _make_namespaces(ipv4, ipv6, mtu)
    except OSError as error:
        parent.sendall(f"no link between namespaces: {error.strerror} ({error.filename})".encode())
        os._exit(0)
    socket.send_fds(parent, [b"ready"], [tun])
    os.close(tun)
    parent.recv(1)
    os._exit(0)


def _make_namespaces(ipv4, ipv6, mtu):
    uid, gid = os.geteuid(), os.getegid()
    if _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()),
                      "unshare: user namespaces are forbidden")
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"),
                       ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{file}", "w", encoding="ascii") as out:
            out.write(text)
    tun = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", _NAME, _IFF_TUN | _IFF_NO_PI))
    except OSError as error:
        raise OSError(error.errno, error.strerror, "/dev/net/tun") from None
    _configure(ipv4, ipv6, mtu)
    return tun


def _configure(ipv4, ipv6, mtu):
    """Addresses, size and state of the devices, as ifconfig does it: there may be no `ip` here."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(ipv4))
        mask = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton("255.255.255.0"))
        fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", _NAME, mtu))
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s8x", _NAME, address))
        fcntl.ioctl(control, _SIOCSIFNETMASK, struct.pack("16s16s8x", _NAME, mask))
        for name in (b"lo", _NAME):
            request = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16s24x", name))
            flags = struct.unpack("16xH", request[:18])[0]
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", name, flags | _IFF_UP))
        request = fcntl.ioctl(control, _SIOCGIFINDEX, struct.pack("16s24x", _NAME))
        index = struct.unpack("16xi", request[:20])[0]
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SIOCSIFADDR, struct.pack(
                "16sIi", socket.inet_pton(socket.AF_INET6, ipv6), 64, index))
    except OSError:
        pass  # IPv4 only; a test of IPv6 asks for itself
