"""A hostile peer of queue pairs that are connected by number: it breaks the rules of the hello, of
the control words, and of Sends that wait for a receive; and it sends datagrams of all kinds. First
by a script, then at random under a seed. The program must serve the next peer as before.
"""

import pathlib
import random
import socket
import struct
import time

import cases
import harness
from harness import need
from hostile import SLACK_BYTES, Mutator, fpdu, mpa_request, read_request, tagged, untagged

_HOST = "127.0.0.1"
_OURS = 0x123456  # the attacker's QPN
_OUR_PSN, _THEIR_PSN = 2, 1
_FIRST_PORT, _SLOT_BITS = 28672, 14
_ALL_CAPABILITIES = 0x17  # immediate, hold, executed; a PSN
_EXTENDED_SENDER, _EXTENDED_RECEIVER = 0x20, 0x40
_EXECUTED, _GRANTED, _WAITING, _RNR_RETRY, _PLACED, _PROVE_ALL, _PROVES_ALL = range(7)


def hello(to, source=_OURS, version=1, answer=0, psns=(_OUR_PSN, _THEIR_PSN), generation=1,
          capabilities=_ALL_CAPABILITIES, stag=0xFF000001, hold=1 << 20, key=b"Weft"):
    return key + struct.pack(">HHIIIIIIII", version, answer, source, to, *psns, generation,
                             capabilities, stag, hold) + bytes(8)


def word(stag, number, value, offset=None, size=8):
    """A control word."""
    payload = struct.pack(">Q", value & (1 << 64) - 1)[:size].ljust(size, b"\0")
    return fpdu(tagged(stag, 8 * number if offset is None else offset, payload))


def send(msn, payload=b"s" * 8):
    return fpdu(untagged(0, msn, 0, payload))


def hold_slot(number):
    """The port behind a queue pair number, at which nobody listens as long as this socket exists.

    The target dials the attacker's number: another program that happened to have its slot would
    keep it waiting, and a peer that the target asks cannot ask as well.
    """
    end = time.monotonic() + harness.WAIT_S
    while True:
        held = socket.socket()
        try:
            held.bind((_HOST, _FIRST_PORT + (number >> _SLOT_BITS)))
            return held
        except OSError as error:
            held.close()
            need(time.monotonic() < end, f"the slot of {number:#x} stays taken: {error}")
            time.sleep(0.1)


class Target:
    def __init__(self, stage, options=()):
        self._slot = hold_slot(_OURS)
        self.side = stage.start("target", harness.companion("hostile_pairs_target"), say=True,
                                options=options, env={"WEFT_ADDR": _HOST})
        found = self.side.expect(r"^datagrams (\d+) (\d+)$")
        self.datagrams, self.qkey = int(found[1]), int(found[2])
        self.seen = self.side.read

    def _ask(self, line, answer):
        self.side.say(line)
        found = self.side.expect(answer, start=self.seen)
        self.seen = self.side.read
        return found

    def pair(self, receives=4):
        """A new queue pair: its number and its regions."""
        found = self._ask(f"pair {_OURS} {receives}", r"^paired (\d+) regions ([\d ]+)$")
        words = [int(part) for part in found[2].split()]
        return int(found[1]), [tuple(words[:3]), tuple(words[3:])]

    def extend(self, receives=4):
        """A new end of an extended connection: its number, that of its queue, and its regions."""
        found = self._ask(f"extend {_OURS} {receives}",
                          r"^queue (\d+) paired (\d+) regions ([\d ]+)$")
        words = [int(part) for part in found[3].split()]
        return int(found[2]), int(found[1]), [tuple(words[:3]), tuple(words[3:])]

    def drop(self):
        self._ask("drop", "^dropped$")

    def look(self):
        found = self._ask("look", r"^received (\d+) descriptors (\d+) threads (\d+) memory (\w+)$")
        need(found[4] == "intact", "memory was changed that no peer may change")
        return [int(number) for number in found.groups()[:3]]

    def resident_bytes(self):
        return int(pathlib.Path(f"/proc/{self.side.pid}/statm").read_text().split()[1]) * 4096

    def settle(self, before):
        """After the last peer has left, nothing of any of them is left either."""
        end = time.monotonic() + harness.WAIT_S
        while True:
            _, descriptors, threads = self.look()
            if descriptors <= before[1] + harness.DESCRIPTOR_SLACK and threads <= before[2]:
                return
            need(time.monotonic() < end,
                 f"{descriptors} descriptors and {threads} threads; before: {before}")
            time.sleep(0.1)

    def finish(self):
        self.side.end_input()
        self.side.finish()


class Peer:
    """A TCP connection to the slot of a queue pair."""

    VERSION, CAPABILITIES = 1, _ALL_CAPABILITIES

    # Answers to a hello (wire/hello.h). An honest peer asks once more after the last two.
    _ACCEPTED, _NOT_YET, _CROSSED = 0, 1, 2

    def __init__(self, number):
        self._port = _FIRST_PORT + (number >> _SLOT_BITS)
        self._connect()
        self.stag = self.hold = 0

    def _connect(self):
        self.socket = socket.create_connection((_HOST, self._port), timeout=harness.WAIT_S)

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

    def take(self, size):
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            need(part, "the target has closed the connection of a good peer")
            found += part
        return found

    def request(self, number):
        return mpa_request(private=hello(number, version=self.VERSION,
                                         capabilities=self.CAPABILITIES))

    def enter(self, number):
        """As it should be."""
        end = time.monotonic() + harness.WAIT_S
        answer, private = self._ask(number)
        while answer in (self._NOT_YET, self._CROSSED) and time.monotonic() < end:
            print(f"the target answers the hello with {answer}")
            self.socket.close()
            time.sleep(0.01)
            self._connect()
            answer, private = self._ask(number)
        need(answer == self._ACCEPTED, f"the target refuses the hello with {answer}")
        self.stag, self.hold = struct.unpack(">II", private[32:40])
        self.say(fpdu(tagged(1, 0)))

    def _ask(self, number):
        self.say(self.request(number))
        head = self.take(20)
        private = self.take(struct.unpack(">H", head[18:])[0])[4:]
        return struct.unpack(">H", private[6:8])[0], private

    def until(self, wanted):
        """What came until these bytes did, or the end."""
        found = b""
        while wanted not in found and (part := self.socket.recv(65536)):
            found += part
        return found

    def rest(self):
        """Ends our side; returns what came until the other one ended its own."""
        found = b""
        try:
            self.socket.shutdown(socket.SHUT_WR)
            while part := self.socket.recv(65536):
                found += part
        except OSError:
            pass
        return found


class ExtendedPeer(Peer):
    """The sending end of an extended connection (XRC)."""

    VERSION, CAPABILITIES = 2, _ALL_CAPABILITIES | _EXTENDED_SENDER


def _hellos(number):
    """Each is wrong in one way, for the queue pair of that number."""
    return {
        "another protocol": hello(number, key=b"Waft"),
        "a version to come": hello(number, version=9),
        "an answer": hello(number, answer=1), "an unknown answer": hello(number, answer=99),
        "another source": hello(number, source=_OURS + 1), "source 0": hello(number, source=0),
        "another number": hello(number ^ 1), "number 0": hello(0),
        "the last number": hello(0xFFFFFF), "more than 24 bits": hello(number | 1 << 31),
        "a wrong PSN of ours": hello(number, psns=(_OUR_PSN + 1, _THEIR_PSN)),
        "a wrong PSN of theirs": hello(number, psns=(_OUR_PSN, _THEIR_PSN + 1)),
        "huge PSNs": hello(number, psns=(0xFFFFFFFF, 0xFFFFFFFF)),
        "unreliable": hello(number, capabilities=0xFFFFFFFF), "too short": hello(number)[:30],
        "empty": b"", "too long": hello(number) + bytes(400),
        "an extended one": hello(number, version=2, capabilities=0x37),
        "extended, of version 1": hello(number, capabilities=0x37),
        "version 2, and not extended": hello(number, version=2),
    }


def _extended_hellos(number):
    """The same for the receiving end of an extended connection."""

    def of(version, capabilities):
        return hello(number, version=version, capabilities=_ALL_CAPABILITIES | capabilities)

    both = _EXTENDED_SENDER | _EXTENDED_RECEIVER
    return {
        "a plain one": of(1, 0), "version 1": of(1, _EXTENDED_SENDER), "no end": of(2, 0),
        "the same end": of(2, _EXTENDED_RECEIVER), "both ends": of(2, both),
        "a version to come": of(3, _EXTENDED_SENDER), "the last version": of(65535, both),
        "unreliable": of(2, _EXTENDED_SENDER | 8), "all bits": of(2, 0xFFFFFFFF),
        "cut": of(2, _EXTENDED_SENDER)[:47], "too long": of(2, _EXTENDED_SENDER) + bytes(400),
        "another number": hello(number ^ 1, version=2, capabilities=0x37),
    }


def _names(msn, queue, tag=2):
    """The message that names the shared receive queue of what follows."""
    return fpdu(untagged(0, msn, 0, struct.pack(">II", queue, tag), 8))


def _extended_attacks(queue, number, region):
    """Each breaks a rule of the naming of shared receive queues, by whose protection domain memory
    is checked."""
    base, key, _ = region
    return {
        "a Send without a queue": [send(1)],
        "a Write without a queue": [fpdu(tagged(key, base, b"w" * 8))],
        "a Read without a queue": [fpdu(read_request(1, 8, key, base))],
        "a Send to queue 0": [_names(1, 0), send(2)],
        "a queue that does not exist": [_names(1, queue ^ 1), send(2)],
        "the last queue": [_names(1, 0xFFFFFFFF), send(2)],
        "a queue pair for a queue": [_names(1, number), send(2)],
        "another kind of announcement": [_names(1, queue, tag=3), send(2)],
        "an announcement of an immediate without a queue": [_names(1, 7, tag=1), send(2)],
        "half a name": [fpdu(untagged(0, 1, 0, b"\0\0\0\1", 8)), send(2)],
        "a name out of order": [_names(2, queue), send(1)],
        "a name in the middle of a Send": [
            _names(1, queue), fpdu(untagged(0, 2, 0, b"s" * 8, last=False)), _names(3, queue)],
        "names without end": [b"".join(_names(n + 1, queue ^ n % 2) for n in range(5000))],
        "more Sends than receives": [
            _names(1, queue) + b"".join(send(n + 2, b"h" * 250) for n in range(6000))],
        "a Send that waits, and another queue": [
            _names(1, queue) + b"".join(send(n + 2) for n in range(20)) + _names(22, 0) + send(23)],
        "a Send that is too long": [_names(1, queue), send(2, b"l" * 1000)],
    }


def _attacks(stag, regions):
    """Each breaks one rule of control words, or of Sends that wait."""
    (base, key, _), (shown, read_key, _) = regions
    most = (1 << 64) - 1
    waits = [send(n + 1) for n in range(4 + 20)]
    return {
        "executed more than was sent": [word(stag, _EXECUTED, 1000), word(stag, _EXECUTED, most)],
        "placed more than was sent": [word(stag, _PLACED, 7), word(stag, _PLACED, most)],
        "proofs of all, asked for again and again": [
            word(stag, _PROVE_ALL, n) for n in (1, 0, 1, 1, 2, most, 0) * 300] + waits,
        "proofs of all that nobody asked for": [word(stag, _PROVES_ALL, n) for n in (1, 0, most)] +
                                               [word(stag, _PLACED, n) for n in (1, 3, 2)],
        "proofs of all, and Sends that wait": [word(stag, _PROVE_ALL, 1)] + waits + [
            fpdu(tagged(key, base, b"w" * 8))] * 50,
        "placed runs back": [word(stag, _PLACED, 0), word(stag, _EXECUTED, 0)],
        "grants nobody asked for": [word(stag, _GRANTED, n) for n in (0, 1, 1 << 32, most)],
        "waits without a Send": [word(stag, _WAITING, n) for n in (0, 1, 5, 1 << 32, most)],
        "a thousand waits": (word(stag, _WAITING, n) for n in range(1000)),
        "retries without a limit": [word(stag, _RNR_RETRY, 7)] + waits,
        "impossible retries": [word(stag, _RNR_RETRY, n) for n in (8, 255, most)] + waits,
        "no retry, and a Send": [word(stag, _RNR_RETRY, 0)] + waits,
        "an unknown word": [word(stag, 77, 1), word(stag, 511, most)],
        "between two words": [word(stag, 0, 1, offset=3)],
        "beyond the words": [word(stag, 0, 1, offset=4096), word(stag, 0, 1, offset=most - 7)],
        "half a word": [word(stag, 0, 1, size=4)], "two words": [word(stag, 0, 1, size=16)],
        "an empty word": [word(stag, 0, 0, size=0)],
        "a Read of the words": [fpdu(read_request(1, 64, stag, 0))],
        "a guessed control STag": [word(stag ^ 1, _EXECUTED, 1)],
        "Sends beyond the hold": (send(n + 1, b"h" * 250) for n in range(6000)),
        "empty Sends beyond the hold": (send(n + 1, b"") for n in range(20000)),
        "a Send longer than the hold": (
            send(25, b"l" * 60000) if n else word(stag, _RNR_RETRY, 7) + b"".join(waits)
            for n in range(40)),
        "Reads behind a Send that waits": waits + [fpdu(read_request(n + 1, 4096, read_key, shown))
                                                   for n in range(64)],
        "Writes behind a Send that waits": waits + [fpdu(tagged(key, base, b"w" * 1000))] * 50,
        "a gap behind a Send that waits": waits + [send(100)],
        "an immediate without a Send": [fpdu(untagged(0, 1, 0, struct.pack(">II", 1, 2), 8))] * 9,
    }


def serves_extended(target):
    """A peer that keeps the rules is served by a new extended connection."""
    number, queue, regions = target.extend()
    with ExtendedPeer(number) as peer:
        peer.enter(number)
        (base, key, _), _ = regions
        behind = base + 1024  # the receives
        peer.say(_names(1, queue) + fpdu(tagged(key, behind, b"good")) + send(2) +
                 fpdu(read_request(1, 4, key, behind)))
        need(b"good" in peer.until(b"good"), "a good peer of an extended connection is not served")
    target.drop()


def _serves(target):
    """A peer that keeps the rules is served, on a new queue pair; and so is a good datagram."""
    number, regions = target.pair()
    with Peer(number) as peer:
        peer.enter(number)
        (base, key, _), _ = regions
        peer.say(fpdu(tagged(key, base, b"good")) + fpdu(read_request(1, 4, key, base)))
        need(b"good" in peer.until(b"good"), "a good peer is not served")
    await_datagram(target)
    target.drop()


def await_datagram(target):
    received = target.look()[0]
    end = time.monotonic() + harness.WAIT_S
    while target.look()[0] == received:  # datagrams may get lost
        need(time.monotonic() < end, "a good datagram is not received")
        throw(target, [datagram(target)])


# --- Datagrams -----------------------------------------------------------------------------------


def datagram(target, opcode=0x64, number=None, qkey=None, source=_OURS, payload=b"datagram", pad=0,
             version=0, icrc=0):
    number = target.datagrams if number is None else number
    base = struct.pack(">BBHII", opcode, 0x40 | pad << 4 | version, 0xFFFF, number & 0xFFFFFF, 7)
    extended = struct.pack(">II", target.qkey if qkey is None else qkey, source & 0xFFFFFF)
    return base + extended + payload + struct.pack("<I", icrc)


def _datagrams(target):
    good = datagram(target)
    return [
        good[:size] for size in range(len(good))] + [
        datagram(target, opcode=code) for code in range(256)] + [
        datagram(target, number=number) for number in (0, 1, 0xFFFFFF, target.datagrams ^ 1)] + [
        datagram(target, qkey=0), datagram(target, qkey=0xFFFFFFFF), datagram(target, source=0),
        datagram(target, payload=b""), datagram(target, pad=3, payload=b""),
        datagram(target, pad=3), datagram(target, version=15), datagram(target, payload=b"1"),
        datagram(target, payload=bytes(4096)), datagram(target, payload=bytes(4100)),
        datagram(target, payload=bytes(60000))]


def throw(target, packets):
    port = _FIRST_PORT + (target.datagrams >> _SLOT_BITS)
    with socket.socket(type=socket.SOCK_DGRAM) as out:
        for packet in packets:
            out.sendto(packet, (_HOST, port))


def _random_datagrams(target, chosen, count):
    for _ in range(count):
        packet = bytearray(datagram(target, opcode=chosen.choice((0x64, 0x64, 0x65)),
                                    payload=chosen.randbytes(chosen.randrange(4200))))
        for _ in range(chosen.randrange(4)):
            packet[chosen.randrange(len(packet))] = chosen.getrandbits(8)
        yield bytes(packet[:chosen.randrange(len(packet) + 1)] if chosen.random() < .2 else packet)


# --- Cases ---------------------------------------------------------------------------------------


@cases.case("hostile.pairs_script", timeout_s=600, sanitized=True)
def script(stage):
    """Each rule is broken once, and a peer that keeps them is served after each."""
    target = Target(stage)
    _serves(target)
    before, resident = target.look(), target.resident_bytes()
    number, regions = target.pair()
    for private in _hellos(number).values():
        with Peer(number) as peer:
            peer.say(mpa_request(private=private))
            peer.rest()
        _serves_another(target)
    target.drop()
    for name in _attacks(0, regions):
        number, regions = target.pair()
        with Peer(number) as peer:
            peer.enter(number)
            for data in _attacks(peer.stag, regions)[name]:
                peer.say(data)
            peer.rest()
        target.drop()
        _serves(target)
    throw(target, _datagrams(target))
    _serves(target)
    target.settle(before)
    need(target.resident_bytes() <= resident + SLACK_BYTES, "the target's memory has grown")
    target.finish()


@cases.case("hostile.extended_script", timeout_s=600, sanitized=True)
def extended_script(stage):
    """The hello of extended connections (XRC), and the names of their queues."""
    target = Target(stage)
    serves_extended(target)
    before, resident = target.look(), target.resident_bytes()
    number, _, _ = target.extend()
    for private in _extended_hellos(number).values():
        with ExtendedPeer(number) as peer:
            peer.say(mpa_request(private=private))
            peer.rest()
        _serves_another(target)
    target.drop()
    for name in _extended_attacks(0, 0, (0, 0, 0)):
        number, queue, regions = target.extend()
        with ExtendedPeer(number) as peer:
            peer.enter(number)
            for data in _extended_attacks(queue, number, regions[0])[name]:
                peer.say(data)
            peer.rest()
        target.drop()
        serves_extended(target)
    _serves(target)
    target.settle(before)
    need(target.resident_bytes() <= resident + SLACK_BYTES, "the target's memory has grown")
    target.finish()


def _serves_another(target):
    """Like _serves, beside a queue pair that remains."""
    number, _ = target.pair()
    with Peer(number) as peer:
        peer.enter(number)
        peer.rest()


class PairMutator(Mutator):
    """What goes over a paired connection: also control words, and Sends that find no receive.
    `queue`: the shared receive queue of an extended connection."""

    def __init__(self, seed, regions, stag, queue=None):
        super().__init__(seed, regions)
        self.stag, self.sent, self.queue = stag, 0, queue

    def framed(self):
        kind = self.random.random()
        if self.queue is not None and (self.sent == 0 or kind < .1):
            self.sent += 1
            return _names(self.sent, self.number(32, *[self.queue] * 9), self.number(32, 2, 2, 1))
        if kind < .4:
            return word(self.stag, self.number(9, *range(7)), self.number(64, 0, 1, 2, 7, 30),
                        size=self.random.choice((8,) * 9 + (4, 16)))
        if kind < .7:
            self.sent += 1
            return send(self.sent, self.random.randbytes(self.random.choice((0, 8, 250, 20000))))
        return super().framed()


def mutated(stage, conversations, seed, options=()):
    target = Target(stage, options)
    _serves(target)
    before, resident = target.look(), target.resident_bytes()
    for at in range(conversations):
        chosen = random.Random(f"{seed} {at}")
        receives, queue, kind = chosen.choice((0, 1, 4)), None, Peer
        if chosen.random() < .25:
            number, queue, regions = target.extend(receives)
            kind = ExtendedPeer
        else:
            number, regions = target.pair(receives)
        with kind(number) as peer:
            if chosen.random() < .2:
                mutator = Mutator(f"{seed} {at}", regions)
                peer.say(mutator.damaged(peer.request(number)))
            else:
                peer.enter(number)
                peer.say(PairMutator(f"{seed} {at}", regions, peer.stag, queue).conversation())
            if chosen.random() < .8:
                peer.rest()
        throw(target, _random_datagrams(target, chosen, 5))
        if at % 50 == 49:
            target.drop()
            need(target.side.process.poll() is None, f"the target ended in conversation {at}")
            _serves(target)
            serves_extended(target)
    target.drop()
    _serves(target)
    target.settle(before)
    need(target.resident_bytes() <= resident + SLACK_BYTES, "the target's memory has grown")
    target.finish()


@cases.case("hostile.pairs_mutated", timeout_s=1800, sanitized=True)
def mutated_case(stage):
    """Conversations at random. The one that ends the target is found again with the seed."""
    mutated(stage, 50000 if harness.is_long() else 1000, harness.seed())


@cases.case("hostile.pairs_link", timeout_s=600, sanitized=True)
def link(stage):
    """The same through a slower network (`weft run --link`), which keeps what is under way."""
    mutated(stage, 150, harness.seed(), ["--link", "latency=500us,jitter=500us"])
