"""Connections under `weft run --sockets` that are left to the kernel's TCP: brief ones, and those
to servers of several processes."""

import os
import re
import shutil
import signal
import socket
import threading

import cases
import harness
from harness import need
from prefork import clients

OURS = ("--sockets",)
ALWAYS = ("--sockets=always",)
_KEY = b"Weft: kernel TCP"

# Echoes, one connection after the other, until its input ends.
_SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)
"""

# Reads "COUNT ROUND_TRIPS", opens so many connections one after the other, and prints for each
# whether its descriptor is the kernel's TCP socket (k) or a stream (s).
_CLIENT = """
import errno, os, socket, sys
def is_kernels(connection):
    inode = os.fstat(connection.fileno()).st_ino
    return any(line.split()[9] == str(inode) for line in open("/proc/net/tcp") if ":" in line)
for line in sys.stdin:
    count, round_trips = map(int, line.split())
    kinds = ""
    try:
        for _ in range(count):
            with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
                for number in range(round_trips):
                    connection.sendall(b"%d" % number)
                    assert connection.recv(100) == b"%d" % number
                kinds += "k" if is_kernels(connection) else "s"
    except OSError as error:
        kinds += " " + errno.errorcode[error.errno]
    print("kinds", kinds, flush=True)
"""


def _start(stage, port, options=OURS, name="server", **how):
    server = stage.start(name, "python3", "-c", _SERVER, port, options=options, **how)
    server.expect("^ready$")
    return server


class _Client:
    def __init__(self, stage, port, options=OURS, **how):
        self._side = stage.start("client", "python3", "-c", _CLIENT, port, options=options,
                                 say=True, **how)
        self.said = lambda: self._side.output

    def connect(self, count, round_trips=1):
        """One letter for each connection, and the error that ended them."""
        start = getattr(self._side, "read", 0)
        self._side.say(f"{count} {round_trips}")
        return self._side.expect("^kinds ?(.*)$", start=start)[1]

    def finish(self):
        self._side.end_input()
        self._side.finish()


@cases.case("left_to_kernel.brief")
def brief(stage):
    """After eight brief connections the next ones are the kernel's, until one has lived on."""
    port = harness.free_port()
    _start(stage, port)
    client = _Client(stage, port, env={"WEFT_VERBOSE": "1"})
    kinds = client.connect(20)
    need(kinds == "s" * 8 + "k" * 12, f"brief connections: {kinds}")
    need("left to the kernel's TCP, because the last ones were brief" in client.said(), "not said")
    kinds = client.connect(2, round_trips=200)
    need(kinds == "ks", f"connections that live on, after brief ones: {kinds}")
    kinds = client.connect(10)
    need(kinds == "s" * 8 + "k" * 2, f"brief ones again: {kinds}")
    client.finish()


def _all_streams(options=OURS, **env):
    def run(stage):
        """Nothing is left to the kernel where the user looks at the device, or does not want it."""
        port = harness.free_port()
        settings = {name: value.format(stage.scratch("file")) for name, value in env.items()}
        _start(stage, port, options, env=settings)
        client = _Client(stage, port, options, env=settings)
        kinds = client.connect(12)
        need(kinds == "s" * 12, f"{options} {env}: {kinds}")
        client.finish()

    return run


cases.add("left_to_kernel.always", _all_streams(ALWAYS))
cases.add("left_to_kernel.tcp_only", _all_streams(WEFT_SAME_HOST="off"))
cases.add("left_to_kernel.capture", _all_streams(WEFT_CAPTURE="{}%p.pcapng"))


@cases.case("left_to_kernel.other_server")
def other_server(stage):
    """A server without Weft that follows at the same port gets no byte that it does not expect."""
    port = harness.free_port()
    server = _start(stage, port)
    client = _Client(stage, port)
    need(client.connect(10).endswith("kk"), "no connection was left to the kernel")
    server.signal(9)
    server.finish(status=None)
    _need_no_key(client, _PlainServer(port))


def _need_no_key(client, plain):
    kinds = client.connect(1)
    need(kinds.endswith("EPROTONOSUPPORT"), f"a plain server: {kinds}")
    client.finish()
    plain.close()
    need(plain.found.startswith(b"MPA ID Req Frame"), f"it has got {plain.found[:40]}")
    need(_KEY not in plain.found, "the key was sent to a plain server")


class _PlainServer:
    """Knows nothing of Weft: takes the first bytes of each client and disconnects it."""

    def __init__(self, port):
        self.found = b""
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        try:
            while True:
                with self._listener.accept()[0] as connection:
                    self.found += connection.recv(65536)
        except OSError:
            return  # closed

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


_IMPOSTOR = """
import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("\\0weft-kernel-all/127.0.0.1," + sys.argv[1])
listener.listen()
print("offers", flush=True)
held = []
while True: held.append(listener.accept())
"""


@cases.case("left_to_kernel.impostor")
def impostor(stage):
    """Another user who makes an offer for a port that is not theirs is not believed."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise harness.Skip("only root can start a program as another user")
    port = harness.free_port()
    plain = _PlainServer(port)
    other = stage.plain("impostor", "setpriv", "--reuid=nobody", "--regid=nogroup",
                        "--clear-groups", "python3", "-c", _IMPOSTOR, port)
    other.expect("^offers$")
    _need_no_key(_Client(stage, port), plain)


@cases.case("left_to_kernel.other_users_server")
def other_users_server(stage):
    """A server of another user that does listen there is believed."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise harness.Skip("only root can start a program as another user")
    port = harness.free_port()
    server = stage.plain("server", "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
                         harness.weft(), "run", *OURS, "--", "python3", "-c", _SERVER, port)
    server.expect("^ready$")
    client = _Client(stage, port)
    kinds = client.connect(10)
    need(kinds == "s" * 8 + "kk", f"brief connections: {kinds}")
    client.finish()


# Connects in unusual ways, so that its descriptor must stay the one that the program knows.
_WAYS = """
import os, selectors, socket, sys
port = int(sys.argv[1])
def echo(connection):
    connection.setblocking(True)
    connection.sendall(b"hello")
    assert connection.recv(5, socket.MSG_WAITALL) == b"hello"
def begin(connection):
    connection.setblocking(False)
    return connection.connect_ex(("127.0.0.1", port))
for number in range(30):
    with socket.socket() as connection:
        if number % 3 == 0:  # an epoll set has it before it connects
            with selectors.EpollSelector() as selector:
                selector.register(connection, selectors.EVENT_WRITE)
                begin(connection)
                while connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or selector.select(
                        10) != [(selector.get_key(connection), selectors.EVENT_WRITE)]: pass
                echo(connection)
        elif number % 3 == 1:  # it has two descriptors
            with connection.dup() as copy:
                connection.connect(("127.0.0.1", port))
                echo(copy)
                echo(connection)
        else:  # without waiting, close-on-exec or not
            os.set_inheritable(connection.fileno(), number % 2 == 0)
            begin(connection)
            with selectors.EpollSelector() as selector:
                selector.register(connection, selectors.EVENT_WRITE)
                selector.select(10)
                assert begin(connection) in (0, 106), "not connected"
                assert os.get_inheritable(connection.fileno()) == (number % 2 == 0)
                echo(connection)
print("all done")
"""


@cases.case("left_to_kernel.ways")
def ways(stage):
    """Whatever a program has done with a socket before it connects, holds afterwards."""
    port = harness.free_port()
    _start(stage, port)
    client = _Client(stage, port)
    client.connect(8)
    client.finish()
    program = stage.start("program", "python3", "-c", _WAYS, port, options=OURS)
    program.finish()
    need("all done" in program.lines, "it did not reach its end")


# Greets each client and waits for its answer. Prints in how many segments that has come.
_GREETER = """
import socket, struct, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"hello")
        assert connection.recv(100)
        if sys.argv[2] == "say":
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
            print("segments", struct.unpack_from("I", info, 152)[0], flush=True)
        connection.sendall(b"bye")
"""

# Waits in turn by each way to be greeted, then answers. Prints how long the greeting took at best,
# for each way, behind the connections that are streams.
_GREETED = """
import select, socket, sys, time
def by_recv(connection): pass
def by_poll(connection):
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    assert waiting.poll(30000)
def by_select(connection):
    assert select.select([connection], [], [], 30)[0]
def by_epoll(connection):
    with select.epoll() as waiting:
        waiting.register(connection, select.EPOLLIN)
        assert waiting.poll(30)
def by_copy(connection):
    with connection.dup() as copy:
        assert copy.recv(5, socket.MSG_WAITALL | socket.MSG_PEEK) == b"hello"
ways = [by_recv, by_poll, by_select, by_epoll, by_copy]
best = {}
for number in range(8 + 10 * len(ways)):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        way = ways[number % len(ways)]
        began = time.monotonic()
        way(connection)
        assert connection.recv(5, socket.MSG_WAITALL) == b"hello"
        took = time.monotonic() - began
        if number >= 8: best[way] = min(took, best.get(way, took))
        connection.sendall(b"answer")
        assert connection.recv(3, socket.MSG_WAITALL) == b"bye"
for way, took in best.items(): print("greeted", way.__name__, took, flush=True)
"""


@cases.case("left_to_kernel.server_first")
def server_first(stage):
    """A client that waits for the server's first bytes does not keep the key from the server."""
    port = harness.free_port()
    stage.start("server", "python3", "-c", _GREETER, port, "", options=OURS).expect("^ready$")
    client = stage.start("client", "python3", "-c", _GREETED, port, options=OURS)
    client.finish()
    greeted = [line.split() for line in client.lines if line.startswith("greeted")]
    need(len(greeted) == 5, f"ways that were tried: {greeted}")
    for _, way, took in greeted:
        # The kernel lets a key go by itself, but not before 200 ms.
        need(float(took) < 0.2, f"{way}: greeted after {took} s at best")


# Sends at once. The greeting comes meanwhile.
_SENDS_FIRST = """
import socket, sys
for _ in range(12):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.sendall(b"answer")
        assert connection.recv(8, socket.MSG_WAITALL) == b"hellobye"
print("all done", flush=True)
"""


@cases.case("left_to_kernel.key_with_first_bytes")
def key_with_first_bytes(stage):
    """The key and the first bytes of the program are one segment."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _GREETER, port, "say", options=OURS)
    server.expect("^ready$")
    client = stage.start("client", "python3", "-c", _SENDS_FIRST, port, options=OURS)
    client.finish()
    need("all done" in client.lines, "it did not reach its end")
    said = [line for line in server.lines if line.startswith("segments")]
    need(said[-4:] == ["segments 1"] * 4, f"segments of the last clients: {said}")


_SHARED = """
import os, signal, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
child = os.fork()
if child == 0:
    while True:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(65536):
                connection.sendall(b"%d:" % os.getpid() + data)
print("child", child, flush=True)
sys.stdin.read()
os.kill(child, signal.SIGTERM)
os.waitpid(child, 0)
"""


@cases.case("left_to_kernel.shared_listener")
def shared_listener(stage):
    """To a server of several processes each connection is the kernel's, from the first one on."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _SHARED, port, options=OURS, say=True)
    child = server.expect(r"^child (\d+)$")[1]
    verbose = stage.start("verbose", "nc", "-N", "127.0.0.1", port, options=OURS, say=True,
                          env={"WEFT_VERBOSE": "1"})
    verbose.say("hello")
    verbose.expect(f"^{child}:hello")
    verbose.end_input()
    verbose.finish()
    need(re.search("left to the kernel's TCP, because several processes of the server accept there",
                   verbose.output), "not said")
    for name, options in (("by the kernel", OURS), ("by a stream", ALWAYS)):
        who = clients(stage, port, 1, options=options, name=name)
        need(who == [child], f"answered by {who}, not by {child}")
    server.end_input()
    server.finish()


# Echoes without blocking, as most servers do. Says when it accepts from the kernel's queue itself:
# then the listening socket holds back clients that have not sent anything. SIGUSR1 makes it fork;
# the child goes on. SIGUSR2 makes it wait for a line.
_EVENT_SERVER = """
import os, select, selectors, signal, socket, sys
way, port = sys.argv[1], int(sys.argv[2])
listener = socket.create_server(("127.0.0.1", port), backlog=64)
listener.setblocking(False)
class Forked(Exception): pass
def fork(number, frame):
    if os.fork() > 0:
        signal.pause()
    raise Forked
def be_busy(number, frame):
    print("busy", flush=True)
    sys.stdin.readline()
signal.signal(signal.SIGUSR1, fork)
signal.signal(signal.SIGUSR2, be_busy)
if way == "edges":
    listening = select.epoll()
    listening.register(listener, select.EPOLLIN | select.EPOLLET)
    selector = selectors.EpollSelector()
    selector.register(listening, selectors.EVENT_READ)
else:
    listening = listener
    selector = getattr(selectors, way)()
    selector.register(listener, selectors.EVENT_READ)
print("ready", flush=True)
direct = False
def accept():
    global direct
    if way == "edges":
        listening.poll(0)
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            break
        connection.setblocking(True)
        selector.register(connection, selectors.EVENT_READ)
    if not direct and listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT):
        direct = True
        print("direct", flush=True)
def echo(connection):
    try:
        data = connection.recv(65536)
    except ConnectionResetError:
        data = b""
    if data:
        return connection.sendall(data)
    selector.unregister(connection)
    connection.close()
while True:
    try:
        for key, _ in selector.select():
            accept() if key.fileobj is listening else echo(key.fileobj)
    except Forked:  # the old set is the parent's as well
        selector = selectors.EpollSelector()
        selector.register(listener, selectors.EVENT_READ)
"""


def _event_server(stage, way, port, options=OURS):
    server = stage.start("server", "python3", "-c", _EVENT_SERVER, way, port, options=options,
                         say=True)
    server.expect("^ready$")
    return server


def _plain_answer(port):
    """What a client without Weft gets."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        try:
            plain.sendall(b"plain")
            return plain.recv(100)
        except OSError:
            return b""


def _direct(way):
    def run(stage):
        """The server accepts brief clients itself, and other ones are served or refused as ever."""
        port = harness.free_port()
        server = _event_server(stage, way, port)
        client = _Client(stage, port)
        kinds = client.connect(40)
        need(kinds == "s" * 8 + "k" * 32, f"brief connections: {kinds}")
        server.expect("^direct$")
        for number in range(3):
            need(client.connect(5) == "k" * 5, "brief ones again")
            need(_plain_answer(port) == b"", "a plain client was served")
            need(client.connect(5) == "k" * 5, "brief ones after a plain client")
            other = _Client(stage, port)
            need(other.connect(3) == "sss", "streams of another program")
            other.finish()
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        need(client.connect(5) == "k" * 5, "brief ones beside silent clients")
        need(client.connect(1, round_trips=200) == "k", "one that lives on")
        kinds = client.connect(8)
        need(kinds == "s" * 8, f"after one that lives on: {kinds}")
        client.finish()
        for each in silent:
            each.close()

    return run


for _way in ("EpollSelector", "PollSelector", "SelectSelector", "edges"):
    cases.add(f"left_to_kernel.direct_{_way.lower()}", _direct(_way))


@cases.case("left_to_kernel.direct_fallback")
def direct_fallback(stage):
    """A plain client is served where that is allowed, also one that says nothing at first."""
    port = harness.free_port()
    options = ("--sockets=fallback",)
    server = _event_server(stage, "EpollSelector", port, options)
    client = _Client(stage, port, options)
    client.connect(40)
    server.expect("^direct$")
    need(_plain_answer(port) == b"plain", "a plain client was not served")
    with socket.create_connection(("127.0.0.1", port), timeout=30) as late:
        need(client.connect(5) == "k" * 5, "brief ones beside a silent client")
        server.expect("speaks plain TCP")
        late.sendall(b"late")
        need(late.recv(100) == b"late", "a client that was silent at first")
    client.finish()


@cases.case("left_to_kernel.direct_fork")
def direct_fork(stage):
    """The server forks meanwhile, and its child accepts from then on."""
    port = harness.free_port()
    server = _event_server(stage, "EpollSelector", port)
    client = _Client(stage, port)
    client.connect(40)
    server.expect("^direct$")
    server.signal(signal.SIGUSR1)
    for _ in range(20):
        kinds = client.connect(5)
        need(set(kinds) <= set("sk"), f"a connection has failed: {kinds}")
    need(kinds == "k" * 5, f"to a server of two processes: {kinds}")
    client.finish()


@cases.case("left_to_kernel.direct_busy")
def direct_busy(stage):
    """The server does other things for a while: clients are connected all the same, as with TCP."""
    port = harness.free_port()
    server = _event_server(stage, "EpollSelector", port)
    client = _Client(stage, port)
    client.connect(40)
    server.expect("^direct$")
    server.signal(signal.SIGUSR2)
    server.expect("^busy$")
    other = _Client(stage, port)
    need(other.connect(2, round_trips=0) == "ss", "streams to a busy server")
    server.say("go on")
    need(client.connect(5) == "k" * 5, "brief ones after that")
    need(other.connect(2) == "ss", "streams after that")
    other.finish()
    client.finish()
