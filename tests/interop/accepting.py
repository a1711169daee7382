"""What must not stop accept(2) under `weft run --sockets`: malformed requests, clients that have
sent nothing yet, and too few descriptors."""

import socket
import struct
import time

import cases
import harness
from harness import need
from prefork import clients

OURS = ("--sockets",)
FALLBACK = ("--sockets=fallback",)

# A child accepts from the socket of its parent: `blocks` in accept(2), or `polls`. It echoes.
_CHILD = """
import os, select, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128)
if os.fork() > 0:
    os.wait()
    sys.exit()
listener.setblocking(sys.argv[2] == "blocks")
print("ready", flush=True)
while True:
    if sys.argv[2] == "polls":
        select.select([listener], [], [])
    try:
        client, _ = listener.accept()
    except BlockingIOError:
        continue
    client.setblocking(True)
    with client:
        client.sendall(b"%d:" % os.getpid() + client.recv(100))
"""


def _mpa_request(flags, revision, length):
    return b"MPA ID Req Frame" + struct.pack(">BBH", flags, revision, length)


# Whole requests that a device refuses: private data that is too long, an unknown revision, and
# enhanced private data that is missing.
_MALFORMED = (_mpa_request(0x40, 1, 0xFFFF), _mpa_request(0x40, 7, 0), _mpa_request(0x50, 2, 0))


def _malformed_requests(manner):
    def run(stage):
        """Malformed requests do not delay the client that comes behind them: were accept(2) to wait
        five seconds for each, the client would not be served in time."""
        port = harness.free_port()
        server = stage.start("server", "python3", "-c", _CHILD, port, manner, options=OURS)
        server.expect("^ready$")
        for number in range(24):
            with socket.create_connection(("127.0.0.1", port)) as malformed:
                malformed.sendall(_MALFORMED[number % len(_MALFORMED)])
        need(len(clients(stage, port, 1)) == 1, "the client was not served")

    return run


for _manner in ("blocks", "polls"):
    cases.add(f"accepting.malformed_requests_{_manner}", _malformed_requests(_manner))


# Children accept one client each time that the socket is readable, or block in accept(2). Each
# client is greeted first. `trusts`: a child does not expect accept(2) to block then, and answers
# lines of its input as well.
_GREETERS = """
import os, select, signal, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128)
children = []
for _ in range(int(sys.argv[3])):
    children.append(os.fork())
    if children[-1] == 0:
        break
else:
    print("ready", flush=True)
    os.wait()
    sys.exit()
listener.setblocking(sys.argv[2] != "polls")
sources = [listener] + [sys.stdin] * (sys.argv[2] == "trusts")
while True:
    if sys.argv[2] != "blocks" and listener not in select.select(sources, [], [])[0]:
        print("reads", sys.stdin.readline().strip(), flush=True)
        continue
    try:
        client, _ = listener.accept()
    except BlockingIOError:
        continue
    client.sendall(b"welcome")
    client.close()
"""


def _silent_clients(manner, children):
    def run(stage):
        """Silent clients of plain TCP that come at once are all greeted, although no further client
        comes that would make the socket readable."""
        port = harness.free_port()
        server = stage.start("server", "python3", "-c", _GREETERS, port, manner, children,
                             options=FALLBACK, say=True)
        server.expect("^ready$")
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
        for number, client in enumerate(silent):
            with client:
                client.settimeout(harness.WAIT_S / 2)
                try:
                    need(client.recv(100) == b"welcome", f"client {number} was not greeted")
                except TimeoutError:
                    raise harness.Failure(f"client {number} was not greeted in time") from None
        if manner == "trusts":
            server.say("line")
            server.expect("^reads line$")

    return run


for _manner, _children in (("blocks", 1), ("blocks", 3), ("polls", 1), ("polls", 3), ("trusts", 1)):
    cases.add(f"accepting.silent_clients_{_manner}_{_children}",
              _silent_clients(_manner, _children))


_FORKS_FIRST = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
parent, child = socket.socketpair()
if os.fork() == 0:  # as for a connection: it does not accept, and lives on
    listener.close()
    parent.close()
    child.recv(1)
    os._exit(0)
child.close()
print("ready", flush=True)
for _ in range(2):
    with listener.accept()[0] as client:
        client.sendall(b"welcome")
parent.close()
os.wait()
"""


@cases.case("accepting.silent_clients_of_a_forking_server")
def forking_server(stage):
    """A server that forks for each connection and speaks first greets a silent client of plain TCP,
    although no further client comes."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _FORKS_FIRST, port, options=FALLBACK)
    server.expect("^ready$")
    for turn in range(2):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(harness.WAIT_S / 2)
            try:
                need(client.recv(100) == b"welcome", "a client was not greeted")
            except TimeoutError:
                raise harness.Failure(f"client {turn} was not greeted in time") from None
    server.finish()


# Accepts one client, lowers its limit of descriptors, and fails to accept the next one until the
# limit is back. `ahead`: that client is connected before the limit is lowered.
_AT_THE_LIMIT = """
import errno, resource, select, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
first = listener.accept()[0]
first.sendall(b"first")
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if sys.argv[2] == "ahead":
    print("next", flush=True)
    select.select([listener], [], [])
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
print("next" if sys.argv[2] == "later" else "limited", flush=True)
for blocks in (True, False):
    select.select([listener], [], [])
    listener.setblocking(blocks)
    try:
        listener.accept()
    except OSError as error:
        print("fails with", errno.errorcode[error.errno], flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
listener.setblocking(True)
second = listener.accept()[0]
second.recv(100)  # or its close(2) would reset the connection
second.sendall(b"second")
"""

_TWO_CLIENTS = """
import socket, sys
for word in ("first", "second"):
    sys.stdin.readline()
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as client:
        client.sendall(b"hello")
        print("got", client.recv(100).decode(), flush=True)
"""


def _at_the_limit(when, kind):
    def run(stage):
        """Without a free descriptor accept(2) fails with EMFILE, whether it blocks or not, and the
        client is accepted when there is one again."""
        port = harness.free_port()
        server = stage.start("server", "python3", "-c", _AT_THE_LIMIT, port, when, options=FALLBACK)
        server.expect("^ready$")
        program = ("python3", "-c", _TWO_CLIENTS, port)
        client = (stage.plain("client", *program, say=True) if kind == "plain" else
                  stage.start("client", *program, say=True, options=("--sockets=always",)))
        client.say("")
        client.expect("^got first$")
        server.expect("^next$")
        client.say("")
        client.expect("^got second$")
        client.finish()
        server.finish()
        said = [line for line in server.lines if line.startswith("fails")]
        need(said == ["fails with EMFILE"] * 2, f"at the limit accept(2) {said}")

    return run


for _when in ("ahead", "later"):
    for _kind in ("plain", "stream"):
        cases.add(f"accepting.no_descriptor_{_when}_{_kind}", _at_the_limit(_when, _kind))


# At the limit of descriptors, prints the processor time of all its threads during two seconds.
_IDLE_AT_THE_LIMIT = """
import resource, select, socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print("limited", flush=True)
sys.stdin.readline()
before = time.process_time()
select.select([], [], [], 2)
print("used", time.process_time() - before, flush=True)
"""


def _await_listener(name):
    """Until a local socket with this name in the abstract namespace listens."""
    listens = "00010000"  # in the column of flags: __SO_ACCEPTCON of the kernel
    end = time.monotonic() + harness.WAIT_S
    while True:
        with open("/proc/net/unix", encoding="ascii", errors="replace") as file:
            if any(words[3] == listens and words[-1] == "@" + name for words in
                   map(str.split, file)):
                return
        need(time.monotonic() < end, f"there is no local socket {name}")
        time.sleep(0.005)


@cases.case("accepting.no_descriptor_for_an_offer")
def no_descriptor_for_offer(stage):
    """A process that has no descriptor for a client of its offer (KernelOffers) sleeps: it uses the
    processor for less than a tenth of the time."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _IDLE_AT_THE_LIMIT, port, options=OURS,
                         say=True)
    server.expect("^listens$")
    name = f"weft-kernel-brief/127.0.0.1,{port}"
    _await_listener(name)
    server.say("")
    server.expect("^limited$")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect("\0" + name)
        server.say("")
        used = float(server.expect("^used (.*)$")[1])
    server.finish()
    need(used < 0.2, f"the process has used the processor for {used} s of 2 s")
