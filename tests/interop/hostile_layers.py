"""A hostile peer of the C++ library's layers: it speaks iWARP well, greets a connection, a message
connection or a stream as its peer would, and then breaks the rules of that layer: by a script, then
at random under a seed. The program must serve the next peer as before.
"""

import random
import select
import socket
import struct
import time

import cases
import harness
from harness import need
from hostile import (Mutator, _IMMEDIATE, _RESPONSE, crc32c, fpdu, mpa_request, tagged, untagged)

_HOST = "127.0.0.1"
_KEY, _BASE, _BYTES = 0xBEEF07, 0x10000, 1 << 20  # memory that the attacker claims to have
_LAYERS = ("connection", "message", "stream")
_SLOTS = 64
_GOOD = b"a good peer"
_UNSERVED = "an offer that is not served"


class Target:
    def __init__(self, stage):
        self.side = stage.plain("target", harness.companion("hostile_layers_target"), _HOST,
                                say=True, privileged=False)
        found = self.side.expect(r"^ports (\d+) (\d+) (\d+)$")
        self.ports = dict(zip(_LAYERS, map(int, found.groups())))
        self.seen = self.side.read

    def ask(self, line, answer):
        self.side.say(line)
        found = self.side.expect(answer, start=self.seen)
        self.seen = self.side.read
        return found

    def look(self):
        found = self.ask("look", r"^open (\d+) (\d+) (\d+) descriptors (\d+) threads (\d+)$")
        return [int(number) for number in found.groups()]

    def settle(self, before):
        """Every conversation ends, and nothing is left of it. The target gives silent peers up
        after 20 s."""
        end = time.monotonic() + 2 * harness.WAIT_S
        while True:
            now = self.look()
            if now[:3] == [0, 0, 0] and now[4] <= before[4] and \
                    now[3] <= before[3] + harness.DESCRIPTOR_SLACK:
                return
            need(time.monotonic() < end, f"left behind: {now}; before: {before}")
            time.sleep(0.1)

    def finish(self):
        need(self.side.process.poll() is None, "the target has ended")
        self.side.end_input()
        self.side.finish()


# --- The private data ----------------------------------------------------------------------------


def stream_greeting(kind=1, receives=64, base=_BASE, key=_KEY, size=32768, variants=2, rows=4,
                    part=0, private=b"", version=1, magic=b"WEFS"):
    return magic + struct.pack(">BBHQIIBBBB", version, kind, receives, base, key, size, variants,
                               rows, part, len(private)) + private


def message_greeting(credits=16, eager=4096, longest=1 << 20, flags=1, private=b"", version=1,
                     magic=b"WEFM"):
    return magic + struct.pack(">BBHIQB", version, flags, credits, eager, longest,
                               len(private)) + private


def connection_greeting(slots=_SLOTS, base=_BASE, key=_KEY, buffer=None, private=b"", version=1,
                        magic=b"WEFC"):
    return magic + struct.pack(">BBHQIB", version, buffer is not None, slots, base, key,
                               len(private)) + (buffer or b"") + private


def buffer(address=_BASE, length=4096, key=_KEY):
    return struct.pack(">QQI", address & (1 << 64) - 1, length & (1 << 64) - 1, key)


_GREETINGS = {"stream": stream_greeting, "message": message_greeting,
              "connection": connection_greeting}


def _wrong_greetings():
    most = 0xFFFFFFFF
    return {
        "stream": [stream_greeting(**wrong) for wrong in (
            {"magic": b"WEFX"}, {"version": 9}, {"kind": 2}, {"kind": 3}, {"kind": 77},
            {"receives": 0}, {"receives": 1}, {"receives": 65535}, {"size": 0}, {"size": most},
            {"base": (1 << 64) - 1}, {"key": most}, {"variants": 0}, {"variants": 0x7C},
            {"variants": 0xFF}, {"rows": 255}, {"part": 31}, {"part": 255},
            {"size": 64 << 20, "rows": 255, "base": (1 << 64) - (64 << 20)})],
        "message": [message_greeting(**wrong) for wrong in (
            {"magic": b"WEFX"}, {"version": 9}, {"credits": 0}, {"credits": 65535}, {"eager": 0},
            {"eager": most}, {"longest": 0}, {"longest": (1 << 64) - 1}, {"flags": 255})],
        "connection": [connection_greeting(**wrong) for wrong in (
            {"magic": b"WEFX"}, {"version": 9}, {"slots": 0}, {"slots": 1}, {"slots": 65535},
            {"base": (1 << 64) - 1}, {"key": 0}, {"buffer": buffer((1 << 64) - 1, 1 << 63)},
            {"buffer": b"short"})],
    }


# --- What the layers send ------------------------------------------------------------------------


def frame(kind, flags=0, credits=0, counts=(0, 0, 0), rest=b""):
    return struct.pack(">BBHIII", kind, flags, credits & 0xFFFF,
                       *(count & 0xFFFFFFFF for count in counts)) + rest


def message(payload, **fields):
    return frame(1, rest=struct.pack(">IIQ", 1, 0, 2) + payload, **fields)


def offer(pieces, total=None, count=None, **fields):
    length = sum(size for _, size, _ in pieces) if total is None else total
    return frame(2, rest=struct.pack(">IIQQI", 1, 0, 2, length & (1 << 64) - 1,
                                     len(pieces) if count is None else count) +
                 b"".join(buffer(*piece) for piece in pieces), **fields)


def joined(payloads, lengths=None):
    rest = b""
    for at, payload in enumerate(payloads):
        rest += bytes(-len(rest) % 8)
        length = lengths[at] if lengths else len(payload)
        rest += struct.pack(">IIQ", 1, length & 0xFFFFFFFF, 2) + payload
    return frame(5, rest=rest)


def record(number, address=_BASE, length=64, key=_KEY, tag=1, crc=None):
    body = struct.pack(">I", number) + buffer(address, length, key) + struct.pack(">I", tag)
    return body + struct.pack(">I", crc32c(body) if crc is None else crc)


class Peer:
    """One connection of the attacker, with the handshake of a layer."""

    def __init__(self, target, layer):
        self.socket = socket.create_connection((_HOST, target.ports[layer]),
                                               timeout=harness.WAIT_S)
        self.layer, self.msn, self.received = layer, 0, b""
        self.base = self.key = self.bytes = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def say(self, data):
        """Sends it all; the other end may close meanwhile."""
        try:
            self.socket.sendall(data)
        except OSError:
            pass

    def _take(self, size):
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            need(part, f"the {self.layer} does not accept a good greeting")
            found += part
        return found

    def enter(self, greeting=None):
        """As it should be. What the target grants is in `base`, `key` and `bytes`."""
        self.say(mpa_request(private=greeting or _GREETINGS[self.layer]()))
        head = self._take(20)
        private = self._take(struct.unpack(">H", head[18:])[0])[4:]
        need(not head[16] & 0x20, f"the {self.layer} rejects a good greeting")
        if self.layer == "stream":
            self.base, self.key, self.bytes = struct.unpack(">QII", private[8:24])
        elif self.layer == "connection":
            self.base, self.key = struct.unpack(">QI", private[8:20])
            self.bytes = 64 + 32 * struct.unpack(">H", private[6:8])[0]
        self.say(fpdu(tagged(1, 0)))

    def send(self, payload):
        self.msn += 1
        return fpdu(untagged(0, self.msn, 0, payload))

    def write(self, offset, payload):
        return fpdu(tagged(self.key, self.base + offset, payload))

    def word(self, word, payload=b"", at=0):
        """A message of a stream, in the variant write and send."""
        written = self.write(at, payload) if payload else b""
        return written + self.send(struct.pack(">I", word & 0xFFFFFFFF))

    def good(self):
        """What a peer that keeps the rules sends, and what the target answers with."""
        if self.layer == "stream":
            return self.word(len(_GOOD), _GOOD), _GOOD
        if self.layer == "message":
            return self.send(message(_GOOD)), _GOOD
        return self.write(64, record(1)), struct.pack(">IQ", _KEY, _BASE)

    def await_answer(self, wanted):
        while wanted not in self.received:
            part = self.socket.recv(65536)
            need(part, f"the {self.layer} does not serve a good peer")
            self.received += part

    def answer_reads(self, chosen):
        """Answers the reads of what has arrived by now; not always as they should be."""
        while select.select([self.socket], [], [], 0.005)[0]:
            try:
                part = self.socket.recv(65536)
            except OSError:
                return
            if not part:
                return
            self.received += part
            while len(self.received) >= 2:
                size = struct.unpack(">H", self.received[:2])[0]
                whole = 2 + size + -(2 + size) % 4 + 4
                if len(self.received) < whole:
                    break
                self._answer(self.received[2:2 + size], chosen)
                self.received = self.received[whole:]

    def _answer(self, segment, chosen):
        if len(segment) < 46 or segment[1] & 15 != 1:  # not a Read Request
            return
        stag, offset, size = struct.unpack(">IQI", segment[18:34])
        if chosen.random() < .2:
            size = chosen.choice((0, 1, size + 1, size // 2))
        self.say(fpdu(tagged(stag, offset, bytes(min(size, 60000)), _RESPONSE)))

    def await_end(self, name):
        """Until the other end has ended the connection by itself."""
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            need(False, f"{self.layer}: {name} is not refused")
        except OSError:
            pass

    def rest(self):
        """Ends our side, and waits until the other one has ended its own."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(65536):
                pass
        except OSError:
            pass


def _serves(target):
    for layer in _LAYERS:
        with Peer(target, layer) as peer:
            peer.enter()
            data, wanted = peer.good()
            peer.say(data)
            peer.await_answer(wanted)


# --- By a script ---------------------------------------------------------------------------------


def _stream_attacks(peer):
    size = peer.bytes
    return {
        "more bytes than the ring": lambda: peer.word(size + 1), "no bytes": lambda: peer.word(0),
        "bytes across the end": lambda: peer.word(size - 1, b"x") + peer.word(2, b"yz", size - 1),
        "an unknown kind": lambda: peer.word(7 << 28), "all ones": lambda: peer.word(0xFFFFFFFF),
        "room that was not used": lambda: peer.word(1 << 31 | 0x1FFFFF),
        "receives that were not used": lambda: peer.word(1 << 31 | 255 << 21),
        "acknowledgements of nothing": lambda: peer.word(1 << 31 | 3 << 29),
        "an empty update": lambda: peer.word(1 << 31),
        "two ends": lambda: peer.word(1 << 28) + peer.word(1 << 28),
        "bytes after the end": lambda: peer.word(1 << 28) + peer.word(3, b"abc"),
        "a row that does not exist": lambda: peer.word(2 << 28 | 0xFFFFFF),
        "growth of a ring that does not grow": lambda: peer.word(3 << 28 | 65536),
        "a placement without memory": lambda: peer.word(4 << 28),
        "a wake that nothing asked for": lambda: peer.word(5 << 28) + peer.word(5 << 28 | 1),
        "a word that is too short": lambda: peer.send(b"abc"),
        "too long": lambda: peer.send(b"abcdef"),
        "an empty word": lambda: peer.send(b""),
        "an immediate": lambda: fpdu(untagged(0, 1, 0, struct.pack(">II", 1, 0), _IMMEDIATE)),
        "a Write behind the ring": lambda: peer.write(size + 4096, b"x"),
        "more words than receives": lambda: b"".join(peer.word(1, b"x") for _ in range(2000)),
    }


def _message_attacks(peer):
    far = (_BASE, 4096, _KEY)
    return {
        "an empty frame": lambda: peer.send(b""),
        "half a header": lambda: peer.send(message(b"x")[:9]),
        "an unknown kind": lambda: peer.send(frame(9)), "kind 0": lambda: peer.send(frame(0)),
        "credits that were not used": lambda: peer.send(frame(3, credits=65535)),
        "delivered what was not sent": lambda: peer.send(frame(3, counts=(1, 0, 0))),
        "fetched what was not offered": lambda: peer.send(frame(3, counts=(0, 1, 0))),
        "updates that were not sent": lambda: peer.send(frame(3, counts=(0, 0, 1))),
        "counts that run back": lambda: peer.send(frame(3, counts=(-1, -1, -1))),
        "too many updates": lambda: b"".join(peer.send(frame(3)) for _ in range(9)),
        "too many messages": lambda: b"".join(peer.send(message(b"x")) for _ in range(500)),
        "two CLOSE": lambda: peer.send(frame(4)) + peer.send(frame(4)),
        "a message after CLOSE": lambda: peer.send(frame(4)) + peer.send(message(b"x")),
        "an offer of nothing": lambda: peer.send(offer([])),
        "no pieces": lambda: peer.send(offer([], total=9)),
        "an empty piece": lambda: peer.send(offer([(_BASE, 0, _KEY)])),
        "a wrong sum": lambda: peer.send(offer([far], total=4097)),
        "a sum that wraps": lambda: peer.send(offer([(0, (1 << 64) - 1, 1), (0, 2, 1)], total=1)),
        "more pieces than there are": lambda: peer.send(offer([far], count=16)),
        "17 pieces": lambda: peer.send(offer([far] * 17)), "pieces without end": lambda: peer.send(
            offer([far], count=0xFFFFFFFF)),
        "an offer of 2^63 bytes": lambda: peer.send(offer([(0, 1 << 63, _KEY)])),
        _UNSERVED: lambda: peer.send(offer([far])),
        "a joined frame of nothing": lambda: peer.send(joined([])),
        "one that goes beyond": lambda: peer.send(joined([b"x"], lengths=[4000])),
        "a huge part": lambda: peer.send(joined([b"x"], lengths=[0x7FFFFFFF])),
        "300 parts": lambda: peer.send(joined([b""] * 200)) + peer.send(joined([b""] * 300)),
    }


def _connection_attacks(peer):
    most = (1 << 64) - 1
    return {
        "a wrong CRC": lambda: peer.write(64, record(1, crc=1)),
        "the second record first": lambda: peer.write(96, record(2)),
        "record 0": lambda: peer.write(64, record(0)),
        "a buffer of all memory": lambda: peer.write(64, record(1, 0, most)),
        "a buffer that wraps": lambda: peer.write(64, record(1, most, 64)),
        "an empty buffer": lambda: peer.write(64, record(1, length=0)),
        "a buffer that is not served": lambda: peer.write(64, record(1)),
        "the whole ring at once": lambda: peer.write(
            64, b"".join(record(n + 1) for n in range(_SLOTS))),
        "a count of all": lambda: peer.write(0, struct.pack(">Q", most)),
        "a count that runs back": lambda: peer.write(0, struct.pack(">Q", 5)) +
        peer.write(0, bytes(8)),
        "half a count": lambda: peer.write(4, b"\xff" * 4), "behind the ring": lambda: peer.write(
            peer.bytes, b"x"),
        "half a record": lambda: peer.write(64, record(1)[:20]),
        "a Send into no receive": lambda: peer.send(b"s" * 64) + peer.send(b"s" * 64),
    }


_ATTACKS = {"stream": _stream_attacks, "message": _message_attacks,
            "connection": _connection_attacks}

_ENDPOINTS = ("weft1:1:1:0:1024:::1", "weft1:ffffff:ffffff:ffff:4096:::ffff:127.0.0.1",
              "weft1:0:0:0:256:-", "weft1:ffffffff:ffffffff:ffffffff:4096:::1", "weft1:1:1:0:7:::1",
              "weft1", "weft1::::::", "weft2:1:1:0:1024:::1", "weft1:-1:1:0:1024:::1",
              "weft1:1:1:0:1024:ff02::1", "weft1:1:1:0:1024:" + "1:" * 500, "x" * 5000)


@cases.case("hostile.layers_script", timeout_s=600, sanitized=True)
def script(stage):
    """Each rule is broken once, and a peer of each layer that keeps them is served after each."""
    target = Target(stage)
    _serves(target)
    before = target.look()
    for layer, greetings in _wrong_greetings().items():
        for greeting in greetings:
            with Peer(target, layer) as peer:
                peer.say(mpa_request(private=greeting) + fpdu(tagged(1, 0)))
                peer.rest()
        _serves(target)
    for layer, attacks in _ATTACKS.items():
        with Peer(target, layer) as peer:
            peer.enter()
            names = list(attacks(peer))
        for name in names:
            with Peer(target, layer) as peer:
                peer.enter()
                peer.say(attacks(peer)[name]())
                # Words and frames that break a rule end the connection. In the control region of a
                # connection the peer may write anything; it harms itself only.
                if layer != "connection" and name != _UNSERVED:
                    peer.await_end(name)
                peer.answer_reads(random.Random(1))
                peer.rest()
            need(target.side.process.poll() is None, f"{layer}: {name} ended the target")
        _serves(target)
    for text in _ENDPOINTS:
        target.ask(f"endpoint {text}", r"^endpoint (\w+)$")
    target.settle(before)
    target.finish()


# --- At random -----------------------------------------------------------------------------------


class LayerMutator(Mutator):
    """What a peer of the layer sends, with values of every kind; and what any peer may send."""

    def __init__(self, seed, peer):
        super().__init__(seed, [(peer.base, peer.key, max(peer.bytes, 16))])
        self.peer = peer

    def greeting(self):
        choose = self.random.choice
        wrong = {"stream": {"receives": self.number(16, 64), "size": self.number(32, 32768, 100),
                            "variants": choose((1, 2, 3, 0x83, self.number(8))),
                            "rows": self.number(8, 4), "part": self.number(8, 0, 12),
                            "base": self.number(64, _BASE)},
                 "message": {"credits": self.number(16, 16), "eager": self.number(32, 4096, 0),
                             "longest": self.number(64, 1 << 20), "flags": self.number(8, 1)},
                 "connection": {"slots": self.number(16, 64, 1), "base": self.number(64, _BASE),
                                "buffer": choose((None, self.some_buffer()))}}[self.peer.layer]
        name = choose(list(wrong))
        return _GREETINGS[self.peer.layer](private=self.random.randbytes(choose((0, 7))),
                                           **{name: wrong[name]})

    def some_buffer(self):
        return buffer(self.number(64, _BASE), self.number(64, 64, 4096), self.number(32, _KEY))

    def framed(self):
        if self.random.random() < .2:
            return super().framed()
        return getattr(self, f"_{self.peer.layer}")()

    def _stream(self):
        kind, peer = self.random.random(), self.peer
        if kind < .5:  # as it should be, most of the time
            size = self.number(9, 1, 8, 100)
            return peer.word(size, bytes(size), self.number(15, 0, 8, 100) % peer.bytes)
        if kind < .8:
            update = 1 << 31 | self.number(2, 0) << 29 | self.number(8, 1) << 21 | \
                self.number(21, 0, 1, 100)
            return peer.word(self.random.choice((update, self.number(3) << 28 | self.number(28))))
        if kind < .9:
            return peer.write(self.number(17, peer.bytes), self.random.randbytes(40))
        return peer.send(self.random.randbytes(self.number(4, 4)))

    def _message(self):
        counts = [self.number(32, 0, 0, 0, 1, 2) for _ in range(3)]
        some = {"flags": self.number(8, 0, 1, 2), "credits": self.number(16, 0, 0, 1),
                "counts": counts}
        kind = self.random.randrange(6)
        if kind == 0:
            pieces = [(self.number(64, _BASE), self.number(64, 64, 4096, 9999), _KEY)
                      for _ in range(self.number(4, 1, 2))]
            return self.peer.send(offer(pieces, **some))
        if kind == 1:
            parts = [self.random.randbytes(self.number(6, 0, 8)) for _ in range(self.number(6, 2))]
            return self.peer.send(joined(parts))
        if kind == 2:
            return self.peer.send(frame(self.number(8, 3, 3, 4), **some))
        if kind == 3:
            return self.peer.send(self.random.randbytes(self.number(7)))
        return self.peer.send(message(self.random.randbytes(self.number(12, 0, 100)), **some))

    def _connection(self):
        kind, peer = self.random.random(), self.peer
        if kind < .6:
            peer.records = getattr(peer, "records", 0) + 1
            number = peer.records if self.random.random() < .9 else self.number(32)
            at = 64 + 32 * ((number - 1) % _SLOTS)
            return peer.write(at, record(number, self.number(64, _BASE), self.number(64, 64, 9),
                                         self.number(32, _KEY), self.number(32, 1)))
        if kind < .8:
            return peer.write(0, struct.pack(">Q", self.number(64, 0, 1, 2)))
        if kind < .9:
            return peer.write(self.number(12), self.random.randbytes(50))
        return peer.send(self.random.randbytes(self.number(8, 16)))


def _converse(target, seed):
    chosen = random.Random(seed)
    with Peer(target, chosen.choice(_LAYERS)) as peer:
        mutator = LayerMutator(seed, peer)
        if chosen.random() < .25:
            greeting = mutator.greeting()
            if chosen.random() < .5:
                greeting = mutator.damaged(greeting)
            peer.say(mpa_request(private=greeting) + fpdu(tagged(1, 0)))
        else:
            peer.enter()
            peer.say(mutator.conversation())
            if chosen.random() < .5:
                peer.answer_reads(chosen)
                peer.say(mutator.conversation())
        if chosen.random() < .8:
            peer.rest()


def mutated(stage, conversations, seed):
    target = Target(stage)
    _serves(target)
    before = target.look()
    for at in range(conversations):
        _converse(target, f"{seed} {at}")
        if at % 50 == 49:
            need(target.side.process.poll() is None, f"the target ended in conversation {at}")
            _serves(target)
    _serves(target)
    target.settle(before)
    target.finish()


@cases.case("hostile.layers_mutated", timeout_s=1800, sanitized=True)
def mutated_case(stage):
    """Conversations at random. The one that ends the target is found again with the seed."""
    mutated(stage, 50000 if harness.is_long() else 1000, harness.seed())
