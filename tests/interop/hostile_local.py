"""A hostile peer of the same user that offers to leave TCP (device/local/local_agreement.h), and
whose offer is wrong. The connection must stay on TCP, and be served there.
"""

import fcntl
import os
import socket
import struct

import cases
import hostile
from harness import json_of, need
from hostile import Peer, fpdu, read_request, tagged

# Magic, receives, the mark's address, number and descriptor, and whether the sender reaches the
# other process.
_OFFER = struct.Struct("=IIQQqQ")
_AGREED = (b"\2", b"\4")
_MARKS = {"a mark at no address", "a mark in the kernel", "another mark"}
_ADD_SEALS, _SEALS = 1033, 7  # F_ADD_SEALS; no shrinking, no growing, no further seals


def _file(size, seals=_SEALS):
    file = os.memfd_create("hostile", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, _ADD_SEALS, seals)
    return file


class Channel:
    """The Unix socket of a TCP connection, which is named before the handshake."""

    def __init__(self, peer):
        own, other = peer.socket.getsockname(), peer.socket.getpeername()
        names = [f"{host}:{port}" for host, port in (own, other)]
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(30)
        self.socket.connect(f"\0weft-local/{names[1]}")
        self.socket.send(">".join(names).encode())

    def offer(self):
        """The target's: its fields, and the sizes of its files."""
        data, files, _, _ = socket.recv_fds(self.socket, 2048, 8)
        need(len(data) == _OFFER.size and len(files) >= 3, f"the offer has {len(data)} bytes")
        sizes = [os.fstat(file).st_size for file in files[:3]]
        for file in files:
            os.close(file)
        return list(_OFFER.unpack(data)), sizes

    def refused(self):
        """Waits until the target closes; False if it agrees."""
        while answer := self.socket.recv(2048):
            if answer in _AGREED:
                return False
        return True


def _wrong(fields, sizes):
    """Offers with their files; each breaks one rule."""
    names = ("magic", "receives", "address", "number", "descriptor", "reaches")
    values = dict(zip(names, fields, strict=True))

    def files(*changed, seals=_SEALS):
        return [_file(size, seals) for size in (changed or sizes)]

    def offer(files_, **changed):
        return _OFFER.pack(*(values | changed).values()), files_

    good = _OFFER.pack(*fields)
    return {
        "nothing": (b"\0", []), "half of it": (good[:12], files()), "more": (good * 2, files()),
        "no file": (good, []), "two files": (good, files(*sizes[:2])),
        "eight files": (good, files(*sizes[:1] * 8)),
        "another version": offer(files(), magic=values["magic"] + 16),
        "no receives": offer(files(), receives=0), "three receives": offer(files(), receives=3),
        "2^31 receives": offer(files(), receives=1 << 31),
        "more receives than there is room for": offer(files(), receives=1 << 14),
        "files that may shrink": (good, files(seals=0)),
        "files that are short": (good, files(*(size // 2 for size in sizes))),
        "empty files": (good, files(0, 0, 0)),
        "a file that is none": (good, [os.dup(0), *files(*sizes[1:])]),
        "a mark at no address": offer(files(), address=8),
        "a mark in the kernel": offer(files(), address=(1 << 64) - 4096),
        "another mark": offer(files(), number=values["number"] ^ 1),
    }


def _serves_over_tcp(peer):
    (base, key, _), _ = peer.regions
    peer.send(fpdu(tagged(key, base, b"good")) + fpdu(read_request(1, 4, key, base)))
    need(b"good" in peer.until(b"good"), "the connection is not served over TCP")


def _attack(target, name):
    """Whether the offer was refused."""
    with Peer(target.port) as peer:
        channel = Channel(peer)
        peer.enter()
        fields, sizes = channel.offer()
        data, files = _wrong(fields, sizes)[name]
        socket.send_fds(channel.socket, [data], files)
        refused = channel.refused()
        if refused:
            _serves_over_tcp(peer)
        channel.socket.close()
        for file in files:
            os.close(file)
    hostile.serves(target.port)
    return refused


@cases.case("hostile.local_offers", sanitized=True)
def local_offers(stage):
    """Each offer is wrong in one way."""
    path = stage.scratch("stats.json")
    target = hostile.Target(stage, options=["--stats", path])
    names = list(_wrong((0, 64, 0, 0, 0, 0), (4096, 4096, 4096)))
    _attack(target, names[0])  # what the target grants is a file from now on
    before = target.look()
    refused = {name for name in names if _attack(target, name)}
    # A target that may not read this process's memory does not look for its mark, and copies
    # through shared memory.
    need(set(names) - refused <= _MARKS, f"agreed: {sorted(set(names) - refused)}")
    target.settle(before)
    target.finish()
    counted = json_of(path)["refusals"]["local_refused"]
    need(counted == 1 + len(refused), f"{counted} offers were refused, expected {1 + len(refused)}")
