"""MPICH, Open MPI and its OpenSHMEM over UCX, as Debian has them, with no setting of UCX.

Two processes of one host would exchange everything by shared memory. So each of them gets a boot id
of its own, by which UCX tells hosts apart, in a user and mount namespace."""

import os
import pathlib
import signal
import time

import cases
import harness
from harness import need

_RANKS = 2
_UNSHARE = ("unshare", "--user", "--map-current-user", "--keep-caps", "--ipc", "--mount")
# The arguments are the program to run.
_AS_ANOTHER_HOST = """
file=$(mktemp) && cat /proc/sys/kernel/random/uuid > "$file" &&
mount --bind "$file" /proc/sys/kernel/random/boot_id && rm -f "$file" && exec "$@"
"""


def _messages(folder):
    """What each process received and did in the other's memory on reliable queue pairs."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("stats.json*")):
        if path.stat().st_size == 0:
            continue  # of a process that did not use the device
        pairs = (harness.json_of(path) or {"queue_pairs": []})["queue_pairs"]
        found.append(sum(pair[name]["operations"] for pair in pairs if pair["type"] == "RC"
                         for name in ("received", "peer_writes", "peer_reads", "peer_atomics")))
    return found


def _exchanges(implementation, launcher, *options, env=None):
    def run(stage):
        program = harness.companion(f"mpi_exchanges.{implementation}")
        if not os.path.exists(program):
            raise harness.Skip(f"it was built without mpicxx.{implementation}")
        if not harness.succeeds(*_UNSHARE, "true"):
            raise harness.Skip("no user namespaces")
        harness.need_ucx_transports()
        # Root without capabilities could not make the namespaces; other users need none.
        side = stage.start("ranks", launcher, *options, "-n", _RANKS, *_UNSHARE, "sh", "-c",
                           _AS_ANOTHER_HOST, "sh", program,
                           env={"WEFT_STATS": stage.scratch("stats.json"), **(env or {})},
                           privileged=True)
        words = ("weft", "run", "--", launcher, *options, "-n", str(_RANKS), "mpi_exchanges")
        stage.ran[-1] = "ranks: " + " ".join(words)
        side.finish(within_s=100)
        for rank in range(_RANKS):
            side.expect(f"rank {rank} of {_RANKS}: all data is right")
        # A launch without the device passes as well: on shared memory, or on TCP.
        done = _messages(os.path.dirname(stage.scratch("stats.json")))
        need(len([count for count in done if count >= 200]) == _RANKS,
             f"not on the device: {done}")
    return run


_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@cases.case("openshmem.exchanges")
def openshmem(stage):
    """As installed: UCX is its only transport. The processes write their statistics on request."""
    program = harness.companion("shmem_exchanges.openmpi")
    if not os.path.exists(program):
        raise harness.Skip("it was built without oshc++")
    if not harness.succeeds(*_UNSHARE, "true"):
        raise harness.Skip("no user namespaces")
    harness.need_ucx_transports()
    side = stage.start("processes", "oshrun", "--oversubscribe", "-n", _RANKS, *_UNSHARE,
                       "sh", "-c", _AS_ANOTHER_HOST, "sh", program,
                       env={"WEFT_STATS": stage.scratch("stats.json"), **_AS_ROOT}, privileged=True)
    stage.ran[-1] = "processes: weft run -- oshrun --oversubscribe -n 2 shmem_exchanges"
    for rank in range(_RANKS):
        found = side.expect(f"process {rank} of {_RANKS}, pid (\\d+): all data is right")
        os.kill(int(found.group(1)), signal.SIGUSR2)
    end = time.monotonic() + harness.WAIT_S
    folder = os.path.dirname(stage.scratch("stats.json"))
    while len([count for count in _messages(folder) if count >= 50]) < _RANKS:
        need(time.monotonic() < end, f"not on the device: {_messages(folder)}")
        time.sleep(0.05)


cases.add("mpich.exchanges", _exchanges("mpich", "mpiexec.hydra"))
# Without these two options Open MPI takes UCX for adapters called mlx… only. The variables let root
# run it.
cases.add("openmpi.exchanges", _exchanges(
    "openmpi", "mpirun.openmpi", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx",
    env=_AS_ROOT))
