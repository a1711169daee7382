"""Connections of the C++ library with peers that know nothing of it: Debian's rdma_client and
rdma_server, and a program of ours for librdmacm that shows the private data it gets."""

import cases
import harness
from harness import need

_HOST = "127.0.0.1"
_OF_SERVER, _OF_CLIENT = "welcome, stranger", "anybody there?"


def _ours(stage, name, *arguments):
    """It has the device within itself."""
    return stage.plain(name, harness.companion("connection_peer"), *arguments, privileged=False)


def _need_line(side, line):
    need(line in side.lines, f"{side.name} does not say '{line}'")


@cases.case("rdma_server.of_a_connection")
def rdma_server(stage):
    """The library's side connects."""
    port = harness.free_port()
    server = stage.start("server", "rdma_server", "-s", _HOST, "-p", port)
    server.await_listening(port)
    client = _ours(stage, "client", "ask", _HOST, port, _OF_CLIENT)
    client.finish()
    server.finish()
    _need_line(server, "rdma_server: end 0")
    _need_line(client, "private data of 0 bytes: []")


@cases.case("rdma_client.of_a_connection")
def rdma_client(stage):
    """The library's side listens."""
    port = harness.free_port()
    server = _ours(stage, "server", "serve", _HOST, port, _OF_SERVER)
    server.await_listening(port)
    client = stage.start("client", "rdma_client", "-s", _HOST, "-p", port)
    client.finish()
    server.finish()
    _need_line(client, "rdma_client: end 0")
    _need_line(server, "private data of 0 bytes: []")


def _plain(stage, name, *arguments):
    return stage.start(name, harness.companion("plain_peer"), *arguments)


def _private_data(start_server, start_client):
    def run(stage):
        port = harness.free_port()
        server = start_server(stage, "server", "serve", _HOST, port, _OF_SERVER)
        server.await_listening(port)
        client = start_client(stage, "client", "ask", _HOST, port, _OF_CLIENT)
        client.finish()
        server.finish()
        _need_line(server, f"private data of {len(_OF_CLIENT)} bytes: [{_OF_CLIENT}]")
        _need_line(client, f"private data of {len(_OF_SERVER)} bytes: [{_OF_SERVER}]")
        _need_line(server, "message: from a client")
        _need_line(client, "message: from a server")

    return run


cases.add("connection.private_data_to_a_server", _private_data(_plain, _ours))
cases.add("connection.private_data_to_a_client", _private_data(_ours, _plain))
