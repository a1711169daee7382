#!/usr/bin/env python3
"""A parameter server: workers fit a line together, and the model moves by remote reads and writes.

The server's program computes only when a worker has written its gradient: the workers fetch the
model from the server's memory, and write into a place of their own there. Needs numpy.
"""

import threading
from typing import List

import numpy
from weft.connection import Access, Listener, Options, connect

WORKERS, ROUNDS, SIZE = 3, 30, 2
OPTIONS = Options(advertisements=True)


def serve(listener, result):
    """Adds up the gradients of each round, and says by a send that the model is new."""
    model = numpy.zeros(SIZE)
    peers = []
    for _ in range(WORKERS):
        peer = listener.accept(timeout=60)
        gradient, done = peer.register(numpy.zeros(SIZE), Access.REMOTE_WRITE), peer.allocate(1)
        peer.post_receive(done)
        peer.advertise(peer.register(model, Access.REMOTE_READ), tag=0)
        peer.advertise(gradient, tag=1)
        peers.append((peer, gradient, done))
    for _ in range(ROUNDS):
        for peer, gradient, done in peers:
            peer.await_receives(timeout=60)
            peer.post_receive(done)
            model -= 0.2 / WORKERS * gradient.owner
        for peer, _, done in peers:
            peer.post_send(done)
    for peer, _, _ in peers:
        peer.await_disconnect(60)
    result.append(model)


def work(port, seed):
    """Fits its own samples of y = 3 x + 1."""
    x = numpy.random.default_rng(seed).uniform(-2, 2, 200)
    with connect("127.0.0.1", port, OPTIONS) as server:
        there = {one.tag: one for one in (server.await_advertisement(60) for _ in range(2))}
        model, gradient = (server.register(numpy.zeros(SIZE)) for _ in range(2))
        flag = server.allocate(1)
        for _ in range(ROUNDS):
            server.post_receive(flag)
            server.post_read(model, there[0])
            server.await_sends(timeout=60)
            error = model.owner[0] * x + model.owner[1] - (3 * x + 1)
            gradient.owner[:] = (error * x).mean(), error.mean()
            server.post_write(gradient, there[1])
            server.post_send(flag)
            server.await_sends(2, timeout=60)
            server.await_receives(timeout=60)


if __name__ == "__main__":
    with Listener("127.0.0.1", options=OPTIONS) as listener:
        results: List[numpy.ndarray] = []
        threads = [threading.Thread(target=serve, args=(listener, results))]
        threads += [threading.Thread(target=work, args=(listener.port, i)) for i in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print("y = {:.2f} x + {:.2f}".format(*results[0]))
