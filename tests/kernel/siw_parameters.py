"""Weft with siw as others may have built it: its constants are parameters of the module here."""

from conversations import measure, rdma_server, rping, ucmatose
from pairs import add


def exchange(pair):
    rdma_server(pair)
    for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
        for size in (64, 65536):
            measure(pair, program, size=size)


def pings(pair):
    for size in (64, 65000):
        rping(pair, "-S", size)


def with_pings(pair):
    pings(pair)
    exchange(pair)


def peer_to_peer(pair):
    """Now the accepting program may send first, also on Weft."""
    with_pings(pair)
    ucmatose(pair)
    measure(pair, "ib_write_lat", size=64)


def revision_1(pair):
    """A request of revision 1 has no depths. rping's server takes over those of the request, so
    that it may not read then, whatever the device: it is left out. siw as the server answers with
    the revision of the request, which is 2 with Weft."""
    exchange(pair)


def crc_required(pair):
    """Weft does not ask for CRCs, and siw does, with its request or its reply."""
    pair.environment = {"WEFT_CRC": "0"}
    with_pings(pair)


def without_crc(pair):
    """siw then rejects a request for CRCs."""
    pair.environment = {"WEFT_CRC": "0"}
    with_pings(pair)


add("siw_parameters.crc_required", crc_required, parameters="mpa_crc_required=1")
add("siw_parameters.crc_strictly_off", without_crc, parameters="mpa_crc_strict=1")
add("siw_parameters.peer_to_peer", peer_to_peer, parameters="peer_to_peer=1")
add("siw_parameters.mpa_revision_1", revision_1, directions=("from_siw",),
    parameters="mpa_version=1")
# siw makes FPDUs of several segments only for a peer whose frame allows it by a bit that no
# RFC defines, and that Weft leaves at zero.
add("siw_parameters.gso", with_pings, parameters="try_gso=1")
