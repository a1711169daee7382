"""Servers and clients under `weft run --sockets`, each with the ways of waiting of its own run-time
system: PostgreSQL, rsync, HAProxy, Node.js, Java, asyncio, MariaDB, Apache httpd, OpenSSH,
and etcd, which cannot be served."""

import filecmp
import hashlib
import os
import pwd
import random
import re
import shutil
import signal

import cases
import harness
from harness import need

OURS = ("--sockets",)


def installed(program, *folders):
    """As harness.installed(), also in folders that are not on the path of every user."""
    found = shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))
    if found is None:
        raise harness.Skip(f"{program} is not installed")
    return found


def as_other_user():
    """What to put before a program that does not run as root."""
    if os.geteuid() != 0:
        return []
    user = ["unshare", "--user"]
    if not harness.succeeds(*user, "true"):
        raise harness.Skip("it does not run as root, and there are no user namespaces")
    return user


def _pgbench(options, stage):
    folder = "/usr/lib/postgresql/15/bin"
    server_program, client_program = (installed(name, folder) for name in ("postgres", "pgbench"))
    user, port, data = as_other_user(), harness.free_port(), stage.scratch("data")
    make = stage.plain("initdb", *user, installed("initdb", folder), "-D", data, "-U", "postgres",
                       "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
    make.finish(within_s=120)
    server = stage.start("server", *user, server_program, "-D", data, "-h", "127.0.0.1", "-p", port,
                         "-c", "unix_socket_directories=", "-c", "fsync=off", options=options)
    server.expect("ready to accept connections")
    common = ["-h", "127.0.0.1", "-p", port, "-U", "postgres"]
    fill = stage.start("fill", client_program, *common, "-i", "-s", "1", "postgres",
                       options=options)
    fill.finish(within_s=120)
    for name, *how in (("select", "-S", "-t", "100"), ("write", "-t", "20"),
                       ("connect", "-S", "-C", "-t", "5")):
        client = stage.start(name, client_program, *common, "-c", "4", *how, "postgres",
                             options=options)
        client.finish(within_s=120)
        need(re.search(r"number of failed transactions: 0 ", client.output), "transactions failed")
        need(re.search(r"processed: (\d+)/\1", client.output), "transactions are missing")
    server.signal(signal.SIGINT)
    server.finish(status=None)


@cases.case("postgresql.pgbench", timeout_s=240)
def pgbench(stage):
    """The server forks for each connection, so all of them are left to the kernel."""
    _pgbench(OURS, stage)


@cases.case("postgresql.pgbench_streams", timeout_s=240)
def pgbench_streams(stage):
    """Each connection runs through a relay in the server's first process."""
    _pgbench(("--sockets=always",), stage)


@cases.case("rsync.daemon")
def rsync(stage):
    """A daemon that forks for each client; many small files and a large one, there and back."""
    source = stage.scratch("source")
    os.makedirs(source)
    noise = random.Random(harness.seed())
    for number in range(100):
        with open(os.path.join(source, f"file{number}"), "wb") as file:
            file.write(noise.randbytes(number * 100))
    with open(os.path.join(source, "large"), "wb") as file:
        file.write(noise.randbytes(3_000_000))
    configuration = stage.scratch("rsyncd.conf")
    os.makedirs(stage.scratch("written"))
    with open(configuration, "w", encoding="utf-8") as file:
        file.write(f"use chroot = no\n[source]\npath = {source}\n"
                   f"[written]\npath = {stage.scratch('written')}\nread only = no\n")
    port = harness.free_port()
    harness.installed("rsync")
    # As root it would change its groups, which takes a capability.
    server = stage.start("server", *as_other_user(), "rsync", "--daemon", "--no-detach",
                         f"--port={port}", f"--config={configuration}", "--address=127.0.0.1",
                         options=OURS)
    server.await_listening(port)
    reach = [f"--port={port}", "-r"]
    stage.start("read", "rsync", *reach, "rsync://127.0.0.1/source/",
                stage.scratch("read"), options=OURS).finish()
    stage.start("write", "rsync", *reach, f"{source}/", "rsync://127.0.0.1/written/",
                options=OURS).finish()
    names = os.listdir(source)
    for copy in (stage.scratch("read"), stage.scratch("written")):
        _, wrong, missing = filecmp.cmpfiles(source, copy, names, shallow=False)
        need(not wrong and not missing, f"wrong: {wrong}, missing: {missing}")


_NODE = """
const http = require('http'), port = +process.argv[4];
const wanted = i => 'got ' + i * 1000 + ' ' + 'x'.repeat(100000);
if (process.argv[2] === 'serve') {
  http.createServer((request, answer) => {
    let bytes = 0;
    request.on('data', data => bytes += data.length);
    request.on('end', () => answer.end('got ' + bytes + ' ' + 'x'.repeat(100000)));
  }).listen(port, '127.0.0.1');
} else {
  const agent = new http.Agent({keepAlive: true, maxSockets: 8});
  let left = 50;
  for (let i = 0; i < 50; i++) {
    http.request({port, host: '127.0.0.1', method: 'POST', agent}, answer => {
      let text = '';
      answer.on('data', data => text += data);
      answer.on('end', () => {
        if (text !== wanted(i)) throw Error('a wrong answer of ' + text.length);
        if (--left > 0) return;
        console.log('all were answered');
        agent.destroy();
      });
    }).end('y'.repeat(i * 1000));
  }
}
"""


def script(stage, name, text):
    """The path of a file with this text."""
    path = stage.scratch(name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _node(stage, role, port):
    return stage.start(role, "node", script(stage, "http.js", _NODE), role, "--port", port,
                       options=OURS)


@cases.case("node.http")
def node(stage):
    """libuv, at both ends; connections that stay open for several requests."""
    port = harness.free_port()
    _node(stage, "serve", port).await_listening(port)
    client = _node(stage, "ask", port)
    client.finish()
    need("all were answered" in client.output, "answers are missing")


HAPROXY = """
global
  maxconn 100
defaults
  mode http
  timeout connect 20s
  timeout client 60s
  timeout server 60s
frontend front
  bind 127.0.0.1:{front}
  default_backend back
backend back
  server one 127.0.0.1:{back}
"""


@cases.case("haproxy.http")
def haproxy(stage):
    """A proxy whose both sides are streams, between a client and a server of Node.js."""
    back, front = harness.free_port(), harness.free_port()
    _node(stage, "serve", back).await_listening(back)
    configuration = script(stage, "haproxy.cfg", HAPROXY.format(front=front, back=back))
    proxy = stage.start("proxy", installed("haproxy", "/usr/sbin"), "-db", "-f", configuration,
                        options=OURS)
    proxy.await_listening(front)
    client = _node(stage, "ask", front)
    client.finish()
    need("all were answered" in client.output, "answers are missing")


_ASYNCIO = """
import asyncio, sys

async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def ask(port, number):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    piece = bytes([number]) * (1000 * number + 1)
    async def send():
        for _ in range(20):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    sending = asyncio.create_task(send())
    assert await reader.read(-1) == piece * 20
    await sending
    writer.close()
    await writer.wait_closed()

async def main(role, port):
    if role == "serve":
        await (await asyncio.start_server(echo, "127.0.0.1", port)).serve_forever()
    await asyncio.gather(*(ask(port, number) for number in range(1, 41)))
    print("all came back")

asyncio.run(main(sys.argv[1], int(sys.argv[3])))
"""


@cases.case("asyncio.echo")
def asyncio(stage):
    program, port = script(stage, "echo.py", _ASYNCIO), harness.free_port()
    server = stage.start("serve", "python3", program, "serve", "--port", port, options=OURS)
    server.await_listening(port)
    client = stage.start("ask", "python3", program, "ask", "--port", port, options=OURS)
    client.finish()
    need("all came back" in client.output, "bytes are missing")


_JAVA = """
import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.util.*;

public class Echo {
  public static void main(String[] words) throws Exception {
    int port = Integer.parseInt(words[2]);
    if (words[0].equals("serve")) serve(port); else ask(port);
  }
  static void serve(int port) throws Exception {
    Selector selector = Selector.open();
    ServerSocketChannel listener = ServerSocketChannel.open();
    listener.bind(new InetSocketAddress("127.0.0.1", port));
    listener.configureBlocking(false);
    listener.register(selector, SelectionKey.OP_ACCEPT);
    ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
    while (true) {
      selector.select();
      for (SelectionKey key : selector.selectedKeys()) {
        SocketChannel channel =
            key.isAcceptable() ? listener.accept() : (SocketChannel) key.channel();
        if (channel == null) continue;
        if (key.isAcceptable()) {
          channel.configureBlocking(false);
          channel.register(selector, SelectionKey.OP_READ);
          continue;
        }
        buffer.clear();
        if (channel.read(buffer) < 0) { channel.close(); continue; }
        buffer.flip();
        while (buffer.hasRemaining()) channel.write(buffer);
      }
      selector.selectedKeys().clear();
    }
  }
  static void ask(int port) throws Exception {
    List<Thread> threads = new ArrayList<>();
    for (int number = 0; number < 8; ++number) {
      byte[] sent = new byte[10000 * number + 1], got = new byte[sent.length];
      new Random(number).nextBytes(sent);
      threads.add(new Thread(() -> {
        try (Socket socket = new Socket("127.0.0.1", port)) {
          for (int i = 0; i < 20; ++i) {
            socket.getOutputStream().write(sent);
            new DataInputStream(socket.getInputStream()).readFully(got);
            if (!Arrays.equals(sent, got)) throw new IOException("other bytes came back");
          }
          socket.shutdownOutput();
          if (socket.getInputStream().read() != -1) throw new IOException("no end");
          System.out.println("came back");
        } catch (IOException error) {
          error.printStackTrace();
        }
      }));
      threads.get(number).start();
    }
    for (Thread thread : threads) thread.join();
  }
}
"""


@cases.case("java.sockets", timeout_s=240)
def java(stage):
    """A selector at the server, blocking sockets in threads at the client."""
    if not harness.succeeds(harness.installed("java"), "--list-modules"):
        raise harness.Skip("java does not start")
    source, port = script(stage, "Echo.java", _JAVA), harness.free_port()
    server = stage.start("serve", "java", source, "serve", "--port", port, options=OURS)
    server.await_listening(port, within_s=120)
    client = stage.start("ask", "java", source, "ask", "--port", port, options=OURS)
    client.finish(within_s=120)
    need(client.output.count("came back\n") + client.output.endswith("came back") >= 8,
         "bytes are missing")


@cases.case("mariadb.slap", timeout_s=240)
def mariadb(stage):
    """A thread for each connection, which sleeps in poll."""
    folders = ("/usr/sbin", "/usr/bin")
    install, server_program, slap, admin = (
        installed(name, *folders)
        for name in ("mariadb-install-db", "mariadbd", "mariadb-slap", "mariadb-admin"))
    data, port = stage.scratch("data"), harness.free_port()
    # It runs as root if that is asked for.
    user = ["--user=root"] if os.geteuid() == 0 else []
    stage.plain("install", install, "--no-defaults", f"--datadir={data}", "--skip-test-db",
                "--auth-root-authentication-method=normal", *user).finish(within_s=120)
    server = stage.start("server", server_program, "--no-defaults", *user, f"--datadir={data}",
                         f"--port={port}", "--bind-address=127.0.0.1",
                         f"--socket={stage.scratch('socket')}",
                         f"--pid-file={stage.scratch('pid')}",
                         options=OURS)
    server.expect("ready for connections", within_s=60)
    common = ("--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-P", port, "-u", "root")
    client = stage.start("slap", slap, *common, "--auto-generate-sql", "--concurrency=8",
                         "--number-of-queries=1000", options=OURS)
    client.finish(within_s=120)
    need("Number of clients running queries: 8" in client.output, "no result")
    stage.start("shutdown", admin, *common, "shutdown", options=OURS).finish()
    server.finish(within_s=60)


_HTTPD = """
ServerRoot {folder}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {folder}/pid
ErrorLog /dev/stderr
DocumentRoot {folder}/files
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
StartServers 2
"""

_FETCH = """
import hashlib, http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
for _ in range(5):
    connection.request("GET", "/file")
    print(hashlib.sha256(connection.getresponse().read()).hexdigest())
"""


@cases.case("httpd.event")
def httpd(stage):
    """Threads in several processes, which share the listening socket: left to the kernel."""
    program, port = installed("apache2", "/usr/sbin"), harness.free_port()
    folder = os.path.dirname(stage.scratch("httpd.conf"))
    os.makedirs(os.path.join(folder, "files"))
    data = random.Random(harness.seed()).randbytes(300_000)
    with open(os.path.join(folder, "files", "file"), "wb") as file:
        file.write(data)
    configuration = script(stage, "httpd.conf", _HTTPD.format(folder=folder, port=port))
    # Its children drop root's rights where it has them, and could not read the files.
    server = stage.start("server", *as_other_user(), program, "-f", configuration, "-DFOREGROUND",
                         options=OURS)
    server.await_listening(port)
    client = stage.start("client", "python3", "-c", _FETCH, port, options=OURS)
    client.finish()
    need(client.output.count(hashlib.sha256(data).hexdigest()) == 5, "the file differs")
    server.signal(signal.SIGTERM)
    server.finish(status=None)


_REVERSE = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as file:
        connection.sendall(file.read()[::-1])
"""


@cases.case("openssh.forwarding")
def openssh(stage):
    """sshd forks and runs itself again for each client: the first is a stream, others the kernel's.

    A session would start a shell, which the user has not that it runs as here."""
    sshd, ssh, keygen = (installed(name, "/usr/sbin") for name in ("sshd", "ssh", "ssh-keygen"))
    user = as_other_user()
    name = pwd.getpwuid(65534 if user else os.geteuid()).pw_name
    host_key, user_key = stage.scratch("host"), stage.scratch("user")
    port, behind = harness.free_port(), harness.free_port()
    for key in (host_key, user_key):
        stage.plain("key", keygen, "-q", "-t", "ed25519", "-N", "", "-f", key).finish()
    options = {"ListenAddress": "127.0.0.1", "AuthorizedKeysFile": user_key + ".pub",
               "StrictModes": "no", "UsePAM": "no", "PidFile": "none"}
    server = stage.start("server", *user, sshd, "-D", "-e", "-f", "/dev/null", "-h", host_key, "-p",
                         port, *(word for option, value in options.items()
                                 for word in ("-o", f"{option}={value}")), options=OURS)
    server.expect("Server listening on 127.0.0.1")
    stage.start("behind", "python3", "-c", _REVERSE, behind,
                options=OURS).await_listening(behind)
    data = random.Random(harness.seed()).randbytes(300_000)
    source, copy = stage.scratch("source"), stage.scratch("copy")
    with open(source, "wb") as file:
        file.write(data)
    for number in range(3):
        client = stage.start(f"client {number}", "sh", "-c", 'exec "$@" <"$0" >"$COPY"', source,
                             ssh, "-F", "none", "-i", user_key, "-p", port, "-l", name, "-W",
                             f"127.0.0.1:{behind}", "-o", "LogLevel=ERROR", "-o",
                             "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                             "127.0.0.1", options=OURS, env={"COPY": copy})
        client.finish()
        with open(copy, "rb") as file:
            need(file.read() == data[::-1], "what came back differs")
        server.expect(f"Accepted publickey for {name} from 127.0.0.1 port [1-9]")


@cases.case("etcd.kernel")
def etcd(stage):
    """A Go program calls the kernel itself, which is said; it works as without Weft."""
    server_program, tool = harness.installed("etcd"), harness.installed("etcdctl")
    port, peers = harness.free_port(), harness.free_port()
    address = f"http://127.0.0.1:{port}"
    server = stage.start("server", server_program, "--data-dir", stage.scratch("data"),
                         "--listen-client-urls", address, "--advertise-client-urls", address,
                         "--listen-peer-urls", f"http://127.0.0.1:{peers}", options=OURS)
    server.expect("is a Go program, .*its sockets stay the kernel's TCP")
    server.await_listening(port)
    env = {"ETCDCTL_API": "3"}
    common = (tool, f"--endpoints=127.0.0.1:{port}")
    stage.start("put", *common, "put", "thread", "weft", options=OURS, env=env).finish()
    stage.start("get", *common, "get", "thread", options=OURS, env=env).expect("^weft$")
    server.signal(signal.SIGTERM)
    server.finish(status=None)
