"""A server on one side, its client on the other: Weft on this machine, the kernel's siw in a guest.

A case's name ends with the direction: `to_siw` has its server on siw, `from_siw` its client.
"""

import harness
import registry
from guest import GUEST, HOST, Guest

IWARP = ("--personality", "iwarp")  # what siw is: perftest counts credits on such a device only
# Of a wait. The guest has one emulated processor, and a program in it that polls shares that with
# siw: at a load of 25 on two processors even `dmesg` took more than a minute.
LIMIT_S = 900
DIRECTIONS = ("to_siw", "from_siw")


class Pair:
    """Starts a server on one side and its client on the other."""

    def __init__(self, stage, to_siw):
        self.stage, self.to_siw = stage, to_siw
        self.version = 0  # the index in GUEST and HOST: 0 is IPv4, 1 is IPv6
        self.guest = None
        self.options, self.environment = IWARP, {}  # of `weft run`

    @property
    def address(self):
        return (GUEST if self.to_siw else HOST)[self.version]

    def server(self, port, program, *words):
        if self.to_siw:
            side = self.guest.start("server on siw", program, *words)
            self.guest.await_listening(port)
        else:
            side = self._weft("server on Weft", program, words)
            side.await_listening(port)
        return side

    def client(self, program, *words):
        if self.to_siw:
            return self._weft("client on Weft", program, words)
        return self.guest.start("client on siw", program, *words)

    def _weft(self, name, program, words):
        return self.stage.start(name, program, *words, options=self.options,
                                place=self.guest.place, env=self.environment)

    def kill(self, side):
        """Kills the side's program, wherever it runs."""
        if side.name.endswith("on siw"):
            self.guest.kill(side)
        else:
            side.signal(9)
        side.finish(LIMIT_S, status=None)


def add(name, converse, *, timeout_s=3600, directions=DIRECTIONS, parameters=""):
    """Registers `converse(pair)` for each direction, each with a guest of its own. `parameters` are
    those of siw_parameters."""
    for direction in directions:

        def run(stage, direction=direction):
            pair = Pair(stage, direction == "to_siw")
            with Guest(stage, parameters=parameters) as pair.guest:
                converse(pair)
                pair.guest.need_healthy()

        registry.add(f"{name}.{direction}", run, timeout_s=timeout_s)


def both_ways(name, **options):
    """The same as a decorator."""

    def register(converse):
        add(name, converse, **options)
        return converse

    return register
