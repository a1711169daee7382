"""Ceph's messenger over RDMA: a monitor, and `ceph`, which stores a value and reads it back."""

import json
import os
import pathlib
import signal
import uuid

import cases
import harness
from harness import need

_VALUE_BYTES = 60_000  # a monitor takes 64 KiB
# Queue and pool are small: the defaults want 4 GiB of registered memory. A monitor refuses to
# start where less than 5 % of the disk are free (`mon data avail crit`); this one stores little.
_SETTINGS = """[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{port}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
ms type = async+rdma
ms cluster type = async+rdma
ms public type = async+rdma
ms async rdma device name = weft0
ms async rdma receive queue len = 256
ms async rdma receive buffers = 1024
ms async rdma send buffers = 512
ms async rdma buffer size = 8192
log file = {folder}/$name.log
run dir = {folder}
admin socket =
crash dir = {folder}
mon data = {folder}/mon
mon data avail crit = 0
mon data avail warn = 0
[mon.a]
public addr = v2:127.0.0.1:{port}
"""


class _Monitor:
    def __init__(self, stage):
        for program in ("ceph-mon", "ceph", "monmaptool"):
            harness.installed(program)
        self.stage, self.port, fsid = stage, harness.free_port(), uuid.uuid4()
        folder = os.path.dirname(stage.scratch("mon"))
        self.settings, monmap = stage.scratch("ceph.conf"), stage.scratch("monmap")
        self.statistics = stage.scratch("monitor.json")
        os.mkdir(stage.scratch("mon"))
        pathlib.Path(self.settings).write_text(
            _SETTINGS.format(fsid=fsid, port=self.port, folder=folder))
        self._plain("monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{self.port}]",
                    "--fsid", fsid, monmap)
        self._plain("ceph-mon", "-c", self.settings, "-i", "a", "--mkfs", "--monmap", monmap)
        self.side = stage.start("monitor", "ceph-mon", "-c", self.settings, "-i", "a", "-f",
                                env={"WEFT_STATS": self.statistics})
        self.side.await_listening(self.port)

    def _plain(self, program, *arguments):
        side = self.stage.plain(program, harness.installed(program), *arguments)
        side.finish()
        self.stage.forget(side)

    def ask(self, name, *words):
        side = self.stage.start(name, "ceph", "-c", self.settings, *words)
        side.finish()
        return side


@cases.case("ceph.messenger", timeout_s=300)
def messenger(stage):
    monitor = _Monitor(stage)
    status = monitor.ask("status", "-s")
    status.expect(r"mon: 1 daemons, quorum a")
    sent, got = stage.scratch("sent"), stage.scratch("got")
    pathlib.Path(sent).write_bytes(os.urandom(_VALUE_BYTES))
    monitor.ask("writer", "config-key", "set", "weft/value", "-i", sent)
    monitor.ask("reader", "config-key", "get", "weft/value", "-o", got)
    need(pathlib.Path(sent).read_bytes() == pathlib.Path(got).read_bytes(),
         "the value has changed")
    monitor.side.signal(signal.SIGTERM)
    monitor.side.finish()
    pairs = json.loads(pathlib.Path(monitor.statistics).read_text())["queue_pairs"]
    received = sum(pair["received"]["bytes"] for pair in pairs)
    need(received >= _VALUE_BYTES, f"not on the device: {received} bytes")
