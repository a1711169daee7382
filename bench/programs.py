#!/usr/bin/env python3
"""TCP programs without Weft and under `weft run --sockets`, measured in turn.

Each row is a server with its own benchmark as the client. A round measures both once with the
kernel's TCP and once with Weft, in alternating order; a ratio is to the kernel's TCP of the same
round. Programs that are not installed are reported as such, and their rows left out.

With --processor the figure is the processor time of both ends for each request, which other work
on the machine disturbs less than a rate.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from compare import WAIT_S, Failed, Row, await_listener, common_options, free_port, machine
from compare import measure_row, show, summary, table

KERNEL = "the kernel's TCP"
WEFT = "weft run --sockets"
ALWAYS = "weft run --sockets=always"
# A server is found outside of TCP from 100 ms after it listens on.
SETTLED_S = 0.3
TICKS = os.sysconf("SC_CLK_TCK")
ADDRESS = "127.0.0.1"


@dataclass
class Result:
    """What a client reports: requests in all, and a second."""

    count: float
    rate: float


def found(pattern, text):
    match = re.search(pattern, text, re.M)
    if not match:
        raise Failed(f"no results: {text.strip()[-300:]}")
    return float(match[1])


def installed(program, *folders):
    """The path of a program, or None."""
    return shutil.which(program, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", *folders]))


# --- Processor time ------------------------------------------------------------------------------


def processes():
    """{process: (its parent, seconds of processor with those of the children that it awaited)}"""
    known = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        known[int(path.parent.name)] = (int(words[1]), sum(map(int, words[11:15])) / TICKS)
    return known


def processor_seconds(root):
    """Of a process and all below it."""
    known = processes()
    family, grown = {root}, True
    while grown:
        more = {pid for pid, (parent, _) in known.items() if parent in family}
        grown = not more <= family
        family |= more
    return sum(known[pid][1] for pid in family if pid in known)


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# --- Running a server and its client --------------------------------------------------------------


class Programs:
    def __init__(self, build, scale, processor, scratch):
        self.weft = str(build / "bin" / "weft")
        self.scale = scale
        self.processor = processor
        self.scratch = Path(scratch)

    def times(self, count):
        return max(200, int(count * self.scale))

    def prefix(self, mode):
        options = {KERNEL: None, WEFT: "--sockets", ALWAYS: "--sockets=always"}[mode]
        return [self.weft, "run", "--quiet", options, "--"] if options else []

    def run(self, mode, server, client, results, environment=None):
        """One measurement. `server` and `client` make the commands from a port."""
        port = free_port()
        everything = {**os.environ, **(environment or {})}
        with open(self.scratch / "server.log", "w+", encoding="utf-8") as log:
            running = subprocess.Popen([*self.prefix(mode), *server(port)], env=everything,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                await_listener(port, running)
                time.sleep(SETTLED_S)
                return self.measure(mode, running, client(port), results, everything)
            except Failed as failure:
                log.seek(0)
                raise Failed(f"{failure} {log.read()[-300:]}") from failure
            finally:
                stop(running)

    def measure(self, mode, server, client, results, environment):
        before = processor_seconds(server.pid), children_seconds()
        done = subprocess.run([*self.prefix(mode), *client], capture_output=True, text=True,
                              timeout=WAIT_S, check=False, env=environment)
        if done.returncode != 0:
            raise Failed(f"{' '.join(client)}: {(done.stderr or done.stdout).strip()[-300:]}")
        result = results(done.stdout)
        if not self.processor:
            return result.rate
        used = processor_seconds(server.pid) - before[0] + children_seconds() - before[1]
        return used * 1e6 / result.count

    def row(self, name, server, client, results, unit="per second", modes=(WEFT,), needs=(),
            environment=None):
        """A row, whose figures are missing where a program is."""
        def measure_in(mode):
            if not all(needs):
                return None
            return lambda: self.run(mode, server, client, results, environment)

        if self.processor:
            unit = "us of processor for each MB" if unit == "Gbit/s" else "us of processor"
        return Row(name, unit, not self.processor, KERNEL, measure_in(KERNEL),
                   {mode: measure_in(mode) for mode in modes})


def stop(server):
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


# --- The programs ---------------------------------------------------------------------------------


def redis_rows(programs):
    server_program, client_program = installed("redis-server"), installed("redis-benchmark")

    def server(port):
        return [server_program, "--port", str(port), "--bind", ADDRESS, "--save", "",
                "--appendonly", "no", "--dir", str(programs.scratch)]

    def row(name, test, count, *options, modes=(WEFT,)):
        count = programs.times(count)

        def client(port):
            return [client_program, "-h", ADDRESS, "-p", str(port), "-t", test, "-n", str(count),
                    "--csv", *options]

        def results(text):
            return Result(count, found(rf'^"{test.upper()}","([\d.]+)"', text))

        return programs.row(name, server, client, results, modes=modes,
                            needs=(server_program, client_program))

    yield row("redis, GET, 50 connections", "get", 300_000, "-c", "50")
    yield row("redis, GET, 50 connections, -P 16", "get", 2_000_000, "-c", "50", "-P", "16")
    yield row("redis, GET, one connection", "get", 50_000, "-c", "1")
    yield row("redis, a connection for each SET", "set", 20_000, "-c", "10", "-k", "0")
    yield row("redis, a connection for each SET, 40 000 ports", "set", 40_000, "-c", "10", "-k",
              "0")
    yield row("redis, a connection for each SET, always streams", "set", 4000, "-c", "10", "-k",
              "0", modes=(ALWAYS,))


def memcached_rows(programs):
    server_program, client_program = installed("memcached"), installed("memcslap")
    user = ["-u", "root"] if os.geteuid() == 0 else []
    threads, count = 8, programs.times(20_000)

    def server(port):
        return [server_program, "-p", str(port), "-U", "0", "-l", ADDRESS, "-t", "1", *user]

    def client(port):
        return [client_program, f"--servers={ADDRESS}:{port}", f"--concurrency={threads}",
                f"--execute-number={count}", "--initial-load=1000", "--test=get"]

    def results(text):
        keys = found(r"^Time to get\s+(\d+) keys", text)
        return Result(keys, keys / found(r"^Time to get .* threads:\s+([\d.]+) seconds", text))

    yield programs.row("memcached, get, 8 connections", server, client, results,
                       needs=(server_program, client_program))


_NGINX = """daemon off;
error_log {folder}/nginx.log;
pid {folder}/nginx.pid;
{processes}
events {{ worker_connections 512; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; root {folder}/files; }}
}}
"""


def nginx_rows(programs):
    server_program, wrk, ab = installed("nginx"), installed("wrk"), installed("ab")
    files = programs.scratch / "files"
    files.mkdir(exist_ok=True)
    programs.scratch.chmod(0o755)

    def row(label, size, count, kind, processes):
        (files / label).write_bytes(os.urandom(size))
        count = programs.times(count)

        def server(port):
            configuration = programs.scratch / "nginx.conf"
            configuration.write_text(_NGINX.format(folder=programs.scratch, port=port,
                                                   processes=processes))
            return [server_program, "-p", str(programs.scratch), "-c", str(configuration)]

        def client(port):
            url = f"http://{ADDRESS}:{port}/{label}"
            if wrk:
                return [wrk, "-t", "1", "-c", "16", "-d", f"{max(1, round(4 * programs.scale))}s",
                        url]
            return [ab, "-q", "-k", "-c", "16", "-n", str(count), url]

        def results(text):
            if wrk:
                if "Non-2xx" in text or "Socket errors" in text:
                    raise Failed(f"requests failed: {text.strip()[-300:]}")
                return Result(found(r"(\d+) requests in", text),
                              found(r"^Requests/sec:\s+([\d.]+)", text))
            if found(r"^Failed requests:\s+(\d+)", text):
                raise Failed("requests failed")
            return Result(count, found(r"^Requests per second:\s+([\d.]+)", text))

        return programs.row(f"nginx, {kind}, a file of {label}", server, client, results,
                            needs=(server_program, wrk or ab))

    for kind, processes in (("one process", "master_process off;"), ("a worker",
                                                                     "worker_processes 1;")):
        yield row("1KiB", 1024, 100_000, kind, processes)
        yield row("1MiB", 1 << 20, 8000, kind, processes)


def postgresql_rows(programs):
    folder = "/usr/lib/postgresql/15/bin"
    make, server_program, client_program = (installed(name, folder) for name in
                                            ("initdb", "postgres", "pgbench"))
    # It refuses to run as root.
    other = ["unshare", "--user"] if os.geteuid() == 0 else []
    data, count = programs.scratch / "database", programs.times(20_000)
    common = ["-h", ADDRESS, "-U", "postgres"]

    def server(port):
        command = [*other, server_program, "-D", str(data), "-h", ADDRESS, "-p", str(port), "-c",
                   "unix_socket_directories=", "-c", "fsync=off"]
        if not data.exists():
            subprocess.run([*other, make, "-D", str(data), "-U", "postgres", "--auth=trust",
                            "--no-sync", "--locale=C", "--encoding=UTF8"], check=True,
                           capture_output=True)
            first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            await_listener(port, first)
            time.sleep(1)
            subprocess.run([client_program, *common, "-p", str(port), "-i", "-q", "postgres"],
                           check=True, capture_output=True)
            stop(first)
        return command

    def client(port):
        return [client_program, *common, "-p", str(port), "-S", "-n", "-c", "4", "-t", str(count),
                "postgres"]

    def results(text):
        return Result(found(r"actually processed: (\d+)", text), found(r"^tps = ([\d.]+)", text))

    needed = (make, server_program, client_program)
    yield programs.row("postgresql, pgbench -S, 4 connections", server, client, results,
                       needs=needed)


def iperf3_rows(programs):
    program = installed("iperf3")

    def results(text):
        received = json.loads(text)["end"]["sum_received"]
        return Result(received["bytes"] / 1e6, received["bits_per_second"] / 1e9)

    gigabytes = max(1, round(12 * programs.scale))
    yield programs.row("iperf3, one connection", lambda port: [program, "-s", "-1", "-p",
                                                              str(port), "-B", ADDRESS],
                       lambda port: [program, "-c", ADDRESS, "-p", str(port), "-J", "-n",
                                     f"{gigabytes}G"],
                       results, unit="Gbit/s", needs=(program,))


def rows_of(programs):
    for rows in (iperf3_rows, redis_rows, memcached_rows, nginx_rows, postgresql_rows):
        yield from rows(programs)


def main():
    parser = common_options(__doc__, quick="short measurements")
    parser.add_argument("--processor", action="store_true",
                        help="the processor time of both ends, not the rate")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds: at least one round is needed")
    results = []
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as scratch:
        programs = Programs(given.build, 0.1 if given.quick else 1, given.processor, scratch)
        chosen = [row for row in rows_of(programs) if given.only in row.name]
        if not chosen:
            parser.error(f"--only: no row has '{given.only}' in its name")
        for row in chosen:
            result = summary(row, *measure_row(row, given.rounds))
            show(result)
            results.append(result)
    print("\n" + table(results), end="")
    if given.json:
        stored = {"machine": machine(), "rounds": given.rounds, "rows": results}
        given.json.write_text(json.dumps(stored, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
