"""perftest with rdma_cm (-R): Weft with the kernel's siw as the peer, each direction."""

from conversations import RESPONDER_FIRST, measure
from pairs import add

_SIZES = (1, 64, 4096, 65536, 1 << 20)
_BANDWIDTH = ("ib_send_bw", "ib_write_bw", "ib_read_bw")
_LATENCY = ("ib_send_lat", "ib_write_lat", "ib_read_lat")
_SEVERAL = (("-b",), ("-q", 4), ("-q", 4, "-b"))


def add_sizes(program):
    def converse(pair):
        # The server of ib_write_lat writes first. A client on siw asks for no peer-to-peer mode, so
        # that Weft as its server needs the option.
        if program == "ib_write_lat" and not pair.to_siw:
            pair.environment = RESPONDER_FIRST
        for size in _SIZES:
            measure(pair, program, size=size, iterations=5 if size == _SIZES[-1] else 20)

    add(f"{program}.sizes", converse)


def add_several(program):
    """Both directions at once, several queue pairs, and both."""

    def converse(pair):
        for options in _SEVERAL:
            measure(pair, program, *options, size=65536)

    add(f"{program}.several", converse)


for _program in _BANDWIDTH + _LATENCY:
    add_sizes(_program)
for _program in _BANDWIDTH:
    add_several(_program)
