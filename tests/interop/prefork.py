"""Servers of several processes under `weft run --sockets`: what listens is made by a parent, and
children accept; or each process listens on the same port itself (SO_REUSEPORT)."""

import os
import shutil
import signal
import socket

import cases
import harness
from harness import need

OURS = ("--sockets",)
FALLBACK = ("--sockets=fallback",)

# Each child answers with its number, one connection at a time. The parent says when all are there.
_CHILDREN = """
import os, selectors, signal, socket, sys

def answer(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(b"%d:" % os.getpid() + data)

def block(listener):
    while True:
        answer(listener.accept()[0])

def wait_by(selector, listener):
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        selector.select()
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            continue  # another child was faster
        connection.setblocking(True)
        answer(connection)

def go(listener):
    program = "import os, socket; listener = socket.socket(fileno=%d)" % listener.fileno()
    os.set_inheritable(listener.fileno(), True)
    os.execv(sys.executable, [sys.executable, "-c", program + PROGRAM])

PROGRAM = '''
while True:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(65536):
            connection.sendall(b"%d:" % os.getpid() + data)
'''
ways = {"block": block, "epoll": lambda made: wait_by(selectors.EpollSelector(), made),
        "poll": lambda made: wait_by(selectors.PollSelector(), made), "exec": go}
listener = socket.create_server(("127.0.0.1", int(sys.argv[3])), backlog=64)
children = []
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ways[sys.argv[1]](listener)
    children.append(child)
print("children", *children, flush=True)
if "leave" in sys.argv:
    os._exit(0)
sys.stdin.read()
for child in children:
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
"""

# So many connections at once: who answers them, one line.
_CLIENTS = """
import socket, sys
connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1])))
               for _ in range(int(sys.argv[2]))]
who = []
for number, connection in enumerate(connections):
    connection.sendall(b"hello %d" % number)
for number, connection in enumerate(connections):
    process, _, said = connection.recv(100).decode().partition(":")
    assert said == "hello %d" % number, said
    who.append(process)
print("answered by", *who, flush=True)
"""


def clients(stage, port, count, options=OURS, name="clients"):
    side = stage.start(name, "python3", "-c", _CLIENTS, port, count, options=options)
    who = side.expect("^answered by (.*)$")[1].split()
    side.finish()
    return who


def _children_accept(way, options):
    def run(stage):
        """Each child has a connection, all at the same time; twice, for they go on accepting."""
        port = harness.free_port()
        server = stage.start("server", "python3", "-c", _CHILDREN, way, 3, port, options=options,
                             say=True)
        children = server.expect("^children (.*)$")[1].split()
        for _ in range(2):
            who = clients(stage, port, 3, options)
            need(sorted(who) == sorted(children), f"of {children}, {who} have answered")
        server.end_input()
        server.finish()

    return run


for _way in ("block", "epoll", "poll", "exec"):
    cases.add(f"prefork.{_way}", _children_accept(_way, OURS))
    cases.add(f"prefork.{_way}_streams", _children_accept(_way, ("--sockets=always",)))


@cases.case("prefork.parent_leaves")
def parent_leaves(stage):
    """As daemons do it: who listened ends, and the children serve on."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _CHILDREN, "epoll", 2, port, "leave",
                         options=OURS)
    children = server.expect("^children (.*)$")[1].split()
    server.process.wait(harness.WAIT_S)
    try:
        who = clients(stage, port, 2)
        need(sorted(who) == sorted(children), f"of {children}, {who} have answered")
    finally:
        for child in children:
            os.kill(int(child), signal.SIGKILL)


_BOTH = """
import os, select, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
epoll = select.epoll()
epoll.register(listener, select.EPOLLIN)
first = socket.create_connection(listener.getsockname())
listener.accept()[0].sendall(b"alone")
print(first.recv(100).decode(), flush=True)
child = os.fork()
def serve_one():
    epoll.poll()
    with listener.accept()[0] as connection:
        connection.sendall(b"%d:" % os.getpid() + connection.recv(100))
if child == 0:
    serve_one()
    os._exit(0)
os.waitpid(child, 0)
print("a child has served", flush=True)
serve_one()
own = socket.create_connection(listener.getsockname())
listener.accept()[0].sendall(b"alone again")
print(own.recv(100).decode(), flush=True)
"""


@cases.case("prefork.parent_too")
def parent_too(stage):
    """A parent that accepted before lets a child accept, by an epoll from before the fork, and goes
    on afterwards; also from itself."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _BOTH, port, options=OURS)
    server.expect("^alone$")
    child = clients(stage, port, 1, name="first")
    server.expect("^a child has served$")
    parent = clients(stage, port, 1, name="second")
    need(child != parent, "one process has served both")
    server.expect("^alone again$")
    server.finish()


_FORKING = """
import socketserver, sys
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())
class Server(socketserver.ForkingTCPServer):
    allow_reuse_address = True
with Server(("127.0.0.1", int(sys.argv[1])), Handler) as server:
    print("ready", flush=True)
    server.serve_forever()
"""

_LINES = """
import socket, sys
connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(5)]
for number, connection in enumerate(connections):
    connection.sendall(b"line %d\\n" % number)
    with connection.makefile("rb") as answers:
        print(answers.readline().decode().strip())
"""


def lines_come_back(stage, port, upper):
    client = stage.start("client", "python3", "-c", _LINES, port, options=OURS)
    for number in range(5):
        client.expect(f"^{'LINE' if upper else 'line'} {number}$")
    client.finish()


@cases.case("prefork.socketserver")
def forking_server(stage):
    """A parent that accepts, and a child for each connection."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _FORKING, port, options=OURS)
    server.expect("^ready$")
    lines_come_back(stage, port, upper=True)


@cases.case("socat.fork")
def socat_fork(stage):
    port = harness.free_port()
    server = stage.start("server", "socat", f"TCP4-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr",
                         "EXEC:cat", options=OURS)
    server.await_listening(port)
    lines_come_back(stage, port, upper=False)


_NGINX = """
daemon {daemon};
worker_processes 2;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} {listen};
    location / {{ root {folder}/files; }}
    location /who {{ return 200 "$pid\\n"; }}
  }}
}}
"""

_FETCH = """
import hashlib, http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
for _ in range(3):
    connection.request("GET", "/file")
    answer = connection.getresponse()
    print(answer.status, hashlib.sha256(answer.read()).hexdigest())
connection.close()
"""


def _nginx_path():
    """Not on everybody's path."""
    path = shutil.which("nginx", path="/usr/sbin:" + os.environ.get("PATH", ""))
    if path is None:
        raise harness.Skip("nginx is not installed")
    return path


def _nginx(listen="", daemon="off"):
    def run(stage):
        """A master that listens, workers that accept by epoll and send files."""
        port = harness.free_port()
        folder = os.path.dirname(stage.scratch("x"))
        os.chmod(folder, 0o755)
        os.makedirs(f"{folder}/files")
        with open(f"{folder}/files/file", "wb") as file:
            file.write(bytes(range(256)) * 8000)
        config = stage.scratch("nginx.conf")
        with open(config, "w", encoding="ascii") as file:
            file.write(_NGINX.format(folder=folder, port=port, listen=listen, daemon=daemon))
        user = ["-g", "user root;"] if os.geteuid() == 0 else []
        server = stage.start("nginx", _nginx_path(), "-e", "stderr", "-c", config, *user,
                             options=OURS, privileged=True)
        try:
            if daemon == "on":  # it leaves when it has forked, and listens since before that
                server.process.wait(harness.WAIT_S)
                need(harness.listens("self", port), "the daemon does not listen")
            else:
                server.await_listening(port)
            for turn in range(3):
                client = stage.start(f"client {turn}", "python3", "-c", _FETCH, port, options=OURS)
                for _ in range(3):
                    client.expect("^200 [0-9a-f]{64}$")
                client.finish()
        finally:
            with open(f"{folder}/pid", encoding="ascii") as file:
                os.kill(int(file.read()), signal.SIGTERM)

    return run


cases.add("nginx.workers", _nginx())
cases.add("nginx.reuseport", _nginx(listen="reuseport"))
cases.add("nginx.daemon", _nginx(daemon="on"))


# --- SO_REUSEPORT --------------------------------------------------------------------------------

_SHARES = """
import os, selectors, socket, sys
selector = selectors.DefaultSelector()
for name in sys.argv[2:]:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", int(sys.argv[1])))
    listener.listen(64)
    selector.register(listener, selectors.EVENT_READ, name)
other = socket.socket()
try:
    other.bind(("127.0.0.1", int(sys.argv[1])))
except OSError as error:
    print("without the option:", error.strerror, flush=True)
while True:
    for key, _ in selector.select():
        with key.fileobj.accept()[0] as connection:
            connection.sendall(key.data.encode() + b":" + connection.recv(100))
"""

# One after the other, until each has answered.
_ASKS = """
import socket, sys
missing = set(sys.argv[2:])
while missing:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.sendall(b"hello")
        missing.discard(connection.recv(100).decode().partition(":")[0])
print("all have answered", flush=True)
"""


@cases.case("sockets.reuseport")
def reuse_port(stage):
    """Three listeners on one port, in two processes: the kernel shares the clients out."""
    port = harness.free_port()
    for names in (["one", "two"], ["three"]):
        server = stage.start(" ".join(names), "python3", "-c", _SHARES, port, *names, options=OURS)
        server.expect("without the option: Address already in use")
    client = stage.start("client", "python3", "-c", _ASKS, port, "one", "two", "three",
                         options=OURS)
    client.expect("all have answered")
    client.finish()


# --- Servers of plain TCP clients ----------------------------------------------------------------

_BOTH_KINDS = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
assert listener.getsockname() == ("127.0.0.1", int(sys.argv[1]))
if "child" in sys.argv and os.fork():
    os.wait()
print("ready", flush=True)
while True:
    connection, peer = listener.accept()
    with connection:
        assert connection.getpeername() == peer
        if "first" in sys.argv:
            connection.sendall(b"220 welcome\\n")
        with connection.makefile("rwb") as file:
            for line in file:
                file.write(line.upper())
                file.flush()
"""

_ONE_CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    file = connection.makefile("rwb")
    if "first" in sys.argv:
        print(file.readline().decode().strip())
    file.write(b"hello\\n" * 20000)
    file.flush()
    connection.shutdown(socket.SHUT_WR)
    answers = file.readlines()
    print("right" if answers == [b"HELLO\\n"] * 20000 else answers[:3])
"""


def _fallback(*words):
    def run(stage):
        """Plain clients are served, which is said, and others are as ever."""
        port = harness.free_port()
        server = stage.start("server", "python3", "-c", _BOTH_KINDS, port, *words,
                             options=FALLBACK)
        server.expect("^ready$")
        for turn in range(2):
            read = len(server.lines)
            plain = stage.plain(f"plain {turn}", "python3", "-c", _ONE_CLIENT, port, *words)
            plain.expect("^right$")
            plain.finish()
            server.expect("speaks plain TCP: accepted without RDMA", start=read)
            ours = stage.start(f"ours {turn}", "python3", "-c", _ONE_CLIENT, port, *words,
                               options=OURS)
            ours.expect("^right$")
            ours.finish()
        said = [line for line in server.lines if "speaks plain TCP" in line]
        need(len(said) == 2, f"{len(said)} clients were taken for plain ones, of 2")

    return run


@cases.case("sockets.port_offset")
def port_offset(stage):
    """The programs know nothing of the ports that TCP uses instead."""
    offset = 100
    port = harness.free_port() - offset
    options = (*OURS, "--port-offset", offset)
    server = stage.start("server", "python3", "-c", _BOTH_KINDS, port, options=options)
    server.expect("^ready$")
    need(harness.listens(server.pid, port + offset), "the port was not moved")
    client = stage.start("client", "python3", "-c", _ONE_CLIENT, port, options=options)
    client.expect("^right$")
    client.finish()


cases.add("sockets.serves_plain", _fallback())
cases.add("sockets.speaks_first_to_plain", _fallback("first"))
cases.add("prefork.serves_plain", _fallback("child"))


@cases.case("prefork.from_plain")
def from_plain(stage):
    """Without it they are turned away, and the next is served; one that only listens as well."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _CHILDREN, "block", 1, port, options=OURS,
                         say=True)
    child = server.expect("^children (.*)$")[1]
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.settimeout(harness.WAIT_S)
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        try:
            need(plain.recv(100) == b"", "the plain client got something")
        except ConnectionResetError:
            pass
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.settimeout(harness.WAIT_S)
        need(silent.recv(100) == b"", "the silent client got something")
    need(clients(stage, port, 1) == [child], "another process has answered")
