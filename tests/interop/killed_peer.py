"""What a program sees when its peer is killed: each row of the first table of docs/killed-peers.md,
over both carriers, and over a connection that two processes of one host make without TCP."""

import pathlib
import re

import cases
import harness
from harness import need

# The last number: connections that come before.
_CARRIERS = (("over TCP", "off", 0), ("within one host", "auto", 0),
             ("within one host, without TCP from the start", "auto", 2))


def _rows():
    """By the name of the test: what the page says of TCP and of one host."""
    page = pathlib.Path(__file__).resolve().parents[2] / "docs/killed-peers.md"
    found = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \| `interop\.killed_peer\.(\w+)` \|$",
                       page.read_text(), re.MULTILINE)
    need(found, "docs/killed-peers.md has no table")
    rows = {}
    for tcp, local, name in found:
        within = tcp if local == "the same" else local
        rows[name] = (tcp, within, within)
    return rows


def _alternatives(expected):
    """The page joins two outcomes by "or" where it depends on the moment which of them is seen."""
    for first, second in (("RETRY_EXC_ERR (ECONNRESET)", "WR_FLUSH_ERR"),
                          ("ECONNREFUSED", "ECONNRESET")):
        both = f"{first} or {second}"
        if both in expected:
            return {expected.replace(both, first), expected.replace(both, second)}
    return {expected}


def _case(name):
    def run(stage):
        for (carrier, same_host, earlier), expected in zip(_CARRIERS, _rows()[name]):
            side = stage.start(f"{name} {carrier}", harness.companion("killed_peer"), name,
                               str(earlier), env={"WEFT_SAME_HOST": same_host})
            side.finish()
            seen = side.expect("^outcome: (.*)$")[1]
            expected = expected.replace("`", "")
            either = _alternatives(expected)
            need(seen in either, f"{carrier}: {seen}; docs/killed-peers.md: {expected}")

    return run


for _name in _rows():
    cases.add(f"killed_peer.{_name}", _case(_name))
