#!/usr/bin/env python3
"""A ping-pong of sends from registered memory, with the latency of each size.

    python3 ping_pong.py                     # both sides here, a table of the half round trips
    python3 ping_pong.py --plot latency.svg  # and a plot, if matplotlib is installed
"""

import argparse
import threading
import time

from weft.connection import Listener, connect

# %% Both sides: `turns` times, wait for a message of each size and answer it.


def answer(listener, sizes, turns):
    """The passive side."""
    with listener.next(60) as peer:
        ping = peer.allocate(max(sizes))
        peer.post_receive(ping)
        peer.establish()
        for size in sizes:
            for _ in range(turns):
                peer.await_receives()
                peer.post_receive(ping)
                peer.post_send(ping, size=size)
                peer.await_sends()
        peer.await_disconnect(60)


def measure(peer, size, turns):
    """The active side: the half round trips in microseconds, sorted."""
    ping, pong = peer.register(bytearray(size)), peer.allocate(size)
    times = []
    for _ in range(turns):
        peer.post_receive(pong)
        begin = time.perf_counter()
        peer.post_send(ping)
        peer.await_receives()
        times.append((time.perf_counter() - begin) / 2 * 1e6)
        peer.await_sends()
    return sorted(times)


# %% The table and the plot.


def plot(file, results):
    """Draws median and 99th percentile over the size."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed (apt install python3-matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots()
    for name, part in (("median", 0.5), ("99 %", 0.99)):
        axes.plot(list(results), [one[int(len(one) * part)] for one in results.values()],
                  marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="µs, half a round trip")
    axes.legend()
    figure.savefig(file)
    print(f"written: {file}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--plot", metavar="FILE")
    options = parser.parse_args()
    sizes = [8, 64, 512, 4096, 32768, 262144]
    with Listener("127.0.0.1") as listener:
        passive = threading.Thread(target=answer, args=(listener, sizes, options.turns))
        passive.start()
        with connect("127.0.0.1", listener.port) as peer:
            results = {size: measure(peer, size, options.turns) for size in sizes}
        passive.join()
    print("   bytes  median µs    99 % µs")
    for size, times in results.items():
        print(f"{size:8d} {times[len(times) // 2]:10.1f} {times[int(len(times) * 0.99)]:10.1f}")
    if options.plot:
        plot(options.plot, results)


if __name__ == "__main__":
    main()
