"""Unreliable datagrams: ibv_ud_pingpong, perftest with -c UD, and their packets in captures."""

import random
import re
import struct
import subprocess
import time
import zlib

import cases
import harness
import perftest
import pingpong
import two_hosts
from harness import need

_UD_SEND_ONLY = 100
_ETHERNET, _IPV4, _UDP, _ICRC = 14, 20, 8, 4


def _pingpong(*options, count=1000):
    return lambda stage: pingpong.pingpong(stage, *options, program="ibv_ud_pingpong", count=count)


cases.add("ibv_ud_pingpong.polling", _pingpong())
cases.add("ibv_ud_pingpong.events", _pingpong("-e"))
cases.add("ibv_ud_pingpong.one_receive", _pingpong("-r", 1, "-s", 64, count=200))

# perftest's servers post all their receives first. A burst must fit the sockets' buffers, or some
# of it is lost, as on any network: so there are few messages.
for _program in ("ib_send_bw", "ib_send_lat"):
    perftest.add_raw("ud", _program, "-c", "UD", sizes=[1024], iterations=50)
perftest.add_raw("ud_bidirectional", "ib_send_bw", "-c", "UD", "-b", sizes=[64], iterations=50)
perftest.add_raw("ud_two_queue_pairs", "ib_send_bw", "-c", "UD", "-q", 2, sizes=[256],
                 iterations=40)
perftest.add_raw("ud_events", "ib_send_lat", "-c", "UD", "-e", sizes=[64], iterations=50)


# udaddy and mckey know one port, 7174; moved away, it is nobody else's.
def _environment():
    return {"WEFT_PORT_OFFSET": str(harness.free_port() - 7174)}


def _has_udp_port(side, port):
    """Whether somebody in the network namespace of the side has the UDP port."""
    for table in ("udp", "udp6"):
        with open(f"/proc/{side.pid}/net/{table}", encoding="ascii") as file:
            if any(line.split()[1].endswith(f":{port:04X}") for line in file.readlines()[1:]):
                return True
    return False


def _is_member(side, group):
    """Whether somebody in the network namespace of the side has joined the IPv4 group."""
    name = "".join(f"{int(part):02X}" for part in reversed(group.split(".")))
    with open(f"/proc/{side.pid}/net/igmp", encoding="ascii") as file:
        return any(line.split()[0] == name for line in file)


def _await(side, condition, what):
    end = time.monotonic() + harness.WAIT_S
    while not condition():
        need(side.process.poll() is None, f"{side.name} ended before it {what}")
        need(time.monotonic() < end, f"{side.name} never {what}")
        time.sleep(0.005)


def await_udp_port(side, port):
    _await(side, lambda: _has_udp_port(side, port), "had its port")


def _need_complete(*sides):
    for side in sides:
        side.finish()
        need("test complete" in side.output, f"{side.name} does not say 'test complete'")
        need(re.search(r"^return status 0\s*$", side.output, re.MULTILINE),
             f"{side.name} does not end with status 0")


def udaddy(stage, *options, addresses=("127.0.0.1", "127.0.0.1"), places=(None, None),
           weft_options=()):
    """Of server and client."""
    environment = _environment()
    port = int(environment["WEFT_PORT_OFFSET"]) + 7174
    server = stage.start("server", "udaddy", "-b", addresses[0], *options, env=environment,
                         options=weft_options, place=places[0])
    await_udp_port(server, port)
    client = stage.start("client", "udaddy", "-s", addresses[0], "-b", addresses[1], *options,
                         env=environment, options=weft_options, place=places[1])
    _need_complete(client, server)


cases.add("udaddy.ipv4", udaddy)
cases.add("udaddy.connections", lambda stage: udaddy(stage, "-c", 5, "-C", 20, "-S", 500))
cases.add("udaddy.two_hosts", two_hosts.on_two_hosts(lambda stage, places: udaddy(
    stage, "-C", 20, addresses=[place.ipv4 for place in places], places=places)))


@cases.case("udaddy.early_client")
def early_client(stage):
    """Who asks before there is a service asks again."""
    environment = _environment()
    client = stage.start("client", "udaddy", "-s", "127.0.0.1", env=environment)
    server = stage.start("server", "udaddy", env=environment)
    _need_complete(client, server)


def mckey(stage, *options, places=(None, None), weft_options=()):
    group = f"239.192.{random.randrange(256)}.{random.randrange(1, 255)}"
    receiver = stage.start("receiver", "mckey", "-m", group, *options, options=weft_options,
                           place=places[0])
    _await(receiver, lambda: _is_member(receiver, group), "joined")
    sender = stage.start("sender", "mckey", "-m", group, *options, "-s", options=weft_options,
                         place=places[1])
    _need_complete(sender, receiver)
    need(f"joined dgid: ::ffff:{group}" in receiver.output, "the receiver joined another group")


cases.add("mckey.loopback", lambda stage: mckey(stage, "-b", "127.0.0.1"))
cases.add("mckey.any", mckey)
cases.add("mckey.two_hosts",
          two_hosts.on_two_hosts(lambda stage, places: mckey(stage, places=places)))
for _program in ("ibv_ud_pingpong", "ibv_uc_pingpong"):
    two_hosts.add_pingpong("polling", program=_program, count=200)


def packets(path):
    """The frames of a capture, by way of tshark's classic format."""
    raw = subprocess.run(["tshark", "-r", path, "-F", "pcap", "-w", "-"], capture_output=True,
                         check=True).stdout
    at = 24
    while at < len(raw):
        length = struct.unpack_from("<I", raw, at + 8)[0]
        yield raw[at + 16:at + 16 + length]
        at += 16 + length


def icrc(frame):
    """InfiniBand's Annex A17, in other words than the product's: over the packet from its IP header
    on, behind eight bytes of ones, with what routers may change read as ones."""
    covered = bytearray(frame[_ETHERNET:-_ICRC])
    ones = [1, 8, 10, 11]                       # type of service, time to live, IP checksum
    ones += [_IPV4 + 6, _IPV4 + 7]              # UDP checksum
    ones += [_IPV4 + _UDP + 4]                  # congestion marks
    for offset in ones:
        covered[offset] = 0xFF
    return zlib.crc32(b"\xff" * 8 + covered)


@cases.case("capture.ibv_ud_pingpong")
def capture(stage):
    harness.installed("tshark")
    path = stage.scratch("datagrams.pcapng")
    pingpong.pingpong(stage, program="ibv_ud_pingpong", count=100, options=("--capture", path))
    fields = subprocess.run(
        ["tshark", "-r", path, "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
         "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "udp.dstport", "-e",
         "infiniband.deth.q_key", "-e", "udp.checksum.status", "-e", "_ws.malformed"],
        capture_output=True, text=True, check=True).stdout.splitlines()
    need(len(fields) >= 200, f"{len(fields)} packets for 100 pings and 100 pongs")
    for number, line in enumerate(fields, 1):
        need(line.split("\t") == [str(_UD_SEND_ONLY), "4791", "0x0000000011111111", "1", ""],
             f"packet {number}: {line}")
    for number, frame in enumerate(packets(path), 1):
        need(int.from_bytes(frame[-_ICRC:], "little") == icrc(frame),
             f"packet {number} has another ICRC than it should have")
