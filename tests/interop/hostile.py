"""A hostile peer against a real program: it speaks MPA, DDP and RDMAP well enough to get in, and
then breaks their rules, first by a script, then at random under a seed. The program must serve the
next peer as before, and no byte may change or be shown that was not granted.

`WEFT_TEST_LONG=1` runs many times as many conversations; `./dev soak` runs them for hours.
"""

import os
import pathlib
import random
import re
import socket
import struct
import time

import cases
import harness
from harness import need

SLACK_BYTES = 64 << 20  # what the allocator may keep of the program's memory
_HOST = "127.0.0.1"
_CANARY = 0xC5  # of hostile_target, in memory that is not granted
_REGION = struct.Struct("=QII")
_REQUEST, _REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
_WRITE, _READ, _RESPONSE, _SEND, _SEND_INVALIDATE, _TERMINATE, _IMMEDIATE, _ATOMIC = \
    0, 1, 2, 3, 4, 7, 8, 10


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def mpa_request(flags=0x50, revision=2, private=b"", depths=(0xC010, 0xC010), length=None,
                key=_REQUEST):
    body = struct.pack(">HH", *depths) + private
    size = len(body) if length is None else length
    return key + struct.pack(">BBH", flags, revision, size) + body


def fpdu(ulpdu, length=None, crc=None):
    framed = struct.pack(">H", (len(ulpdu) if length is None else length) & 0xFFFF) + ulpdu
    framed += bytes(-len(framed) % 4)
    return framed + struct.pack("<I", crc32c(framed) if crc is None else crc)


def tagged(stag, offset, payload=b"", opcode=_WRITE, last=True):
    return struct.pack(">BBIQ", 0x81 | (0x40 if last else 0), 0x40 | opcode, stag & 0xFFFFFFFF,
                       offset & (1 << 64) - 1) + payload


def untagged(queue, msn, offset, payload=b"", opcode=_SEND, last=True, stag=0):
    return struct.pack(">BBIIII", 0x01 | (0x40 if last else 0), 0x40 | opcode, stag & 0xFFFFFFFF,
                       queue & 0xFFFFFFFF, msn & 0xFFFFFFFF, offset & 0xFFFFFFFF) + payload


def read_request(msn, size, stag, offset):
    return untagged(1, msn, 0, struct.pack(">IQIIQ", 1, 0, size & 0xFFFFFFFF, stag & 0xFFFFFFFF,
                                           offset & (1 << 64) - 1), _READ)


class Peer:
    """One TCP connection. What comes back is kept, but for what is read as an answer."""

    def __init__(self, port):
        self.socket = socket.create_connection((_HOST, port), timeout=harness.WAIT_S)
        self.regions = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """False where the other end has closed already."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def _need(self, size):
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise ConnectionResetError
            found += part
        return found

    def enter(self, regions=True):
        """The handshake as it should be, and the first FPDU. `regions`: the reply has them, as that
        of hostile_target."""
        self.send(mpa_request())
        head = self._need(20)
        need(head[:16] == _REPLY, f"the reply begins with {head[:16]}")
        private = self._need(struct.unpack(">H", head[18:])[0])
        if regions:
            self.regions = [_REGION.unpack_from(private, at) for at in
                            range(4, 4 + 2 * _REGION.size, _REGION.size)]
        self.send(fpdu(tagged(1, 0)))

    def until(self, wanted):
        """What came until these bytes did, or the end."""
        found = b""
        while wanted not in found and (part := self.socket.recv(65536)):
            found += part
        return found

    def rest(self):
        """Ends our side; returns what the other one sent until it ended its own."""
        found = b""
        try:
            self.socket.shutdown(socket.SHUT_WR)
            while part := self.socket.recv(65536):
                found += part
        except OSError:
            pass
        return found


def _script(regions):
    """Each breaks one rule. The region that may be written, and the one that may be read."""
    (base, key, size), (shown, read_key, _) = regions
    return {
        "a wrong CRC": [fpdu(tagged(key, base, b"x" * 8), crc=1)],
        "a length without a header": [fpdu(b"", length=3) + bytes(64)],
        "the largest length": [fpdu(b"\x41\x40", length=0xFFFF), bytes(70000)],
        "a Write beyond the end": [fpdu(tagged(key, base + size - 4, b"y" * 8))],
        "a Write before the start": [fpdu(tagged(key, base - 4, b"y" * 8))],
        "a Write that wraps": [fpdu(tagged(key, (1 << 64) - 4, b"y" * 8))],
        "a Write into what may be read": [fpdu(tagged(read_key, shown, b"y" * 8))],
        "a Write with a guessed key": [fpdu(tagged(key ^ 0x100, base, b"y" * 8))],
        "a Read beyond the end": [fpdu(read_request(1, 8, read_key, shown + 4092))],
        "a Read of 4 GiB": [fpdu(read_request(1, 0xFFFFFFFF, read_key, shown))],
        "more Reads than the depth": [fpdu(read_request(n + 1, 4096, read_key, shown))
                                      for n in range(64)],
        "a response to nothing": [fpdu(tagged(key, base, b"z" * 8, _RESPONSE))],
        "a Send out of order": [fpdu(untagged(0, 2, 0, b"s" * 8))],
        "a Send with a gap": [fpdu(untagged(0, 1, 8, b"s" * 8))],
        "a Send that is too long": [fpdu(untagged(0, 1, 0, b"s" * 1000))],
        "more Sends than receives": [fpdu(untagged(0, n + 1, 0, b"s" * 8)) for n in range(16)],
        "a Send that invalidates": [fpdu(untagged(0, 1, 0, b"s", _SEND_INVALIDATE, stag=key))],
        "an unknown queue": [fpdu(untagged(9, 1, 0, b"s" * 8))],
        "an unknown opcode": [fpdu(untagged(0, 1, 0, b"s" * 8, 15))],
        "an atomic that is not aligned": [fpdu(untagged(1, 1, 0, struct.pack(
            ">IIIQQQQQ", 0, 1, key, base + 4, 1, 0, 0, (1 << 64) - 1), _ATOMIC))],
        "a Terminate that is cut": [fpdu(untagged(2, 1, 0, b"\x11", _TERMINATE))],
        "half an FPDU": [fpdu(tagged(key, base, b"x" * 100))[:50]],
    }


def _handshakes():
    return {
        "nothing": b"", "one byte": b"M", "another protocol": b"GET / HTTP/1.1\r\n\r\n" + bytes(40),
        "a reply": mpa_request(key=_REPLY), "an unknown revision": mpa_request(revision=9),
        "more private data than is allowed": mpa_request(length=0xFFFF) + bytes(0xFFFF),
        "less than was announced": mpa_request(length=200), "no depths": mpa_request(length=0),
        "all flags": mpa_request(flags=0xFF), "half of it": mpa_request()[:17],
    }


class Mutator:
    """Conversations at random: segments of every kind with fields of every value, then bytes that
    are changed, repeated and left out."""

    def __init__(self, seed, regions):
        self.random, self.regions = random.Random(seed), regions

    def number(self, bits, *likely):
        edges = (0, 1, (1 << bits) - 1, 1 << bits - 1, self.random.getrandbits(bits))
        return self.random.choice(likely * 3 + edges) & (1 << bits) - 1

    def segment(self):
        base, key, size = self.random.choice(self.regions)
        payload = self.random.randbytes(self.number(12, 0, 8, 64) % 3000)
        msn = self.number(32, 1, 2, 3)
        offset = self.number(64, base, base + size - 8, base - 1)
        stag = self.number(32, key)
        kind = self.random.randrange(6)
        if kind == 0:
            opcode = self.number(4, _WRITE, _RESPONSE)
            return tagged(stag, offset, payload, opcode, self.random.random() < .8)
        if kind == 1:
            return read_request(msn, self.number(32, 0, 8, size), stag, offset)
        if kind == 2:
            code = self.number(4, 0, 1)
            words = [self.number(64, 0, 1) for _ in range(4)]
            return untagged(1, msn, 0, struct.pack(">IIIQ", code, msn, stag, offset) +
                            struct.pack(">4Q", *words), _ATOMIC)
        if kind == 3:
            return untagged(2, 1, 0, payload[:64], _TERMINATE)
        if kind == 4:
            return untagged(0, msn, 0, payload[:8], _IMMEDIATE)
        return untagged(self.number(32, 0, 0, 1, 3), msn, self.number(32, 0, 0, len(payload)),
                        payload, self.number(4, _SEND, _SEND_INVALIDATE),
                        self.random.random() < .7, stag)

    def framed(self):
        segment = self.segment()
        if self.random.random() < .05:
            return fpdu(segment, length=self.number(16, len(segment)))
        return fpdu(segment, crc=self.number(32) if self.random.random() < .03 else None)

    def conversation(self):
        stream = b"".join(self.framed() for _ in range(self.random.randrange(1, 12)))
        return self.damaged(stream) if self.random.random() < .3 else stream

    def damaged(self, stream):
        bytes_ = bytearray(stream)
        for _ in range(self.random.randrange(1, 6)):
            at = self.random.randrange(len(bytes_))
            change = self.random.randrange(3)
            if change == 0:
                bytes_[at] ^= 1 << self.random.randrange(8)
            elif change == 1:
                del bytes_[at:at + self.random.randrange(1, 20)]
            else:
                bytes_[at:at] = self.random.randbytes(self.random.randrange(1, 20))
            if not bytes_:
                break
        return bytes(bytes_)


def serves(port):
    """A peer that keeps the rules: writes, and reads what it wrote, and what it may read."""
    with Peer(port) as peer:
        peer.enter()
        (base, key, _), (shown, read_key, _) = peer.regions
        peer.send(fpdu(tagged(key, base, b"good")) + fpdu(read_request(1, 4, key, base)) +
                  fpdu(read_request(2, 16, read_key, shown)))
        answer = peer.until(bytes([_CANARY]) * 16)
        need(b"good" in answer, f"a good peer gets {answer.hex()}")
        need(bytes([_CANARY]) * 16 in answer, "a good peer does not get what it may read")


class Target:
    """The program under attack."""

    def __init__(self, stage, options=()):
        self.port = harness.free_port()
        self.side = stage.start("target", harness.companion("hostile_target"), _HOST, self.port,
                                options=options, say=True)
        self.side.await_listening(self.port)
        self.seen = 0

    def look(self):
        self.side.say("look")
        found = self.side.expect(r"^connections (\d+) open (\d+) descriptors (\d+) threads (\d+) "
                                 r"memory (\w+)$", start=self.seen)
        self.seen = self.side.read
        need(found[5] == "intact", "memory was changed that no peer may change")
        resident = pathlib.Path(f"/proc/{self.side.pid}/statm").read_text().split()[1]
        return [*map(int, found.groups()[:4]), int(resident) * os.sysconf("SC_PAGESIZE")]

    def settle_open(self):
        """Until no connection is open."""
        end = time.monotonic() + harness.WAIT_S
        while opened := self.look()[1]:
            need(time.monotonic() < end, f"{opened} connections are open")
            time.sleep(0.1)

    def settle(self, before):
        """After the last peer has left, nothing of any of them is left either."""
        end = time.monotonic() + harness.WAIT_S
        while True:
            _, opened, descriptors, threads, resident = self.look()
            if opened == 0 and descriptors <= before[2] and threads <= before[3]:
                need(resident <= before[4] + SLACK_BYTES,
                     f"the target's memory grew from {before[4]} to {resident} bytes")
                return
            need(time.monotonic() < end, f"{opened} connections are open, {descriptors} "
                                         f"descriptors and {threads} threads; before: {before}")
            time.sleep(0.1)

    def finish(self):
        self.side.end_input()
        self.side.finish()


def attack(target, name):
    """Breaks one rule of the script. Returns what the target has sent."""
    with Peer(target.port) as peer:
        peer.enter()
        for data in _script(peer.regions)[name]:
            peer.send(data)
        return peer.rest()


@cases.case("hostile.script", sanitized=True)
def script(stage):
    """Each rule is broken once, and a peer that keeps them is served after each."""
    target = Target(stage)
    serves(target.port)
    before = target.look()
    for data in _handshakes().values():
        with Peer(target.port) as peer:
            peer.send(data)
            peer.rest()
        serves(target.port)
    with Peer(target.port) as peer:
        peer.enter()
        names = list(_script(peer.regions))
    for name in names:
        answer = attack(target, name)
        need(bytes([_CANARY]) * 4097 not in answer, f"{name}: more was shown than was granted")
        serves(target.port)
    target.settle(before)
    target.finish()


def mutated(stage, conversations, seed, options=()):
    target = Target(stage, options)
    serves(target.port)
    before = target.look()
    for number in range(conversations):
        with Peer(target.port) as peer:
            chosen = random.Random(f"{seed} {number}")
            if chosen.random() < .2:
                mutator = Mutator(f"{seed} {number}", [(0, 0, 4096)])
                peer.send(mutator.damaged(mpa_request(private=chosen.randbytes(40))))
            else:
                peer.enter()
                peer.send(Mutator(f"{seed} {number}", peer.regions).conversation())
            if chosen.random() < .8:
                peer.rest()
        if number % 50 == 49:
            need(target.side.process.poll() is None, f"the target ended in conversation {number}")
            serves(target.port)
            target.look()
    serves(target.port)
    target.settle(before)
    target.finish()


@cases.case("hostile.mutated", timeout_s=1800, sanitized=True)
def mutated_case(stage):
    """Conversations at random. The one that ends the target is found again with the seed."""
    mutated(stage, 100000 if harness.is_long() else 3000, harness.seed())


@cases.case("hostile.link", timeout_s=600, sanitized=True)
def link(stage):
    """The same through a slower network (`weft run --link`), which keeps what is under way."""
    mutated(stage, 300, harness.seed(), ["--link", "latency=500us,jitter=500us"])
