"""SPDK's NVMe-oF target and initiators over RDMA, built from their sources: see sources.py."""

import json
import os
import pathlib
import re
import signal

import cases
import harness
import sources
import two_hosts
from harness import need

_SUBSYSTEM = "nqn.2016-06.io.spdk:weft"
# No huge pages, no PCI devices and small pools: everything runs as an ordinary user.
_MEMORY = ("--no-huge", "--iova-mode", "va")
# Without the last option, a second program of SPDK on the same processor does not start.
_APPLICATION = (*_MEMORY, "--no-pci", "--disable-cpumask-locks")
_POOLS = {"subsystem": "iobuf", "config": [
    {"method": "iobuf_set_options", "params": {"small_pool_count": 512, "large_pool_count": 64}}]}


def _processor(last):
    """A mask with the first or last processor of this test: programs of SPDK poll all the time."""
    processors = sorted(os.sched_getaffinity(0))
    return hex(1 << processors[-1 if last else 0])


def _settings(stage, name, *subsystems):
    path = stage.scratch(name)
    pathlib.Path(path).write_text(json.dumps({"subsystems": [_POOLS, *subsystems]}))
    return path


def _need_no_error(side):
    need("*ERROR*" not in side.output, f"{side.name} reports an error")


class _Target:
    """A disk in memory of 32 MiB, exported at a port of `address`."""

    def __init__(self, stage, address="127.0.0.1", place=None):
        program = sources.built("spdk", "build", "bin", "nvmf_tgt")
        self.port = harness.free_port()
        self._address = address
        self.statistics = stage.scratch("target.json")
        call = {"nqn": _SUBSYSTEM}
        settings = _settings(
            stage, "target-settings.json",
            {"subsystem": "bdev", "config": [{"method": "bdev_malloc_create", "params": {
                "name": "disk", "num_blocks": 65536, "block_size": 512}}]},
            {"subsystem": "nvmf", "config": [
                {"method": "nvmf_create_transport", "params": {
                    "trtype": "RDMA", "max_srq_depth": 512}},
                {"method": "nvmf_create_subsystem", "params": {
                    **call, "allow_any_host": True, "serial_number": "WEFT0001"}},
                {"method": "nvmf_subsystem_add_ns", "params": {
                    **call, "namespace": {"bdev_name": "disk"}}},
                {"method": "nvmf_subsystem_add_listener", "params": {
                    **call, "listen_address": self.address()}}]})
        self.side = stage.start(
            "target", program, *_APPLICATION, "-s", 384, "-m", _processor(False),
            "-r", stage.scratch("target.sock"), "--json", settings,
            place=place, env={"WEFT_STATS": self.statistics})
        self.side.await_listening(self.port)

    def address(self):
        return {"trtype": "RDMA", "adrfam": "IPv4", "traddr": self._address,
                "trsvcid": str(self.port)}

    def words(self):
        return " ".join(f"{name}:{value}" for name, value in self.address().items())

    def end(self):
        """Ends it, and returns the bytes that it wrote to and read from its initiators."""
        self.side.signal(signal.SIGTERM)
        self.side.finish()
        _need_no_error(self.side)
        pairs = json.loads(pathlib.Path(self.statistics).read_text())["queue_pairs"]
        return {name: sum(pair[name]["bytes"] for pair in pairs) for name in ("writes", "reads")}


def _verify(stage, places=(None, None)):
    """bdevperf writes blocks through SPDK's initiator, reads them back and compares them."""
    target = _Target(stage, *((places[0].ipv4, places[0]) if places[0] else ()))
    program = sources.built("spdk", "build", "examples", "bdevperf")
    settings = _settings(stage, "initiator-settings.json", {
        "subsystem": "bdev", "config": [{"method": "bdev_nvme_attach_controller", "params": {
            "name": "remote", "subnqn": _SUBSYSTEM, **target.address()}}]})
    side = stage.start(
        "initiator", program, *_APPLICATION, "-s", 256, "-m", _processor(True),
        "-r", stage.scratch("initiator.sock"), "--json", settings,
        "-w", "verify", "-q", 8, "-o", 16384, "-t", 2, place=places[1])
    side.finish(within_s=120)
    found = re.search(r"remoten1\s+:\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s+([\d.]+)", side.output)
    need(found and float(found[1]) > 0, "no result")
    need(float(found[2]) == 0, f"{found[2]} commands a second failed")
    _need_no_error(side)
    total = target.end()
    need(total["reads"] >= 16384 and total["writes"] >= 16384, f"not on the device: {total}")


cases.add("spdk.verified", _verify, timeout_s=240, sources=True)
cases.add("spdk.two_hosts", two_hosts.on_two_hosts(_verify), timeout_s=240, sources=True)


@cases.case("spdk.performance", timeout_s=240, sources=True)
def performance(stage):
    """Its own measuring program, which has no bdev layer between it and the initiator."""
    target = _Target(stage)
    side = stage.start(
        "initiator", sources.built("spdk", "build", "bin", "spdk_nvme_perf"), *_MEMORY,
        "-s", 256, "-c", _processor(True), "-r", f"{target.words()} subnqn:{_SUBSYSTEM}",
        "-q", 16, "-o", 4096, "-w", "randrw", "-M", 50, "-t", 2)
    side.finish(within_s=120)
    found = re.search(r"^Total\s+:\s+([\d.]+)", side.output, re.MULTILINE)
    need(found and float(found[1]) > 0, "no result")
    _need_no_error(side)
    total = target.end()
    need(total["reads"] > 0 and total["writes"] > 0, f"not on the device: {total}")
