"""The list of interoperability tests. Each module adds its own; run.py runs one of them."""

import dataclasses
from typing import Callable

PACKAGES = {
    "rping": "rdmacm-utils", "ucmatose": "rdmacm-utils", "rdma_server": "rdmacm-utils",
    "rdma_client": "rdmacm-utils",
    "rstream": "rdmacm-utils", "riostream": "rdmacm-utils", "rcopy": "rdmacm-utils",
    "udpong": "rdmacm-utils",
    "ib_send_bw": "perftest", "ib_send_lat": "perftest", "ib_write_bw": "perftest",
    "ib_write_lat": "perftest", "ib_read_bw": "perftest", "ib_read_lat": "perftest",
    "ib_atomic_bw": "perftest", "ib_atomic_lat": "perftest", "ibv_rc_pingpong": "ibverbs-utils",
    "ibv_devices": "ibverbs-utils", "ibv_devinfo": "ibverbs-utils",
    "ibv_asyncwatch": "ibverbs-utils", "ibv_srq_pingpong": "ibverbs-utils",
    "ibv_uc_pingpong": "ibverbs-utils", "ibv_ud_pingpong": "ibverbs-utils",
    "pyverbs": "python3-pyverbs", "udaddy": "rdmacm-utils", "mckey": "rdmacm-utils",
    "fi_info": "libfabric-bin", "libfabric": "libfabric1",
    "nc": "netcat-openbsd", "iperf3": "iperf3", "redis": "redis-server",
    "memcached": "memcached", "nginx": "nginx-light", "socat": "socat",
    "postgresql": "postgresql-15", "rsync": "rsync", "haproxy": "haproxy", "node": "nodejs",
    "java": "openjdk-17-jdk-headless", "asyncio": "python3",
    "mariadb": "mariadb-server-core", "httpd": "apache2-bin", "openssh": "openssh-server",
    "etcd": "etcd-server", "bash": "bash", "inetd": "openbsd-inetd", "varnish": "varnish",
    "dovecot": "dovecot-imapd", "erlang": "erlang-base",
    "cmtime": "rdmacm-utils", "rdma_xserver": "rdmacm-utils",
    "ucx_info": "ucx-utils", "ucx_perftest": "ucx-utils",
    "mpich": "mpich", "openmpi": "openmpi-bin",
    "openshmem": "openmpi-bin",
    "ibstat": "infiniband-diags", "ibstatus": "infiniband-diags",
    "qperf": "qperf", "fio": "fio", "qemu": "qemu-system-x86", "dtest": "dapl2-utils",
    "fi_pingpong": "libfabric-bin", "librpma": "librpma0", "tgt": "tgt", "ceph": "ceph-mon",
}


@dataclasses.dataclass
class Case:
    name: str  # PROGRAM.VARIANT
    run: Callable
    timeout_s: int
    long: bool
    sanitized: bool  # also with an instrumented device, in the long run
    sources: bool = False  # of a program that somebody has built from its source: see sources.py

    @property
    def program(self):
        return self.name.partition(".")[0]

    @property
    def package(self):
        return PACKAGES.get(self.program)


CASES = {}


def add(name, run, *, timeout_s=120, long=False, sanitized=False, sources=False):
    """Registers a test: `run` is called with a Stage."""
    if name in CASES:
        raise ValueError(f"two cases are called {name}")
    CASES[name] = Case(name, run, timeout_s, long, sanitized, sources)


def case(name, **options):
    """The same as a decorator."""

    def register(run):
        add(name, run, **options)
        return run

    return register
