#!/usr/bin/env python3
"""Takes the TCP payload out of a capture of iWARP connections, for the replay tests.

usage: extract.py CAPTURE.pcap OUT.flow

An OUT file is compressed with zlib. Inside: "WEFTFLOW", the number of connections, and for each the
number of its records and the records, in the order of the capture: direction (0 from the
initiator), length, bytes. All numbers are big-endian, of four bytes, the direction of one. TCP is
reassembled: what was sent twice is there once, and in order.
"""

import struct
import sys
import zlib

ETHERNET = 1
FIN, SYN, RST = 1, 2, 4


def packets(data):
    """The frames of a pcap file."""
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    if struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF != ETHERNET:
        sys.exit("not a capture of Ethernet frames")
    at = 24
    while at + 16 <= len(data):
        _, _, captured, original = struct.unpack_from(order + "IIII", data, at)
        if captured != original:
            sys.exit("a frame is cut off")
        yield data[at + 16 : at + 16 + captured]
        at += 16 + captured


def segments(frames):
    """(source, destination, sequence, flags, payload) of each TCP segment."""
    for frame in frames:
        kind = struct.unpack_from(">H", frame, 12)[0]
        if kind == 0x0800 and frame[23] == 6:
            header = (frame[14] & 15) * 4
            ip = frame[14 : 14 + struct.unpack_from(">H", frame, 16)[0]]
            addresses = ip[12:16], ip[16:20]
            tcp = ip[header:]
        elif kind == 0x86DD and frame[20] == 6:
            ip = frame[14 : 54 + struct.unpack_from(">H", frame, 18)[0]]
            addresses = ip[8:24], ip[24:40]
            tcp = ip[40:]
        else:
            continue
        ports = struct.unpack_from(">HH", tcp, 0)
        sequence = struct.unpack_from(">I", tcp, 4)[0]
        payload = tcp[(tcp[12] >> 4) * 4 :]
        yield (addresses[0], ports[0]), (addresses[1], ports[1]), sequence, tcp[13], payload


class Direction:
    """Reassembles one direction."""

    def __init__(self, first):
        self.next = first
        self.waiting = {}

    def add(self, sequence, payload):
        self.waiting[(sequence - self.next) & 0xFFFFFFFF] = payload
        ready = b""
        while True:
            for distance, part in self.waiting.items():
                behind = (-distance) & 0xFFFFFFFF
                if distance == 0 or behind <= len(part) < 1 << 31:
                    break
            else:
                return ready
            del self.waiting[distance]
            new = part[behind:]
            ready += new
            self.next = (self.next + len(new)) & 0xFFFFFFFF
            self.waiting = {(d - len(new)) & 0xFFFFFFFF: p for d, p in self.waiting.items()}


class Connection:
    def __init__(self, initiator, sequence):
        self.initiator = initiator
        self.directions = {0: Direction((sequence + 1) & 0xFFFFFFFF)}
        self.records = []

    def add(self, source, sequence, flags, payload):
        way = 0 if source == self.initiator else 1
        if flags & SYN:
            self.directions.setdefault(way, Direction((sequence + 1) & 0xFFFFFFFF))
        elif payload:
            ready = self.directions[way].add(sequence, payload)
            if ready:
                self.records.append((way, ready))


def connections(data):
    live, ended = {}, []
    for source, destination, sequence, flags, payload in segments(packets(data)):
        key = tuple(sorted((source, destination)))
        if flags & SYN and source not in (c.initiator for k, c in live.items() if k == key):
            if key not in live:
                live[key] = Connection(source, sequence)
                ended.append(live[key])
        if key in live:
            live[key].add(source, sequence, flags, payload)
    return [connection for connection in ended if connection.records]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as file:
        found = connections(file.read())
    out = b"WEFTFLOW" + struct.pack(">I", len(found))
    for connection in found:
        out += struct.pack(">I", len(connection.records))
        for way, payload in connection.records:
            out += struct.pack(">BI", way, len(payload)) + payload
    with open(sys.argv[2], "wb") as file:
        file.write(zlib.compress(out, 9))


main()
