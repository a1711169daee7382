#!/usr/bin/env python3
"""Weft, the limits of the machine, and other people's programs, measured in turn.

Each row has a limit and contenders. A round measures each of them once, one after the other, and
the next round in the opposite order; each ratio is to the limit of the same round. So work that
the machine does beside the measurement hits all of them alike, and a ratio says more than a figure.
"""

import argparse
import json
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import plots

ROOT = Path(__file__).resolve().parent.parent
WAIT_S = 120


class Failed(Exception):
    """A measurement that gave no figure."""


# --- Running programs ----------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pinned(processor, command):
    if not shutil.which("taskset") or os.cpu_count() < 2:
        return command
    return ["taskset", "-c", str(processor), *command]


def output_of(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False,
                          env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def await_listener(port, server):
    """Returns when something listens on the TCP port, for programs that say nothing."""
    row = re.compile(rf"^\s*\d+: [0-9A-F]+:{port:04X} \S+ 0A ", re.M)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if server.poll() is not None:
            raise Failed(f"the server ended: {server.communicate()[0][-300:]}")
        if any(row.search(Path("/proc/net", table).read_text()) for table in ("tcp", "tcp6")):
            return
        time.sleep(0.01)
    raise Failed(f"no program listens on port {port}")


def client_output(server_command, client_command, port, environment):
    """What the client prints. Both sides are pinned, to a processor each."""
    everything = {**os.environ, **environment}
    server = subprocess.Popen(pinned(1, server_command), env=everything, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        await_listener(port, server)
        text = output_of(pinned(0, client_command), environment)
        server.communicate(timeout=WAIT_S)
        return text
    except subprocess.TimeoutExpired as late:
        raise Failed(f"no end after {WAIT_S} s: {' '.join(client_command)}") from late
    finally:
        if server.poll() is None:
            server.kill()
            server.communicate()


# --- What is measured: each function returns one that measures once ------------------------------


class Bench:
    def __init__(self, build, scale):
        self.build = build
        self.scale = scale

    def times(self, count):
        return str(max(100, int(count * self.scale)))

    def own(self, program, kind, size, count, *options):
        path = self.build / "bin" / program
        command = [str(path), kind, "--bytes", str(size), "--count", self.times(count), *options]
        return lambda: float(output_of(command).split()[-1])

    def limit(self, kind, size, count, unit=1.0):
        measure = self.own("weft_limit", kind, size, count)
        return lambda: measure() * unit

    def mapped(self, kind, size, count, *options):
        return self.own("weft_mapped", kind, size, count, *options)

    def crowd(self, kind, queue_pairs, *, same_host):
        """Many queue pairs between two processes. The number is not scaled."""
        command = [str(self.build / "bin" / "weft_crowd"), kind, "--count", str(queue_pairs)]
        environment = {"WEFT_SAME_HOST": "require" if same_host else "off", "WEFT_QUIET": "1",
                       "WEFT_PERSONALITY": "roce"}
        return lambda: float(output_of(command, environment).split()[-1])

    def connections(self, side, count):
        """Processor time of one side for each connection by rdma_cm within a host."""
        command = [str(self.build / "bin" / "weft_connections"), side, "--count",
                   self.times(count)]
        environment = {"WEFT_SAME_HOST": "require", "WEFT_QUIET": "1"}
        return lambda: float(output_of(command, environment).split()[-1])

    def perftest(self, program, size, count, *options, same_host, column, crc=True, heap="off"):
        """A program of perftest under `weft run`. `column`: of the line of results, from 0.
        `heap`: of WEFT_SHARED_HEAP. `same_host`: whether the processes leave TCP, or "staged"."""
        if not shutil.which(program):
            return None
        weft = [str(self.build / "bin" / "weft"), "run", "--quiet", "--"]
        ways = {True: "require", False: "off", "staged": "staged"}
        environment = {"WEFT_SAME_HOST": ways[same_host],
                       "WEFT_CRC": "1" if crc else "0", "WEFT_SHARED_HEAP": heap}

        def measure():
            port = free_port()
            # Without a count an option says for how long, and queue pairs connect by number.
            how = ["-R", "-n", self.times(count)] if count else []
            both = [*weft, program, "-F", "-p", str(port), "-s", str(size), *how, *options]
            text = client_output(both, [*both, "127.0.0.1"], port, environment)
            for line in text.splitlines():
                words = line.split()
                if words and words[0] == str(size) and len(words) > column:
                    return float(words[column])
            raise Failed(f"{program} printed no results: {text[-300:]}")

        return measure

    def ucx(self, test, size, count, column, *options):
        """ucx_perftest through shared memory. `column`: of its last line, from 0."""
        if not shutil.which("ucx_perftest"):
            return None

        def measure():
            port = free_port()
            command = ["ucx_perftest", "-p", str(port), "-t", test, "-s", str(size), "-n",
                       self.times(count), "-w", "1000", "-f", *options]
            text = client_output(command, [*command, "127.0.0.1"], port,
                                 {"UCX_TLS": "posix,cma,self", "UCX_LOG_LEVEL": "error"})
            rows = [line.split() for line in text.splitlines() if re.match(r"^\s*[\d.]+\s", line)]
            if not rows or len(rows[-1]) <= column:
                raise Failed(f"ucx_perftest printed no results: {text[-300:]}")
            return float(rows[-1][column])

        return measure


# Columns of perftest's lines: bytes, iterations, then for latencies minimum, maximum, typical (the
# median), average, standard deviation, 99th percentile; for bandwidths peak, average in MiB/s (MB/s
# with --report_gbits off), messages in M/s.
TYPICAL, AVERAGE, P99, BANDWIDTH, MESSAGES = 4, 5, 7, 3, 4
# Of ucx_perftest -f: iterations, then latency in us (typical, average, overall), bandwidth in MB/s
# (average, overall), messages a second (average, overall).
UCX_TYPICAL, UCX_BANDWIDTH, UCX_MESSAGES = 1, 5, 7


@dataclass
class Row:
    name: str
    unit: str
    higher_is_better: bool
    limit_name: str
    limit: Callable[[], float]
    contenders: dict = field(default_factory=dict)  # name: function, or None where it is missing
    group: str = ""  # of a plot
    bytes: int = 0


def scaled(measure, factor):
    return measure and (lambda: measure() * factor)


def one_host_rows(bench):
    memory = bench.limit("memory-latency", 64, 1_000_000)
    calls = bench.limit("vm-write-rate", 64, 300_000, 1e-6)
    perftest = bench.perftest
    yield Row("write of 64 B seen in memory, half round trip", "us", False,
              "stores to shared memory", memory,
              {"Weft, memory that both map": bench.mapped("write-latency", 64, 200_000),
               "Weft, shared heap (ib_write_lat)":
                   perftest("ib_write_lat", 64, 200_000, same_host=True, column=TYPICAL,
                            heap="aligned"),
               "Weft, ordinary memory (ib_write_lat)":
                   perftest("ib_write_lat", 64, 50_000, same_host=True, column=TYPICAL),
               "Weft over TCP (ib_write_lat)":
                   perftest("ib_write_lat", 64, 3000, same_host=False, column=TYPICAL),
               "UCX put (posix, cma)": bench.ucx("ucp_put_lat", 64, 200_000, UCX_TYPICAL)})
    yield Row("send of 64 B, half round trip", "us", False, "stores to shared memory", memory,
              {"Weft (ib_send_lat)":
                   perftest("ib_send_lat", 64, 100_000, same_host=True, column=TYPICAL),
               "Weft, average (ib_send_lat)":
                   perftest("ib_send_lat", 64, 100_000, same_host=True, column=AVERAGE),
               "UCX tag (posix, cma)": bench.ucx("tag_lat", 64, 200_000, UCX_TYPICAL)})
    yield Row("read of 64 B", "us", False, "a call of process_vm_writev", lambda: 1 / calls(),
              {"Weft, shared heap (ib_read_lat)":
                   perftest("ib_read_lat", 64, 200_000, same_host=True, column=TYPICAL,
                            heap="aligned"),
               "Weft, ordinary memory (ib_read_lat)":
                   perftest("ib_read_lat", 64, 50_000, same_host=True, column=TYPICAL)})
    yield Row("writes of 64 B, one post each", "M/s", True, "calls of process_vm_writev", calls,
              {"Weft, memory that both map":
                   scaled(bench.mapped("write-rate", 64, 1_000_000), 1e-6),
               "Weft, shared heap (ib_write_bw)":
                   perftest("ib_write_bw", 64, 1_000_000, same_host=True, column=MESSAGES,
                            heap="aligned"),
               "Weft, ordinary memory (ib_write_bw)":
                   perftest("ib_write_bw", 64, 200_000, same_host=True, column=MESSAGES),
               "Weft over TCP (ib_write_bw)":
                   perftest("ib_write_bw", 64, 50_000, same_host=False, column=MESSAGES),
               "UCX put (posix, cma)":
                   scaled(bench.ucx("ucp_put_bw", 64, 1_000_000, UCX_MESSAGES), 1e-6)})
    yield Row("writes of 64 B, lists of 32", "M/s", True, "calls of process_vm_writev", calls,
              {"Weft, memory that both map":
                   scaled(bench.mapped("write-rate", 64, 3_200_000, "--list", "32"), 1e-6),
               "Weft, shared heap (ib_write_bw -l 32)":
                   perftest("ib_write_bw", 64, 3_200_000, "-l", "32", same_host=True,
                            column=MESSAGES, heap="aligned"),
               "Weft, ordinary memory (ib_write_bw -l 32)":
                   perftest("ib_write_bw", 64, 320_000, "-l", "32", same_host=True,
                            column=MESSAGES)})
    yield Row("reads of 64 B, one at a time", "M/s", True, "calls of process_vm_writev", calls,
              {"Weft, memory that both map":
                   scaled(bench.mapped("read-rate", 64, 1_000_000), 1e-6)})
    yield Row("FetchAdd, one at a time", "M/s", True, "calls of process_vm_writev", calls,
              {"Weft, memory that both map":
                   scaled(bench.mapped("add-rate", 8, 1_000_000), 1e-6)})
    for size, label, count in ((65536, "64 KiB", 50_000), (1 << 20, "1 MiB", 5000)):
        gigabytes = size * 1e-9
        mebibytes = 1.048576e-3  # MiB/s as GB/s
        yield Row(f"writes of {label}", "GB/s", True, "process_vm_writev",
                  bench.limit("vm-write-rate", size, count, gigabytes),
                  {"a copy within one process":
                       scaled(bench.limit("copy-rate", size, count), gigabytes),
                   "Weft, memory that both map":
                       scaled(bench.mapped("write-rate", size, count), gigabytes),
                   "Weft, shared heap (ib_write_bw)":
                       scaled(perftest("ib_write_bw", size, count, same_host=True,
                                       column=BANDWIDTH, heap="aligned"), mebibytes),
                   "Weft, shared heap, reads (ib_read_bw)":
                       scaled(perftest("ib_read_bw", size, count, same_host=True,
                                       column=BANDWIDTH, heap="aligned"), mebibytes),
                   "Weft, ordinary memory (ib_write_bw)":
                       scaled(perftest("ib_write_bw", size, count, same_host=True,
                                       column=BANDWIDTH), mebibytes),
                   "Weft, reads of ordinary memory (ib_read_bw)":
                       scaled(perftest("ib_read_bw", size, count, same_host=True,
                                       column=BANDWIDTH), mebibytes),
                   "Weft, sends (ib_send_bw)":
                       scaled(perftest("ib_send_bw", size, count, same_host=True,
                                       column=BANDWIDTH), mebibytes),
                   "UCX put (posix, cma)":
                       scaled(bench.ucx("ucp_put_bw", size, count, UCX_BANDWIDTH), mebibytes)})


def staged_rows(bench):
    """Processes of one host that the kernel keeps apart: two copies, through shared memory."""
    ways = (("staged", "staged"), ("over TCP", False))
    where = "processes that the kernel keeps apart"
    yield Row(f"{where}, send of 64 B, half round trip", "us", False, "raw TCP",
              bench.limit("tcp-latency-median", 64, 50_000),
              {f"Weft, {name} (ib_send_lat)":
                   bench.perftest("ib_send_lat", 64, 50_000, same_host=way, column=TYPICAL)
               for name, way in ways})
    yield Row(f"{where}, 64 KiB", "GB/s", True, "raw TCP",
              bench.limit("tcp-rate", 65536, 16_000, 65536e-9),
              {f"Weft, {name}, {what}":
                   scaled(bench.perftest(what, 65536, 5000, same_host=way, column=BANDWIDTH),
                          1.048576e-3)
               for what in ("ib_write_bw", "ib_read_bw") for name, way in ways})


def datagram_rows(bench):
    """Datagrams of UD queue pairs. What is counted is what is sent: a receiver that is too slow
    loses some, of raw UDP as well."""
    bytes_each = 1024
    yield Row("UD, datagrams of 1 KiB that are sent", "M/s", True, "raw UDP, 32 a call",
              bench.limit("datagram-rate", bytes_each, 1_000_000, 1e-6),
              {f"Weft, {name} (ib_send_bw -c UD)":
                   bench.perftest("ib_send_bw", bytes_each, None, "-c", "UD", "-D", "2", *options,
                                  same_host=False, column=MESSAGES)
               for name, options in (("one post each", ()), ("lists of 32", ("-l", "32")))})


def sleeping_rows(bench):
    """Programs that wait for each message (ibv_get_cq_event), beside TCP programs that do."""
    for name, column, suffix in (("median", TYPICAL, "-median"), ("average", AVERAGE, "")):
        yield Row(f"send of 64 B, both sides wait for events, half round trip, {name}", "us",
                  False, "recv(2) on raw TCP",
                  bench.limit(f"tcp-sleeping-latency{suffix}", 64, 10_000),
                  {f"Weft, {where} (ib_send_lat -e)":
                       bench.perftest("ib_send_lat", 64, 10_000, "-e", same_host=same_host,
                                      column=column)
                   for where, same_host in (("one host", True), ("over TCP", False))})


def connection_rows(bench):
    yield Row("connection by rdma_cm within a host, processor time", "us", False, "50 us",
              lambda: 50.0,
              {f"Weft, {side}": bench.connections(side, 3000) for side in ("client", "server")})


def tcp_rows(bench):
    for size, label, count in ((8, "8 B", 50_000), (4096, "4 KiB", 30_000),
                               (65536, "64 KiB", 5000)):
        # Each figure beside the same figure of raw TCP.
        for name, column, suffix in (("median", TYPICAL, "-median"), ("average", AVERAGE, ""),
                                     ("99th percentile", P99, "-p99")):
            yield Row(f"over TCP, send of {label}, half round trip, {name}", "us", False,
                      "raw TCP", bench.limit(f"tcp-latency{suffix}", size, count),
                      {"Weft (ib_send_lat)":
                           bench.perftest("ib_send_lat", size, count, same_host=False,
                                          column=column)})
    yield Row("over TCP, sends of 8 B", "M/s", True, "raw TCP, a call for each",
              bench.limit("tcp-rate", 8, 300_000, 1e-6),
              {"Weft, one post each (ib_send_bw)":
                   bench.perftest("ib_send_bw", 8, 300_000, same_host=False, column=MESSAGES),
               "Weft, lists of 32 (ib_send_bw -l 32)":
                   bench.perftest("ib_send_bw", 8, 1_600_000, "-l", "32", same_host=False,
                                  column=MESSAGES)})
    for size, label, count in ((65536, "64 KiB", 16_000), (1 << 20, "1 MiB", 1500)):
        gigabytes, mebibytes = size * 1e-9, 1.048576e-3
        yield Row(f"over TCP, {label}", "GB/s", True, "raw TCP",
                  bench.limit("tcp-rate", size, count, gigabytes),
                  {f"Weft, {what} ({program})":
                       scaled(bench.perftest(program, size, count, same_host=False, crc=crc,
                                             column=BANDWIDTH), mebibytes)
                   for what, program, crc in (("writes", "ib_write_bw", True),
                                              ("writes without CRC", "ib_write_bw", False),
                                              ("reads", "ib_read_bw", True))})


def crowd_rows(bench):
    """Queue pairs by the thousand. A limit of 20 000 descriptors allows fewer TCP connections, both
    ends of which are in one process."""
    count, most = 4000, 10_000
    places = (("one host", True), ("over TCP", False))
    yield Row("queue pairs that connect by number", "per second", True,
              "TCP connections", bench.limit("tcp-connect-rate", 8, count),
              {f"Weft, {place}, {number}":
                   bench.crowd("connect-rate", number, same_host=same_host)
               for number in (count, most) for place, same_host in places})
    yield Row(f"memory of each of {most} idle queue pairs", "KiB", False, "16 KiB", lambda: 16.0,
              {f"Weft, {place}": bench.crowd("resident", most, same_host=same_host)
               for place, same_host in places})
    for place, same_host in places:
        yield Row(f"{place}, writes of 8 B to all queue pairs in turn", "per second", True,
                  "with 100 queue pairs", bench.crowd("write-rate", 100, same_host=same_host),
                  {f"with {number}": bench.crowd("write-rate", number, same_host=same_host)
                   for number in (count, most)})
    # What the kernel's sockets alone lose with their number, and what Weft has of that.
    yield Row("raw TCP, 8 B and an answer on all connections in turn", "per second", True,
              "with 100 connections", bench.limit("tcp-turn-rate", 8, 100),
              {f"with {count}": bench.limit("tcp-turn-rate", 8, count),
               "Weft writes over TCP, 100": bench.crowd("write-rate", 100, same_host=False)})
    yield Row(f"writes of 8 B to {count} queue pairs in turn", "per second", True,
              f"raw TCP, {count} connections", bench.limit("tcp-turn-rate", 8, count),
              {"Weft, over TCP": bench.crowd("write-rate", count, same_host=False)})


SIZES = (8, 64, 512, 4096, 32768, 262_144, 1 << 20)


def plot_rows(bench):
    """One row for each size: what --plots draws."""
    for size in SIZES:
        count = max(500, min(20_000, (256 << 20) // size))
        for same_host, limit in ((True, "memory-latency"), (False, "tcp-latency-median")):
            where = "one host" if same_host else "TCP"
            contenders = {f"Weft send, {where}": bench.perftest(
                "ib_send_lat", size, count, same_host=same_host, column=TYPICAL)}
            if same_host:
                contenders["UCX tag (posix, cma)"] = bench.ucx("tag_lat", size, count, UCX_TYPICAL)
                contenders["Weft write, memory that both map"] = bench.mapped(
                    "write-latency", size, count)
            yield Row(f"half round trip over size, {where}, {size} B", "us", False,
                      "shared memory" if same_host else "raw TCP", bench.limit(limit, size, count),
                      contenders, "latency", size)
        gigabytes, mebibytes = size * 1e-9, 1.048576e-3
        for same_host, limit, name in ((True, "vm-write-rate", "process_vm_writev"),
                                       (False, "tcp-rate", "raw TCP")):
            where = "one host" if same_host else "TCP"
            contenders = {f"Weft write, {where}": scaled(bench.perftest(
                "ib_write_bw", size, count, same_host=same_host, column=BANDWIDTH), mebibytes)}
            if same_host:
                contenders["UCX put (posix, cma)"] = scaled(
                    bench.ucx("ucp_put_bw", size, count, UCX_BANDWIDTH), mebibytes)
                contenders["Weft write, memory that both map"] = scaled(
                    bench.mapped("write-rate", size, count), gigabytes)
            yield Row(f"bandwidth over size, {where}, {size} B", "GB/s", True, name,
                      bench.limit(limit, size, count, gigabytes), contenders, "bandwidth", size)


# --- Rounds --------------------------------------------------------------------------------------


def measure_row(row, rounds):
    """{name: [figures]} with the limit under its own name, and the reasons of those without."""
    everyone = [(row.limit_name, row.limit), *row.contenders.items()]
    figures = {name: [] for name, _ in everyone}
    missing = {name: "not installed" for name, measure in everyone if measure is None}
    for number in range(rounds):
        turn = everyone if number % 2 == 0 else everyone[::-1]
        for name, measure in turn:
            if name in missing:
                continue
            try:
                figures[name].append(measure())
            except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as error:
                missing[name] = str(error)
    return figures, missing


def summary(row, figures, missing):
    """What is stored: medians, ranges, and ratios to the limit of the same round."""
    limits = figures[row.limit_name]
    result = {"name": row.name, "unit": row.unit, "higher_is_better": row.higher_is_better,
              "limit": {"name": row.limit_name, "figures": limits}, "contenders": []}
    if row.group:
        result.update(group=row.group, bytes=row.bytes)
    if row.limit_name in missing:
        result["limit"]["missing"] = missing[row.limit_name]
    for name in row.contenders:
        if name in missing or row.limit_name in missing:
            result["contenders"].append({"name": name, "missing": missing.get(name, "no limit")})
            continue
        ratios = [own / limit for own, limit in zip(figures[name], limits)]
        result["contenders"].append({
            "name": name, "figures": figures[name], "median": statistics.median(figures[name]),
            "ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios),
            "told_apart": not min(ratios) <= 1 <= max(ratios)})
    return result


def show(result):
    better = "higher" if result["higher_is_better"] else "lower"
    print(f"\n{result['name']} ({result['unit']}, {better} is better)")
    limit = result["limit"]
    if limit["figures"]:
        print(f"  {limit['name']:<46} {statistics.median(limit['figures']):10.3f}")
    for one in result["contenders"]:
        if "missing" in one:
            print(f"  {one['name']:<46} {'-':>10}  {one['missing']}")
            continue
        note = "" if one["told_apart"] else "  not told apart from the limit"
        print(f"  {one['name']:<46} {one['median']:10.3f}  {one['ratio']:8.2f} x "
              f"[{one['lowest']:.2f} to {one['highest']:.2f}]{note}")
    sys.stdout.flush()


def table(results):
    """Markdown: one line for each contender."""
    lines = ["| | limit | | measured | ratio to the limit | range |", "|---|---|---|---|---|---|"]
    for result in results:
        limit = result["limit"]
        if not limit["figures"] or "group" in result:
            continue
        at_limit = f"{limit['name']}: {statistics.median(limit['figures']):.3g} {result['unit']}"
        for one in result["contenders"]:
            if "missing" in one:
                continue
            lines.append(f"| {result['name']} | {at_limit} | {one['name']} | "
                         f"{one['median']:.3g} {result['unit']} | {one['ratio']:.2f} × | "
                         f"{one['lowest']:.2f} to {one['highest']:.2f} |")
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- compare.py: begin -->\n", "<!-- compare.py: end -->\n"


def write_page(page, stored):
    """Puts the table of stored results between the two marks of a page."""
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"compare.py: {page} lacks '{BEGIN.strip()}' and '{END.strip()}'")
    machine = stored["machine"]
    # What decides how fast a CRC is; older results do not have it.
    extensions = "".join(f", {name}" for name in machine.get("extensions", []))
    said = (f"Measured with `./dev bench` on {machine['processors']} processors "
            f"({machine['model']}{extensions}, Linux {machine['kernel']}), "
            f"{stored['rounds']} rounds, medians:\n\n")
    before, rest = text.split(BEGIN, 1)
    page.write_text(before + BEGIN + said + table(stored["rows"]) + END + rest.split(END, 1)[1])


_EXTENSIONS = {"avx512f": "AVX-512", "vpclmulqdq": "VPCLMULQDQ", "avx2": "AVX2"}


def machine():
    described = Path("/proc/cpuinfo").read_text()
    models = re.findall(r"^model name\s*:\s*(.*)$", described, re.M)
    flags = re.search(r"^flags\s*:\s*(.*)$", described, re.M)
    present = set(flags[1].split()) if flags else set()
    return {"processors": os.cpu_count(), "model": models[0] if models else platform.machine(),
            "extensions": [name for flag, name in _EXTENSIONS.items() if flag in present],
            "kernel": platform.release()}


def common_options(description, *, quick):
    """Options of all benchmarks that have rows."""
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release",
                        help="where Weft was built (build/release)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each row (5)")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--json", type=Path, help="store the results in this file")
    return parser


def main():
    parser = common_options(__doc__, quick="three short rounds")
    parser.add_argument("--from", dest="stored", type=Path,
                        help="measure nothing: take the results of such a file")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    parser.add_argument("--plots", type=Path, help="write latency.svg and bandwidth.svg there")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds: at least one round is needed")
    if given.plots:
        plots.require()  # before the measurements, which take minutes
    if given.stored:
        stored = json.loads(given.stored.read_text())
    else:
        rounds = 3 if given.quick else given.rounds
        bench = Bench(given.build, 0.1 if given.quick else 1)
        rows = [*one_host_rows(bench), *staged_rows(bench), *tcp_rows(bench),
                *datagram_rows(bench), *crowd_rows(bench), *connection_rows(bench),
                *sleeping_rows(bench),
                *(plot_rows(bench) if given.plots else ())]
        rows = [row for row in rows if given.only in row.name]
        if not rows:
            parser.error(f"--only: no row has '{given.only}' in its name")
        stored = {"machine": machine(), "rounds": rounds, "rows": []}
        for row in rows:
            result = summary(row, *measure_row(row, rounds))
            show(result)
            stored["rows"].append(result)
    if given.json:
        given.json.write_text(json.dumps(stored, indent=1) + "\n")
    if given.plots:
        for path in plots.write(stored, given.plots):
            print(f"written: {path}")
    if given.page:
        write_page(given.page, stored)
    return 0


if __name__ == "__main__":
    sys.exit(main())
