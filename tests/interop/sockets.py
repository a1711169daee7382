"""Ordinary TCP programs under `weft run --sockets`: nc, iperf3, redis, memcached, and one of ours
that does call by call what the kernel's sockets do."""

import hashlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time

import cases
import harness
from harness import need

OURS = ("--sockets",)
FALLBACK = ("--sockets=fallback",)


def said_by(side):
    """What the program says itself."""
    return [line for line in side.lines if not line.startswith("weft: ")]


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def random_file(stage, name, size):
    path = stage.scratch(name)
    with open(path, "wb") as file:
        file.write(random.Random(harness.seed()).randbytes(size))
    return path


def prints_the_same(stage, *program, options=OURS):
    """Every line that the program prints with the kernel's sockets, it prints with streams."""
    plain = stage.plain("kernel", *program)
    plain.finish()
    ours = stage.start("streams", *program, options=options)
    ours.finish()
    need("all done" in plain.lines, "the program did not reach its end")
    for wanted, found in zip(plain.lines, said_by(ours)):
        need(wanted == found, f"the kernel's sockets: {wanted!r}, ours: {found!r}")
    need(len(plain.lines) == len(said_by(ours)), "one of them says more")
    return ours


@cases.case("sockets.calls")
def same_calls(stage):
    prints_the_same(stage, harness.companion("socket_calls"))


@cases.case("sockets.states")
def same_calls_in_each_state(stage):
    """Every call is that of a stream: connections that were brief would be left to the kernel."""
    prints_the_same(stage, harness.companion("socket_states"), options=("--sockets=always",))


@cases.case("sockets.signals")
def same_signals(stage):
    """Handlers come within the library's work, and leave it or make calls themselves."""
    for what in ("jump", "send", "close", "interrupt"):
        prints_the_same(stage, harness.companion("socket_signals"), what)
    for after_us in range(1000, 9000, 700):
        prints_the_same(stage, harness.companion("socket_signals"), "exit", after_us)


def copy_by_nc(stage, port, sender_options, receiver_options, **how):
    """nc to nc; the receiver's standard output is the copy."""
    source = random_file(stage, "source", 3_000_001)
    copy = stage.scratch("copy")
    shell = ["sh", "-c", 'exec "$@" >"$0"', copy]
    receiver = stage.start("receiver", *shell, harness.installed("nc"), "-l", "-N", "127.0.0.1",
                           port, options=receiver_options, **how)
    receiver.await_listening(port)
    shell[2:] = ['exec "$@" <"$0"', source]
    sender = stage.start("sender", *shell, harness.installed("nc"), "-N", "127.0.0.1", port,
                         options=sender_options)
    sender.finish()
    receiver.finish()
    need(digest(source) == digest(copy), "the copy differs")


@cases.case("nc.file", sanitized=True)
def nc_file(stage):
    """The bytes arrive, and they went by RDMA writes."""
    capture = stage.scratch("nc.pcapng")
    copy_by_nc(stage, harness.free_port(), (*OURS, "--capture", capture), OURS)
    done = subprocess.run([harness.weft(), "dissect", "--json", "--operations", capture],
                          capture_output=True, text=True, check=False,
                          env=harness.clean_environment())
    written = 0
    for line in done.stdout.splitlines():
        entry = json.loads(line)
        if entry.get("type") == "operation" and "write" in str(entry.get("kind", "")).lower():
            written += entry.get("bytes", 0)
    need(written >= 3_000_001, f"only {written} bytes were written by RDMA")


@cases.case("nc.to_plain")
def nc_to_plain(stage):
    """A plain TCP server is named, and the connection fails."""
    port = harness.free_port()
    stage.plain("server", harness.installed("nc"), "-l", "-k", "127.0.0.1",
                port).await_listening(port)
    client = stage.start("client", "nc", "-v", "-N", "127.0.0.1", port, options=OURS)
    client.finish(status=1)
    need(f"127.0.0.1:{port} speaks plain TCP" in client.output, "the peer is not named")
    need("Protocol not supported" in client.output, "the program does not know why")


@cases.case("nc.fallback")
def nc_fallback(stage):
    """With --sockets=fallback it is connected all the same, which is said."""
    port, address = harness.free_port(), "127.0.0.1"
    server = stage.plain("server", harness.installed("nc"), "-l", "-k", address, port)
    server.await_listening(port)
    client = stage.start("client", "nc", "-N", address, port, options=FALLBACK, say=True)
    client.say("hello")
    client.expect("speaks plain TCP: connected without RDMA")
    server.expect("hello$")
    client.end_input()
    client.signal(signal.SIGTERM)


class _PlainServer:
    """Answers each client once, except one that says "quiet". Notes what each says first."""

    def __init__(self):
        self.heard = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client, _ = self._socket.accept()
            with client:
                said = client.recv(64)
                word = "MPA" if said.startswith(b"MPA ID Req") else said.decode()
                if self.heard[-1:] != [word]:  # a stream tries several forms of its request
                    self.heard.append(word)
                if word != "quiet":
                    client.sendall(b"fine")


_ASK_IN_TURN = """
import socket, sys
for word in sys.argv[2:]:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
        server.sendall(word.encode())
        print(word, server.recv(64).decode() or "nothing", flush=True)
"""


@cases.case("sockets.remembers_plain")
def remembers_plain(stage):
    """A plain server is not asked for a stream again, until it leaves a client without an answer:
    then one that speaks streams may have taken its place."""
    server = _PlainServer()
    client = stage.start("client", "python3", "-c", _ASK_IN_TURN, server.port,
                         "one", "two", "quiet", "three", "four", options=FALLBACK)
    client.finish()
    answers = ["one fine", "two fine", "quiet nothing", "three fine", "four fine"]
    need(said_by(client) == answers, f"the client has got {said_by(client)}")
    expected = ["MPA", "one", "two", "quiet", "MPA", "three", "four"]
    need(server.heard == expected, f"the server has heard {server.heard}")


@cases.case("sockets.silent_plain")
def silent_plain(stage):
    """A plain server on this host that waits for more than an MPA request does not keep the client
    for long."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = stage.start("client", "python3", "-c", _ASK_IN_TURN, port, "one", options=FALLBACK)
        with server.accept()[0]:  # not answered
            begin = time.monotonic()
            plain = server.accept()[0]
            taken = time.monotonic() - begin
        with plain:
            need(plain.recv(64) == b"one", "the client has not connected by TCP")
            plain.sendall(b"fine")
        client.finish()
    need(taken < 10, f"the client has waited {taken:.0f} s, as for another host")


_ASKS_NOBODY = """
import socket, sys
for _ in range(100):
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    except OSError as error:
        print(error.strerror, flush=True)
"""


@cases.case("sockets.refused")
def refused_at_once(stage):
    """Programs look for servers at one address or port after the other, so that a port without one
    refuses a stream at once: were the attempt repeated, this would take longer than a case may."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        client = stage.start("client", "python3", "-c", _ASKS_NOBODY, reserved.getsockname()[1],
                             options=OURS)
        client.finish()
    need(said_by(client) == ["Connection refused"] * 100, f"the client gets {said_by(client)}")


# As FTP does it in passive mode: the server tells where it listens for the file, and accepts only
# when it is asked for the file.
_LISTENS_ANEW = """
import os, socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    control = listener.accept()[0]
if "fork" in sys.argv and os.fork() != 0:
    control.close()
    os.wait()
    sys.exit()
with socket.create_server(("127.0.0.1", 0)) as other:
    control.sendall(b"%d\\n" % other.getsockname()[1])
    assert control.recv(64) == b"go on"
    with other.accept()[0] as data:
        data.sendall(b"the file")
"""
_ASKS_FOR_FILE = """
import socket, sys, time
control = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
port = int(control.makefile().readline())
begin = time.monotonic()
data = socket.create_connection(("127.0.0.1", port))
print("%.2f" % (time.monotonic() - begin))
control.sendall(b"go on")
print(data.recv(64).decode(), flush=True)
"""


def _listens_anew(*manner):
    def run(stage):
        """A server that has accepted clients does not fork for a new listener, so that its clients
        do not wait for two seconds to see whether it does."""
        port = harness.free_port()
        server = stage.start("server", "python3", "-c", _LISTENS_ANEW, port, *manner, options=OURS)
        server.await_listening(port)
        client = stage.start("client", "python3", "-c", _ASKS_FOR_FILE, port, options=OURS)
        client.finish()
        server.finish()
        taken, data = said_by(client)
        need(data == "the file", f"the client has got {data}")
        need(float(taken) < 2, f"the client has waited {taken} s until it was connected")
    return run


# As FTP does it in active mode: the client accepts once the server says that it sends the file.
_OPENS_FILE = """
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    control = listener.accept()[0]
port = int(control.makefile().readline())
begin = time.monotonic()
data = socket.create_connection(("127.0.0.1", port))
print("%.2f" % (time.monotonic() - begin), flush=True)
control.sendall(b"150")
data.sendall(b"the file")
"""
_LISTENS_FOR_ONE = """
import socket, sys
control = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
    control.sendall(b"%d\\n" % listener.getsockname()[1])
    assert control.recv(3) == b"150"
    print(listener.accept()[0].recv(64).decode())
"""


@cases.case("sockets.listens_for_one")
def listens_for_one(stage):
    """A client that listens for a single connection does not fork for it either."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _OPENS_FILE, port, options=OURS)
    server.await_listening(port)
    client = stage.start("client", "python3", "-c", _LISTENS_FOR_ONE, port, options=OURS)
    client.finish()
    server.finish()
    need(said_by(client) == ["the file"], f"the client has got {said_by(client)}")
    taken = float(said_by(server)[0])
    need(taken < 2, f"the server has waited {taken} s until it was connected")


cases.add("sockets.listens_anew", _listens_anew())
cases.add("sockets.child_listens_anew", _listens_anew("fork"))


# As epmd, which ends if accept fails after select.
_RELIES_ON_SELECT = """
import select, socket
for number in range(30):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        print("port", number, listener.getsockname()[1], flush=True)
        select.select([listener], [], [])
        with listener.accept()[0] as client:
            print(client.recv(64).decode(), flush=True)
"""


@cases.case("sockets.relies_on_select")
def relies_on_select(stage):
    """A program that is told of a client gets one: a client that has connected and not yet sent
    its first bytes does not show."""
    server = stage.start("server", "python3", "-c", _RELIES_ON_SELECT, options=FALLBACK)
    for number in range(30):
        port = int(server.expect(rf"^port {number} (\d+)$")[1])
        with socket.create_connection(("127.0.0.1", port)):
            with socket.create_connection(("127.0.0.1", port)) as second:
                second.sendall(b"client %d" % number)
                server.expect(f"^client {number}$")
    server.finish()


@cases.case("nc.from_plain")
def nc_from_plain(stage):
    """A plain TCP client is turned away, and the next one is served."""
    port, address = harness.free_port(), "127.0.0.1"
    server = stage.start("server", "nc", "-l", address, port, options=OURS)
    server.await_listening(port)
    plain = stage.plain("plain", harness.installed("nc"), "-N", address, port, say=True)
    plain.say("GET /index.html HTTP/1.0")  # it may be hung up on before another line
    plain.end_input()
    plain.finish(status=None)
    client = stage.start("client", "nc", "-N", address, port, options=OURS, say=True)
    client.say("by RDMA")
    server.expect("^by RDMA$")
    client.end_input()
    client.finish()
    server.finish()
    need("GET" not in server.output, "the bytes of the plain client got through")


def _iperf3(*options):
    def run(stage):
        port = harness.free_port()
        server = stage.start("server", "iperf3", "-s", "-1", "-p", port, options=OURS)
        server.await_listening(port)
        client = stage.start("client", "iperf3", "-c", "127.0.0.1", "-p", port, "-J", *options,
                             options=OURS)
        client.finish()
        server.finish()
        text = client.output
        result = json.loads(text[text.index("{"):text.rindex("}") + 1])
        sent, received = (result["end"][f"sum_{way}"]["bytes"] for way in ("sent", "received"))
        # The receiving side stops when the other says so, whatever is still under way.
        need(sent >= 64 << 20, f"only {sent} bytes were sent")
        need(0 < received <= sent, f"{sent} bytes were sent, {received} received")

    return run


# -n: an amount, so that it takes what it takes.
cases.add("iperf3.forth", _iperf3("-n", "64M"), sanitized=True)
cases.add("iperf3.back", _iperf3("-n", "64M", "-R"))
cases.add("iperf3.parallel", _iperf3("-n", "64M", "-P", "4"))


@cases.case("redis.benchmark", sanitized=True)
def redis_benchmark(stage):
    port = harness.free_port()
    server = stage.start("server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save",
                         "", "--dir", os.path.dirname(stage.scratch("x")), options=OURS)
    server.expect("Ready to accept connections")
    bench = stage.start("client", "redis-benchmark", "-p", port, "-n", "5000", "-c", "20", "-q",
                        "-t", "ping,set,get,lpush,lrange_100", options=OURS)
    bench.finish()
    harness.need_no_trouble(bench)
    need(re.search(r"GET: [\d.]+ requests per second", bench.output), "no result")
    need(re.search(r"LRANGE_100 .* requests per second", bench.output), "no result at the end")
    # A child of the server writes what it has, while connections are open.
    tool = ["redis-cli", "-p", port]
    stage.start("set", *tool, "SET", "thread", "weft", options=OURS).finish()
    stage.start("save", *tool, "BGSAVE", options=OURS).expect("Background saving started")
    server.expect("Background saving terminated with success")
    stage.start("get", *tool, "GET", "thread", options=OURS).expect("^weft$")
    stage.start("stop", *tool, "SHUTDOWN", "NOSAVE", options=OURS).finish()
    server.finish()


_MEMCACHED_CLIENT = """
import socket, sys
def line(file): return file.readline().rstrip(b"\\r\\n").decode()
connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(8)]
for number, connection in enumerate(connections):
    value = bytes([65 + number]) * (1 + 50000 * number)
    connection.sendall(b"set k%d 0 0 %d\\r\\n" % (number, len(value)) + value + b"\\r\\n")
    assert connection.recv(100) == b"STORED\\r\\n"
for number, connection in enumerate(reversed(connections)):
    connection.sendall(b"get k%d\\r\\n" % number)
    with connection.makefile("rb") as answer:
        head = line(answer).split()
        body = answer.read(int(head[3]))
        assert head[0] == "VALUE" and body == bytes([65 + number]) * (1 + 50000 * number)
        assert line(answer) == "" and line(answer) == "END"
    connection.close()
print("every value came back")
"""


_HANDING_ON = """
import socket, subprocess
listener = socket.create_server(("127.0.0.1", 0))
here = socket.create_connection(listener.getsockname())
there, _ = listener.accept()
try:
    subprocess.run(["echo"], stdout=there)
    print("done")
except OSError as error:
    print("refused:", error)
subprocess.run(["true"])
there.sendall(b"as before")
print(here.recv(100).decode())
"""


@cases.case("sockets.vfork")
def vfork(stage):
    """A connection that cannot go to another program is refused by name, and stays what it was."""
    program = stage.start("program", "python3", "-c", _HANDING_ON, options=OURS)
    program.expect("can be passed to another program by fork")
    program.expect("refused: .*not supported")
    program.expect("^as before$")
    program.finish()


# As inetd: the connection is the standard input of another program.
_EXECUTING = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
connection, peer = listener.accept()
print("server", peer, connection.getsockname(), flush=True)
if os.fork() == 0:
    os.dup2(connection.fileno(), 0)
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[2]])
connection.close()
os.wait()
"""
_EXECUTED = """
import socket
connection = socket.socket(fileno=0)
print("program", connection.getpeername(), connection.getsockname(), connection.family.name)
connection.sendall(connection.recv(100).upper())
"""
_ASKING = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("client", connection.getsockname(), connection.getpeername())
connection.sendall(b"hello")
print(connection.recv(100).decode())
"""


@cases.case("sockets.addresses_after_exec")
def addresses_after_exec(stage):
    """A program that gets a connection by fork and exec sees whose it is."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _EXECUTING, port, _EXECUTED,
                         options=("--sockets=always",))
    server.await_listening(port)
    client = stage.start("client", "python3", "-c", _ASKING, port, options=("--sockets=always",))
    client.expect("^HELLO$")
    client.finish()
    server.finish()
    said = {line.split()[0]: line for line in [*said_by(server), *said_by(client)]}
    local, peer = re.findall(r"\(.*?\)", said["client"])
    need(said["program"] == f"program {local} {peer} AF_INET",
         f"client: {local}, {peer}; {said['program']}")


# As Dovecot: the environment of the program that accepts is cleared.
_WITHOUT_ENVIRONMENT = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
listener.set_inheritable(True)
if os.fork() == 0:
    os.execve(sys.executable,
              [sys.executable, "-c", sys.argv[2], str(listener.fileno())], {"ONLY": "this"})
os.wait()
"""
_ACCEPTS_WITHOUT_ENVIRONMENT = """
import os, socket, sys
print("program", os.environ["ONLY"], "PATH" in os.environ)
with socket.socket(fileno=int(sys.argv[1])) as listener:
    connection = listener.accept()[0]
    connection.sendall(connection.recv(100).upper())
"""


def _accepts_without_environment(option):
    def run(stage):
        """A program that inherits a listening socket serves streams, also if its parent has reduced
        its environment to what it needs itself."""
        port = harness.free_port()
        server = stage.start("server", "python3", "-c", _WITHOUT_ENVIRONMENT, port,
                             _ACCEPTS_WITHOUT_ENVIRONMENT, options=(option,))
        server.await_listening(port)
        client = stage.start("client", "python3", "-c", _ASKING, port, options=(option,))
        client.expect("^HELLO$")
        client.finish()
        server.expect("^program this False$")
        server.finish()
    return run


cases.add("sockets.accepts_without_environment", _accepts_without_environment("--sockets"))
cases.add("sockets.accepts_without_environment_as_stream",
          _accepts_without_environment("--sockets=always"))


@cases.case("memcached.values", sanitized=True)
def memcached_values(stage):
    """Several threads, each with an epoll of its own; the client is Python's socket module."""
    port = harness.free_port()
    harness.installed("memcached")
    user = []
    if os.geteuid() == 0:  # as which it does not run; to become somebody else takes a capability
        user = ["unshare", "--user"]
        if not harness.succeeds(*user, "true"):
            raise harness.Skip("memcached does not run as root, and there are no user namespaces")
    server = stage.start("server", *user, "memcached", "-l", "127.0.0.1", "-p", port, "-U", "0",
                         options=OURS)
    server.await_listening(port)
    client = stage.start("client", "python3", "-c", _MEMCACHED_CLIENT, port, options=OURS)
    client.expect("every value came back")
    client.finish()


_HOLD = """
import socket, sys
sent = bytes(range(256)) * 20000
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.sendall(sent)
    got = connection.recv(len(sent), socket.MSG_WAITALL)
    print("came back" if got == sent else "differs", flush=True)
    sys.stdin.read()
"""

_ECHO = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    data = connection.recv(20000 * 256, socket.MSG_WAITALL)
    connection.sendall(data)
"""


def await_announcement(side, port, within_s=60):
    """Until processes of this host find the server outside of TCP."""
    end = time.monotonic() + within_s
    while True:
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as names:
            if f"@weft-local/127.0.0.1:{port}\n" in names.read():
                return
        need(side.process.poll() is None and time.monotonic() < end, "the server is not announced")
        time.sleep(0.005)


@cases.case("sockets.same_host")
def same_host(stage):
    """The kernel's socket listens, and still the bytes leave TCP between processes of one host."""
    # `require` refuses connections that would stay on TCP.
    port, env = harness.free_port(), {"WEFT_SAME_HOST": "require"}
    harness.installed("ss")
    server = stage.start("server", "python3", "-c", _ECHO, port, options=OURS, env=env)
    await_announcement(server, port)
    client = stage.start("client", "python3", "-c", _HOLD, port, options=OURS, env=env, say=True)
    client.expect("^came back$")
    found = subprocess.run(["ss", "-tinH", "state", "established", f"( dport = :{port} )"],
                           capture_output=True, text=True, check=True).stdout
    moved = [int(count) for count in re.findall(r"bytes_(?:sent|received):(\d+)", found)]
    # Both ends close the TCP connection once they have left it.
    need(all(count < 100_000 for count in moved), f"bytes that went through TCP: {moved}")
    client.end_input()
    client.finish()


# Four connections that a server is in the middle of: it reads nothing, sends without end, answers,
# and does nothing. The client prints the error of each.
_KILLED_SERVER = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def serve(connection, kind):
    if kind == b"flood":
        while True: connection.sendall(bytes(10000))
    while kind == b"echo_": connection.sendall(connection.recv(1000))
    threading.Event().wait()
while True:
    connection = listener.accept()[0]
    kind = connection.recv(5, socket.MSG_WAITALL)
    connection.sendall(b"!")
    threading.Thread(target=serve, args=(connection, kind), daemon=True).start()
"""
_KILLED_CLIENT = """
import errno, os, socket, sys, threading
def talk(connection, kind):
    if kind == "sends": connection.sendall(bytes(10000))
    if kind == "echo_": connection.sendall(b"x" * 1000)
    if kind != "sends" and not connection.recv(1000): raise EOFError
def run(kind, ready):
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    connection.sendall(kind.encode())
    connection.recv(1)
    if kind != "waits": talk(connection, kind)
    ready.wait()
    try:
        while True: talk(connection, kind)
    except OSError as error:
        os.write(1, f"{kind} {errno.errorcode[error.errno]}\\n".encode())  # whole lines
ready = threading.Barrier(5)
threads = [threading.Thread(target=run, args=(kind, ready))
           for kind in ("sends", "flood", "echo_", "waits")]
for thread in threads: thread.start()
ready.wait()
print("ready", flush=True)
for thread in threads: thread.join()
"""


def _killed_server(stage, same_host):
    """kill -9 of a server in the middle of its connections is a reset on each of them."""
    for _ in range(5):
        port, env = harness.free_port(), {"WEFT_SAME_HOST": same_host}
        server = stage.start("server", "python3", "-c", _KILLED_SERVER, port, options=OURS, env=env)
        server.await_listening(port)
        if same_host == "require":
            await_announcement(server, port)
        client = stage.start("client", "python3", "-c", _KILLED_CLIENT, port, options=OURS, env=env)
        client.expect("^ready$")
        server.signal(signal.SIGKILL)
        server.finish(status=None)
        client.finish()
        found = sorted(line for line in said_by(client) if line != "ready")
        need(found == [f"{kind} ECONNRESET" for kind in ("echo_", "flood", "sends", "waits")],
             f"the client gets {found}")
        for side in (server, client):
            stage.forget(side)


@cases.case("sockets.killed_server_on_one_host")
def killed_server_on_one_host(stage):
    _killed_server(stage, "require")


@cases.case("sockets.killed_server_over_tcp")
def killed_server_over_tcp(stage):
    _killed_server(stage, "off")


# Connects so many times, and prints the highest of its descriptors.
_CROWD = """
import socket, sys
count = int(sys.argv[2])
all = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(count)]
for number, each in enumerate(all):
    each.sendall(b"%d" % number)
    assert each.recv(100) == b"%d" % number
    print("port", each.getsockname()[1])
print("highest", max(each.fileno() for each in all), flush=True)
"""
_CROWD_SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
all = [listener.accept()[0] for _ in range(int(sys.argv[2]))]
for each in all: each.sendall(each.recv(100))
print("highest", max(each.fileno() for each in all), flush=True)
for each in all: each.recv(1)
"""


@cases.case("sockets.without_tcp")
def without_tcp(stage):
    """Two processes of one host that have met need no TCP for further connections."""
    port, count, env = harness.free_port(), 20, {"WEFT_SOCKETS": "always"}
    server = stage.start("server", "python3", "-c", _CROWD_SERVER, port, count, options=OURS,
                         env=env)
    await_announcement(server, port)
    client = stage.start("client", "python3", "-c", _CROWD, port, count, options=OURS, env=env)
    client.finish()
    server.finish()
    ports = [int(line.split()[1]) for line in said_by(client) if line.startswith("port ")]
    # The device numbers the ends of such connections itself, one after the other.
    steps = sum(after - before == 1 for before, after in zip(ports, ports[1:]))
    need(len(ports) == count and steps > count / 2, f"ports of the client: {ports}")


# Each end closes all descriptors that it did not open, once the two are connected.
_CLOSES_THE_REST = """
import os, socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    for _ in range(3):
        with listener.accept()[0] as connection:
            os.closerange(connection.fileno() + 1, 1 << 16)
            while data := connection.recv(100): connection.sendall(data)
"""
_CLOSED_PEER = """
import os, socket, sys
for word in b"one", b"two", b"three":
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        for _ in range(3):
            connection.sendall(word)
            print(connection.recv(100).decode(), flush=True)
            os.closerange(connection.fileno() + 1, 1 << 16)
"""


def _closes_the_rest(same_host):
    def run(stage):
        """A program that closes what it takes for leftovers of its parent, as daemons do, does not
        close what its connections need."""
        port, env = harness.free_port(), {"WEFT_SAME_HOST": same_host}
        server = stage.start("server", "python3", "-c", _CLOSES_THE_REST, port, options=OURS,
                             env=env)
        server.await_listening(port)
        if same_host == "require":
            await_announcement(server, port)
        client = stage.start("client", "python3", "-c", _CLOSED_PEER, port, options=OURS, env=env)
        client.finish()
        server.finish()
        wanted = [word for word in ("one", "two", "three") for _ in range(3)]
        need(said_by(client) == wanted, f"the client has got {said_by(client)}")
    return run


cases.add("sockets.closes_the_rest", _closes_the_rest("require"))
cases.add("sockets.closes_the_rest_over_tcp", _closes_the_rest("off"))


def _low_numbers(stage, same_host):
    """A connection takes one low number, as many programs expect: some have a table that long."""
    port, count = harness.free_port(), 60
    # The device itself has some, and a connection that is being made.
    most = count + 45
    env = {"WEFT_SAME_HOST": same_host}
    server = stage.start("server", "python3", "-c", _CROWD_SERVER, port, count, options=OURS,
                         env=env)
    server.await_listening(port)
    client = stage.start("client", "python3", "-c", _CROWD, port, count, options=OURS, env=env)
    client.finish()
    server.finish()
    for side in (server, client):
        highest = int(side.expect(r"^highest (\d+)$", start=0)[1])
        need(highest < most, f"{side.name}: {count} connections reach the number {highest}")


@cases.case("sockets.low_numbers")
def low_numbers(stage):
    _low_numbers(stage, "auto")


@cases.case("sockets.low_numbers_over_tcp")
def low_numbers_over_tcp(stage):
    _low_numbers(stage, "off")
