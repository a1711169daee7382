"""The hostile peer of hostile.py against programs that know nothing of Weft, and that serve several
clients: rping's persistent server, and Redis under `--sockets`. Their next client is served."""

import random

import cases
import harness
import rdmacm_utils
from harness import need
from hostile import Mutator, Peer, mpa_request

_HOST = "127.0.0.1"
_CONVERSATIONS = 600
_REGIONS = [(0, 0, 4096)]  # programs announce theirs in messages, so this is a guess


def _attack(server, converse, serve):
    """`converse(chosen, mutator)` is one conversation at random."""
    for number in range(_CONVERSATIONS):
        seed = f"{harness.seed()} {number}"
        converse(random.Random(seed), Mutator(seed, _REGIONS))
        need(server.process.poll() is None, f"the server ended in conversation {number}")
        if number % 50 == 49:
            serve()


@cases.case("hostile.rping", timeout_s=600, sanitized=True)
def rping(stage):
    """Against a program of rdma_cm that reads and writes the memory of its clients. By its own rule
    it ends where a client leaves between its request and its first FPDU, so none does that here."""
    port = harness.free_port()
    server = stage.start("server", "rping", "-s", "-P", "-a", _HOST, "-p", port)
    server.await_listening(port)

    def converse(chosen, mutator):
        with Peer(port) as peer:
            if chosen.random() < .3:
                peer.send(mutator.damaged(mpa_request())[1:])
            else:
                peer.enter(regions=False)
                peer.send(mutator.conversation())
            if chosen.random() < .8:
                peer.rest()

    def serve():
        client = stage.start("client", "rping", "-c", "-a", _HOST, "-p", port, "-C", 10, "-v", "-V")
        client.finish()
        rdmacm_utils.need_pings(client, "ping data:", 10)

    _attack(server, converse, serve)


@cases.case("hostile.redis", timeout_s=600, sanitized=True)
def redis(stage):
    """Against a TCP program, whose clients may be plain or speak Weft's streams."""
    port = harness.free_port()
    server = stage.start("server", "redis-server", "--port", port, "--bind", _HOST, "--save", "",
                         options=("--sockets=fallback",))
    server.expect("Ready to accept connections")
    ask = ("redis-cli", "-p", port, "PING")

    def converse(chosen, mutator):
        request = mpa_request(private=chosen.randbytes(chosen.randrange(60)))
        with Peer(port) as peer:
            peer.socket.settimeout(1)  # a plain client of Redis may get no answer
            if chosen.random() < .5:
                request = mutator.damaged(request)
            peer.send(request + mutator.conversation())
            if chosen.random() < .8:
                peer.rest()

    def serve():
        stage.plain("plain client", *ask).expect("^PONG$")
        stage.start("client", *ask, options=("--sockets=always",)).expect("^PONG$")

    _attack(server, converse, serve)
