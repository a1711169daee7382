"""Servers and clients under `weft run --sockets`, each with the ways of waiting of its own run-time
system: PostgreSQL, rsync, HAProxy, Node.js, Java, Python's asyncio."""

import filecmp
import os
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


_HAPROXY = """
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
    configuration = script(stage, "haproxy.cfg", _HAPROXY.format(front=front, back=back))
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
