"""The personality ib: programs that connect by LID and queue pair number, and those that use
rdma_cm or a GID there."""

import cases
import datagrams
import perftest
import pingpong
import rdmacm_utils
import two_hosts
from harness import need

_IB = ("--personality", "ib")
_FEW = 20


def _pingpong(*options, **settings):
    return lambda stage: pingpong.pingpong(stage, *options, by_lid=True, **settings)


cases.add("ibv_rc_pingpong.by_lid", _pingpong("-c"))
cases.add("ibv_rc_pingpong.by_lid_events", _pingpong("-c", "-e"))
cases.add("ibv_rc_pingpong.ib_by_gid", _pingpong("-c", "-g", 0))
for _program in ("ibv_uc_pingpong", "ibv_srq_pingpong", "ibv_ud_pingpong"):
    cases.add(f"{_program}.by_lid", _pingpong(program=_program))
cases.add("ibv_ud_pingpong.ib_by_gid", _pingpong("-g", 0, program="ibv_ud_pingpong"))


def _on_loopback(program, *options, sizes, **settings):
    """On an Ethernet port perftest would choose a GID by itself where -x gives none."""

    def run(stage):
        _, client = perftest.perftest(stage, program, "127.0.0.1", *options, sizes=sizes,
                                      weft_options=(_IB, _IB), **settings)
        need("Link type       : IB" in client.output, "perftest does not see InfiniBand")
        need(("-x" in options) == ("GID:" in client.output), "perftest has the other address")

    return run


for _program in perftest.BANDWIDTH + perftest.LATENCY:
    cases.add(f"{_program}.by_lid",
              _on_loopback(_program, sizes=[4096], rdma_cm=False, iterations=_FEW))
cases.add("ib_atomic_bw.by_lid", _on_loopback("ib_atomic_bw", "-A", "FETCH_AND_ADD", sizes=[8],
                                              rdma_cm=False, iterations=_FEW))
cases.add("ib_send_bw.ud_by_lid", _on_loopback("ib_send_bw", "-c", "UD", sizes=[1024],
                                               rdma_cm=False, iterations=_FEW))
cases.add("ib_write_bw.ib_by_gid", _on_loopback("ib_write_bw", "-x", 0, sizes=[4096],
                                                     rdma_cm=False, iterations=_FEW))
cases.add("ib_write_bw.ib_rdma_cm", _on_loopback("ib_write_bw", sizes=[4096]))

cases.add("rping.ib", lambda stage: rdmacm_utils.rping(stage, "127.0.0.1", count=200,
                                                       weft_options=(_IB, _IB)))
cases.add("rping.ib_own_queue_pair",
          lambda stage: rdmacm_utils.rping(stage, "127.0.0.1", "-q", count=200,
                                           weft_options=(_IB, _IB)))
cases.add("rping.ib_server_roce_client",
          lambda stage: rdmacm_utils.rping(stage, "127.0.0.1", count=200, weft_options=(_IB, ())))
cases.add("udaddy.ib", lambda stage: datagrams.udaddy(stage, weft_options=_IB))
cases.add("mckey.ib", lambda stage: datagrams.mckey(stage, "-b", "127.0.0.1", weft_options=_IB))

for _program in ("ibv_rc_pingpong", "ibv_ud_pingpong"):
    two_hosts.add_pingpong("by_lid", program=_program, by_lid=True, count=200)
# In so large a subnet the kernel's ARP table names the peer: the LID lacks its second byte.
_LARGE = {"addresses": (("10.78.0.1", "fd78::1"), ("10.79.200.2", "fd78::2")), "prefix_bits": 8}
cases.add("ibv_rc_pingpong.two_hosts_large_subnet", two_hosts.on_two_hosts(
    lambda stage, places: pingpong.pingpong(stage, "-c", places=places, address=places[0].ipv4,
                                            by_lid=True, count=200), **_LARGE))
