"""Under `weft run --sockets`: programs that do with their descriptors, processes and environments
what daemons and shells do: close all that they did not open, move them to numbers of their own,
start programs that inherit them, hand them over to their successors, and rely on the result of
select."""

import os
import pwd
import shutil

import cases
import harness
from harness import need
from services import HAPROXY, OURS, installed, script

_ECHO = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    with listener.accept()[0] as connection:
        while data := connection.recv(1000):
            connection.sendall(data)
"""
_TALKS = """
exec 3<>"/dev/tcp/127.0.0.1/$2"
for number in 4 5 6 7 8 9; do
  eval "exec $number>'$3'"
done
for word in one two three; do
  echo "$word" >&3
  read -r -u 3 answer
  echo "answer: $answer"
done
"""


@cases.case("bash.connection")
def bash(stage):
    """A shell prints to its connection as to its standard output, and has files at low numbers."""
    port, file = harness.free_port(), stage.scratch("file")
    server = stage.start("server", "python3", "-c", _ECHO, port, options=OURS)
    server.await_listening(port)
    client = stage.start("client", installed("bash"), script(stage, "talks.sh", _TALKS), "--port",
                         port, file, options=OURS)
    client.finish()
    server.finish()
    said = [line for line in client.lines if line.startswith("answer")]
    need(said == ["answer: one", "answer: two", "answer: three"], f"the shell has read {said}")
    need(os.path.getsize(file) == 0, "there are bytes in a file that nobody has written to")


@cases.case("inetd.cat")
def inetd(stage):
    """The request and its end may have come before there is a process for it."""
    port, user = harness.free_port(), pwd.getpwuid(os.getuid()).pw_name
    configuration = script(stage, "inetd.conf",
                           f"127.0.0.1:{port} stream tcp nowait {user} /bin/cat cat\n")
    server = stage.start("server", installed("inetd", "/usr/sbin"), "-i", configuration,
                         options=OURS)
    server.await_listening(port)
    for number in range(5):
        client = stage.start(f"client {number}", "nc", "-N", "127.0.0.1", port, options=OURS,
                             say=True)
        client.say(f"request {number}")
        client.end_input()
        client.finish()
        need(f"request {number}" in client.lines, f"the client has got {client.lines}")


_PAGE = "from the server behind the proxy\n" * 2000


def _serve_page(stage):
    """Starts a web server that has a page; returns its port."""
    port = harness.free_port()
    folder = os.path.dirname(script(stage, "page", _PAGE))
    server = stage.start("server", "python3", "-m", "http.server", "--bind", "127.0.0.1", port,
                         "--directory", folder, options=OURS)
    server.await_listening(port)
    return port


def _fetch_page(stage, name, port):
    got = stage.scratch(name)
    stage.start(name, "curl", "-s", "-o", got, f"http://127.0.0.1:{port}/page",
                options=OURS).finish()
    with open(got, encoding="utf-8") as file:
        need(file.read() == _PAGE, f"{name}: the page differs")


@cases.case("varnish.proxy")
def varnish(stage):
    """It listens to try whether it may, then closes all descriptors that it does not know."""
    back, front = _serve_page(stage), harness.free_port()
    proxy = stage.start("proxy", installed("varnishd", "/usr/sbin"), "-F", "-j", "none", "-n",
                        stage.scratch("varnish"), "-a", f"127.0.0.1:{front}", "-b",
                        f"127.0.0.1:{back}", "-s", "malloc,32m", options=OURS)
    proxy.expect("Child launched OK")
    for number in range(3):
        _fetch_page(stage, f"client {number}", front)


@cases.case("haproxy.hands_over")
def haproxy(stage):
    """Each proxy gets its listening socket from the one before, and sends that one away."""
    back, front, control = _serve_page(stage), harness.free_port(), stage.scratch("control")
    command = [installed("haproxy", "/usr/sbin"), "-db", "-f", script(
        stage, "haproxy.cfg", "global\n"
        f"  stats socket {control} mode 600 level admin expose-fd listeners\n" +
        HAPROXY.format(front=front, back=back))]
    proxy = stage.start("proxy", *command, options=OURS)
    proxy.await_listening(front)
    for number in range(3):
        successor = stage.start(f"proxy {number}", *command, "-x", control, "-sf", proxy.pid,
                                options=OURS)
        proxy.finish()
        _fetch_page(stage, f"client {number}", front)
        proxy = successor


@cases.case("sockets.other_library_path")
def other_library_path(stage):
    """R and others set a path of their own, in which the system's libibverbs may come first."""
    folder = os.path.dirname(script(stage, "libibverbs.so.1", "this is no library"))
    program = stage.start("program", "sh", "-c",
                          'LD_LIBRARY_PATH="$0:$LD_LIBRARY_PATH" exec echo started', folder,
                          options=OURS)
    program.finish()
    need("started" in program.lines, f"the program says {program.lines}")


_SERVES = """
import socket, sys
server = socket.socket(fileno=int(sys.argv[1]))
if sys.argv[2] == "bound":
    server.listen()
for _ in range(3):
    with server.accept()[0] as connection:
        while data := connection.recv(1000):
            connection.sendall(data)
"""
_OPENS = """
import os, socket, subprocess, sys, time
port, state, way, program = sys.argv[1:]
server = socket.socket()
server.bind(("127.0.0.1", int(port)))
if state != "bound":
    server.listen()
if state == "found":  # by processes of this host
    time.sleep(0.3)
os.set_inheritable(server.fileno(), True)
command = [sys.executable, "-c", program, str(server.fileno()), state]
if way == "exec":
    os.execv(command[0], command)
if way == "vfork":
    sys.exit(subprocess.run(command, pass_fds=[server.fileno()]).returncode)
if way == "spawn":  # if it listens, with an environment that does not load the library
    child = os.posix_spawn(command[0], command, os.environ if state == "bound" else {})
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if way == "nobody":  # this process goes on with it
    child = os.posix_spawn("/bin/true", ["true"], os.environ,
                           file_actions=[(os.POSIX_SPAWN_DUP2, server.fileno(), 0)])
    os.waitpid(child, 0)
    server.detach()
    sys.argv = command[2:]
    exec(program)
    sys.exit()
command[3] = "0"  # as inetd does for a service that accepts itself
os.set_inheritable(server.fileno(), False)
if way == "spawn_as_input":
    child = os.posix_spawn(command[0], command, os.environ,
                           file_actions=[(os.POSIX_SPAWN_DUP2, server.fileno(), 0)])
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.exit(subprocess.run(command, stdin=server.fileno()).returncode)
"""
_ASKS = """
import socket, sys, time
def connect():
    while True:
        try:
            return socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        except ConnectionRefusedError:
            time.sleep(0.01)
for _ in range(3):
    with connect() as connection:
        for word in (b"one", b"two"):
            connection.sendall(word)
            print("echo", connection.recv(100).decode())
"""


def _inherits(state, way):
    """uvicorn's workers get a socket by vfork, services of systemd's socket activation by exec."""
    def run(stage):
        port = harness.free_port()
        server = stage.start("server", "python3", "-c", _OPENS, port, state, way, _SERVES,
                             options=OURS)
        client = stage.start("client", "python3", "-c", _ASKS, port, options=OURS)
        client.finish()
        server.finish()
        said = [line for line in client.lines if line.startswith("echo")]
        need(said == ["echo one", "echo two"] * 3, f"the client has got {said}")
    return run


for _state in ("bound", "listening", "found"):
    for _way in ("exec", "vfork", "vfork_as_input", "spawn", "spawn_as_input", "nobody"):
        cases.add(f"sockets.{_state}_and_inherited_by_{_way}", _inherits(_state, _way))


_BINDS_AS_ROOT = """
import os, socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.socket()
for port in range(1023, 600, -1):
    try:
        client.bind(("127.0.0.1", port))
        break
    except OSError:
        pass
os.setuid(65534)
client.connect(server.getsockname())
accepted = server.accept()[0]
accepted.sendall(b"connected")
print(client.recv(100).decode())
"""


@cases.case("sockets.bound_before_root_is_given_up")
def bound_before_root_is_given_up(stage):
    """FTP servers bind to port 20 as root, and connect as the user."""
    if os.geteuid() != 0:
        raise harness.Skip("it is started by root")
    program = stage.start("program", "python3", "-c", _BINDS_AS_ROOT, options=OURS,
                          privileged=True)
    program.finish()
    need("connected" in program.lines, f"the program says {program.lines}")


_ISOLATES = """
import ctypes, errno, os, signal, socket
server = socket.create_server(("127.0.0.1", 0))
number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
CLONE_NEWIPC = 0x08000000
library = ctypes.CDLL(None, use_errno=True)
child = library.syscall(number, CLONE_NEWIPC | signal.SIGCHLD, 0, 0, 0, 0)
print(child, errno.errorcode[ctypes.get_errno()])
"""


@cases.case("sockets.isolated_child")
def isolated_child(stage):
    """vsftpd makes a child by clone with namespaces of its own, and by fork where it cannot."""
    program = stage.start("program", "python3", "-c", _ISOLATES, options=OURS)
    program.finish()
    need("-1 EINVAL" in program.lines, f"the program says {program.lines}")
    need(any("namespaces" in line for line in program.lines), "there is no line that says why")


_LIMITS_ITSELF = """
import os, resource, socket, sys
limit = 200 << 20
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    for _ in range(3):
        connection, _ = server.accept()
        if os.fork() == 0:
            for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
                resource.setrlimit(kind, (limit, limit))
                assert resource.getrlimit(kind) == (limit, limit)
            memory = bytearray(100 << 20)
            connection.sendall(b"has memory: " + connection.recv(100))
            os._exit(0)
        connection.close()
        assert os.wait()[1] == 0
"""
_ASKS_THRICE = """
import socket, sys
for i in range(3):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
        server.sendall(b"%d" % i)
        print(server.recv(100).decode())
"""


@cases.case("sockets.limited_memory")
def limited_memory(stage):
    """A server limits the memory of its children to what they need themselves, as vsftpd does."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _LIMITS_ITSELF, port,
                         options=("--sockets=always",))
    server.await_listening(port)
    client = stage.start("client", "python3", "-c", _ASKS_THRICE, port,
                         options=("--sockets=always",))
    client.finish()
    server.finish()
    need(all(f"has memory: {i}" in client.lines for i in range(3)),
         f"the client says {client.lines}")


_IS_FULL = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1) as server:
    begin = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    begin.bind(("127.0.0.1", int(sys.argv[1])))
    begin.recv(1)
    clients = [server.accept()[0] for _ in range(6)]
    for client in clients:
        client.sendall(b"x")
    for client in clients:
        client.recv(1)
"""
# Some wait until their requests have timed out once, which the kernel's TCP would repeat.
_WAITS_FOR_ROOM = """
import os, select, socket, sys
address = ("127.0.0.1", int(sys.argv[1]))
waiting = select.poll()
clients, connected = {}, []
for _ in range(6):
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(address)
    clients[client.fileno()] = client
    waiting.register(client, select.POLLOUT)
begun = False
while clients:
    found = waiting.poll(60000 if begun else 16000)
    if not found:
        assert not begun, "no room for some"
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", address)
        begun = True
    for number, _ in found:
        client = clients.pop(number)
        waiting.unregister(number)
        error = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        assert error == 0, os.strerror(error)
        connected.append(client)
for client in connected:
    client.setblocking(True)
    assert client.recv(1) == b"x"
print("all were accepted")
"""


@cases.case("sockets.full_backlog", timeout_s=150)
def full_backlog(stage):
    """Clients of a listener whose queue is full wait for room, as with the kernel's TCP."""
    port = harness.free_port()
    server = stage.start("server", "python3", "-c", _IS_FULL, port, options=("--sockets=always",))
    server.await_listening(port)
    client = stage.start("client", "python3", "-c", _WAITS_FOR_ROOM, port,
                         options=("--sockets=always",))
    client.finish(within_s=100)
    need("all were accepted" in client.lines, f"the client says {client.lines}")


_STARTS_LATE = """
import socket, sys
for port in sys.argv[1:]:
    with socket.create_server(("127.0.0.1", int(port))) as server:
        server.accept()[0].close()
"""
_TRIES = """
import socket, sys
for port in sys.argv[1:]:
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(port))).close()
            break
        except ConnectionRefusedError:
            pass
print("all were there")
"""


@cases.case("sockets.tries_until_there")
def tries_until_there(stage):
    """A server that has just begun to listen is not taken for one that speaks plain TCP."""
    ports = [harness.free_port() for _ in range(50)]
    client = stage.start("client", "python3", "-c", _TRIES, *ports, options=OURS)
    server = stage.start("server", "python3", "-c", _STARTS_LATE, *ports, options=OURS)
    server.finish()
    client.finish()
    need("all were there" in client.lines, f"the client says {client.lines}")


_DOVECOT = """
base_dir = {folder}/run
log_path = /dev/stderr
protocols = imap
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{folder}/mail
first_valid_uid = 1
service imap-login {{
  chroot =
  inet_listener imap {{
    address = 127.0.0.1
    port = {port}
  }}
}}
service anvil {{
  chroot =
}}
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}
}}
"""
_MAIL = """
import imaplib, sys
for _ in range(3):
    mail = imaplib.IMAP4("127.0.0.1", int(sys.argv[2]))
    mail.login("somebody", "secret")
    mail.append("INBOX", None, None, b"Subject: a message\\r\\n\\r\\n" + b"x" * 50000)
    mail.select()
    print("bytes", len(mail.fetch("1", "(RFC822)")[1][0][1]))
    mail.logout()
"""


@cases.case("dovecot.imap")
def dovecot(stage):
    """The processes that accept get the listening socket, and an environment of their own."""
    if os.geteuid() != 0:
        raise harness.Skip("it is started by root")
    other = pwd.getpwnam("nobody")
    folder, port = stage.scratch("dovecot"), harness.free_port()
    os.mkdir(folder)
    os.chmod(os.path.dirname(folder), 0o711)  # for the process that has the mailbox
    shutil.chown(folder, other.pw_uid, other.pw_gid)
    configuration = script(stage, "dovecot.conf", _DOVECOT.format(
        folder=folder, port=port, uid=other.pw_uid, gid=other.pw_gid))
    server = stage.start("server", installed("dovecot", "/usr/sbin"), "-F", "-c", configuration,
                         options=OURS, privileged=True)
    server.await_listening(port)
    client = stage.start("client", "python3", script(stage, "mail.py", _MAIL), "--port", port,
                         options=OURS)
    client.finish()
    need(client.lines.count("bytes 50022") == 3, f"the client says {client.lines}")


@cases.case("erlang.nodes")
def erlang(stage):
    """Its port mapper ends if there is no client although select has said so."""
    port, home = harness.free_port(), stage.scratch("home")
    os.mkdir(home)
    env = {"ERL_EPMD_PORT": str(port), "HOME": home}
    mapper = stage.start("mapper", installed("epmd"), "-port", port, options=OURS, env=env)
    mapper.await_listening(port)
    node = [installed("erl"), "-noshell", "-start_epmd", "false", "-setcookie", "weft", "-name"]
    server = stage.start("server", *node, "server@127.0.0.1", "-eval",
                         'io:format("ready~n").', options=OURS, env=env)
    server.expect("^ready$")
    ask = ("rpc:call('server@127.0.0.1', lists, seq, [1, 100000])")
    client = stage.start("client", *node, "client@127.0.0.1", "-eval",
                         f'io:format("~p numbers~n", [length({ask})]), halt().', options=OURS,
                         env=env)
    client.expect("^100000 numbers$")
    client.finish()
