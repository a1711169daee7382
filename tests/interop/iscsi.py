"""tgt, an iSCSI target, and libiscsi's programs and qemu-io as initiators: iSER by the device and
iSCSI by TCP at one port. What is read and written is compared."""

import json
import os
import pathlib

import cases
import harness
from harness import need

_HOST = "127.0.0.1"
_NAME = "iqn.2026-01.org.example"
_DISK_BYTES = 16 << 20
_INITIATORS = ("iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq", "iqn.2008-11.org.linux-kvm")
_LLDS = {"iscsi": 1, "iser": 2}  # with the number of the target


class _Target:
    """tgtd with one target for each transport; both have the same disk."""

    def __init__(self, stage, look):
        self.stage, self.port = stage, harness.free_port()
        self.disk = stage.scratch("disk")
        self.content = os.urandom(_DISK_BYTES)
        pathlib.Path(self.disk).write_bytes(self.content)
        self._env = {"TGT_IPC_SOCKET": stage.scratch("socket")}
        self.side = stage.start(
            "target", "tgtd", "-f", "--iscsi", f"portal={_HOST}:{self.port}",
            "--iser", f"port={self.port}", options=("--personality", look),
            env={**self._env, "WEFT_STATS": stage.scratch("stats.json")})
        self.side.await_listening(self.port)
        self.side.expect("bs_init")  # it takes commands from here on
        for lld, number in _LLDS.items():
            self._command(lld, "target", "new", number, "-T", f"{_NAME}:{lld}")
            self._command(lld, "logicalunit", "new", number, "--lun", 1, "-b", self.disk)
            self._command(lld, "target", "bind", number, "-I", "ALL")
            for initiator in _INITIATORS:  # iSER needs both kinds
                self._command(lld, "target", "bind", number, "-Q", initiator)

    def _command(self, lld, mode, operation, number, *words):
        side = self.stage.plain(f"tgtadm {operation}", harness.installed("tgtadm"), "--lld", lld,
                                "--mode", mode, "--op", operation, "--tid", number, *words,
                                env=self._env)
        side.finish()
        self.stage.forget(side)

    def url(self, lld):
        return f"{lld}://{_HOST}:{self.port}/{_NAME}:{lld}/1"


def _block(stage, name, url, *commands, on_device=True, options=()):
    """qemu-io, which compares what it reads with a pattern."""
    words = [word for command in commands for word in ("-c", command)]
    arguments = ("-f", "raw", *words, url)
    statistics = stage.scratch(f"stats of {name}.json")
    if on_device:
        side = stage.start(name, "qemu-io", *arguments, options=options,
                           env={"WEFT_STATS": statistics})
    else:
        side = stage.plain(name, harness.installed("qemu-io"), *arguments)
    side.finish()
    need("Pattern verification failed" not in side.output, f"{name} has read something else")
    if on_device:
        pairs = json.loads(pathlib.Path(statistics).read_text())["queue_pairs"]
        done = sum(pair["received"]["operations"] for pair in pairs)
        need(done >= len(commands), f"not on the device: {done} operations")


def _serve(look):
    def run(stage):
        for program in ("tgtd", "tgtadm", "iscsi-inq", "qemu-io"):
            harness.installed(program)
        options = ("--personality", look)
        target = _Target(stage, look)
        inquiry = stage.start("inquiry", "iscsi-inq", target.url("iser"), options=options)
        inquiry.finish()
        inquiry.expect("DIRECT_ACCESS")
        kibibytes = 64
        blocks = [f"-P {number + 1} {number * kibibytes}k {kibibytes}k" for number in range(16)]
        _block(stage, "writer", target.url("iser"), *(f"write {block}" for block in blocks),
               "flush", options=options)
        _block(stage, "reader", target.url("iser"), *(f"read {block}" for block in blocks),
               options=options)
        # The same port by TCP, without the device.
        _block(stage, "reader by TCP", target.url("iscsi"), f"read {blocks[-1]}", on_device=False)
        written = pathlib.Path(target.disk).read_bytes()
        for number in range(16):
            part = written[number * kibibytes << 10:(number + 1) * kibibytes << 10]
            need(part == bytes([number + 1]) * (kibibytes << 10), f"block {number} is not written")
        need(written[1 << 20:] == target.content[1 << 20:], "the rest of the disk has changed")
    return run


for _look in ("roce", "iwarp"):
    cases.add(f"tgt.iser_{_look}", _serve(_look))
