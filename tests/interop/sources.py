"""Programs that Debian does not package, built from their sources by somebody who has them.

WEFT_INTEROP_SOURCES names a folder that has one folder for each of them; docs/compatibility.md says
how each was built. Without it these tests are skipped. They have the label `sources`.
"""

import json
import os
import pathlib
import signal
import time

import cases
import harness
import two_hosts
from harness import need

BRPC_REQUESTS = 5000


def built(*parts):
    """The path of something that was built, or a skip."""
    folder = os.environ.get("WEFT_INTEROP_SOURCES")
    if not folder:
        raise harness.Skip("WEFT_INTEROP_SOURCES names no folder with programs built from source")
    path = os.path.join(folder, *parts)
    if not os.path.exists(path):
        raise harness.Skip(f"{path} is missing")
    return path


def _pairs(path):
    return json.loads(pathlib.Path(path).read_text())["queue_pairs"]


@cases.case("nccl.net_plugin", sources=True)
def nccl(stage):
    """NCCL's plugin for InfiniBand and RoCE, used as NCCL uses it, with memory of the host."""
    plugin, program = built("nccl-rdma-sharp-plugins", "libnccl-net.so"), "nccl_net"
    statistics = stage.scratch("stats.json")
    env = {"NCCL_PLUGIN_P2P": "ib"}
    receiver = stage.start("receiver", harness.companion(program), plugin, "receive",
                           env={**env, "WEFT_STATS": statistics})
    handle = receiver.expect(r"^handle ([0-9a-f]+)$").group(1)
    sender = stage.start("sender", harness.companion(program), plugin, "send", handle, env=env)
    for side in (sender, receiver):
        side.finish()
        side.expect("all data is right")
    written = sum(pair["peer_writes"]["bytes"] for pair in _pairs(statistics))
    need(written > 40 << 20, f"not on the device: {written} bytes")


@cases.case("valkey.rdma", timeout_s=240, sources=True)
def valkey(stage):
    """Its own test client, which compares what it gets with what it has set."""
    server_program = built("valkey", "src", "valkey-server")
    module = built("valkey", "src", "valkey-rdma.so")
    client_program = built("valkey", "tests", "rdma", "rdma-test")
    port, statistics = harness.free_port(), stage.scratch("stats.json")
    folder = os.path.dirname(statistics)
    server = stage.start("server", server_program, "--port", 0, "--save", "", "--dir", folder,
                         "--loadmodule", module, "bind=127.0.0.1", f"port={port}",
                         env={"WEFT_STATS": statistics})
    server.expect("Ready to accept connections|Server initialized")
    server.await_listening(port)
    client = stage.start("client", client_program, "-h", "127.0.0.1", "-p", port, "-t", 2)
    client.finish(within_s=120)
    harness.need_no_trouble(client)
    server.signal(15)
    server.finish(status=None)
    received = sum(pair["received"]["operations"] for pair in _pairs(statistics))
    need(received > 100, f"not on the device: {received} operations")


def _operations(path, *names):
    return sum(pair[name]["operations"] for pair in _pairs(path) for name in names)


@cases.case("erpc.small_messages", timeout_s=240, sources=True)
def erpc(stage):
    """eRPC's own test of its InfiniBand transport for RoCE: datagrams, and huge pages."""
    program = built("eRPC", "build", "small_msg_test")
    if int(pathlib.Path("/proc/sys/vm/nr_hugepages").read_text(encoding="ascii")) < 300:
        raise harness.Skip("vm.nr_hugepages is less than 300")
    statistics = stage.scratch("stats.json")
    side = stage.start("test", program, env={"WEFT_STATS": statistics})
    side.finish(within_s=200)
    side.expect(r"\[  PASSED  \] \d+ tests")
    received = _operations(statistics, "received")
    need(received > 1000, f"not on the device: {received} operations")


def _rust_test(name):
    """Cargo adds a hash to the name of a test program, and may leave older ones beside it."""
    folder = pathlib.Path(built("rust-ibverbs", "target", "debug", "deps"))
    found = [path for path in folder.glob(f"{name}-*") if not path.suffix]
    if not found:
        raise harness.Skip(f"{folder} has no {name}")
    return str(max(found, key=lambda path: path.stat().st_mtime))


@cases.case("rust_ibverbs.tests", sources=True)
def rust_ibverbs(stage):
    """Its own tests, which need a device and are ignored without one."""
    for name, least in (("loopback", 33), ("rdmacm", 3)):
        statistics = stage.scratch(f"{name}.json")
        side = stage.start(name, _rust_test(name), "--ignored", "--test-threads=1",
                           env={"WEFT_STATS": statistics})
        side.finish()
        passed = int(side.expect(r"^test result: ok\. (\d+) passed; 0 failed")[1])
        need(passed >= least, f"{passed} of its tests passed")
        need(_operations(statistics, "received", "peer_reads", "peer_writes") > 0,
             f"{name} was not on the device")


def _write_pattern(stage, places=(None, None)):
    """Two processes: the target waits until all of its memory has the initiator's bytes."""
    program = built("nixl", "build", "test", "nixl", "nixl_test")
    port = harness.free_port()
    plugins = built("nixl", "build", "src", "plugins", "ucx")
    statistics = stage.scratch("target.json")
    address = places[0].ipv4 if places[0] else "127.0.0.1"
    initiator = stage.start("initiator", program, "initiator", address, port, place=places[0],
                            env={"NIXL_PLUGIN_DIR": plugins})
    initiator.await_listening(port)
    target = stage.start("target", program, "target", address, port, place=places[1],
                         env={"NIXL_PLUGIN_DIR": plugins, "WEFT_STATS": statistics})
    for side in (target, initiator):
        side.finish()
    target.expect("Buffers match with Initiator")
    written = sum(pair["peer_writes"]["bytes"] for pair in _pairs(statistics))
    need(written >= 1024, f"not on the device: {written} bytes")


cases.add("nixl.processes", _write_pattern, sources=True)
cases.add("nixl.two_hosts", two_hosts.on_two_hosts(_write_pattern), sources=True)


@cases.case("nixl.ucx_backend", timeout_s=360, sources=True)
def nixl_backend(stage):
    """Its own test of its UCX backend, which compares 1 MiB at a time in both directions."""
    program = built("nixl", "build", "test", "unit", "plugins", "ucx", "ucx_backend_test")
    statistics = stage.scratch("stats.json")
    side = stage.start("test", program, env={"WEFT_STATS": statistics})
    side.finish(within_s=320)
    written = sum(pair["peer_writes"]["bytes"] for pair in _pairs(statistics))
    read = sum(pair["peer_reads"]["bytes"] for pair in _pairs(statistics))
    need(min(written, read) > 1 << 30, f"not on the device: {written} and {read} bytes")


@cases.case("brpc.rdma_performance", sources=True)
def brpc(stage):
    """Its own example: requests and answers with 4 KiB each over one connection. It compares no
    bytes; the device's check sums and counts stand for them."""
    folder = ("brpc", "example", "rdma_performance", "build")
    server_program, client_program = built(*folder, "server"), built(*folder, "client")
    port, statistics = harness.free_port(), stage.scratch("stats.json")
    small = ("-rdma_prepared_qp_cnt=16", "-rdma_memory_pool_initial_size_mb=128")
    server = stage.start("server", server_program, f"-port={port}", *small,
                         env={"WEFT_STATS": statistics})
    server.await_listening(port)
    client = stage.start("client", client_program, f"-servers=127.0.0.1:{port}",
                         f"-dummy_port={harness.free_port()}", "-thread_num=1", "-queue_depth=4",
                         "-attachment_size=4096", "-echo_attachment=true",
                         f"-test_iterations={BRPC_REQUESTS}", *small)
    client.finish(within_s=120)
    client.expect(r"RDMA: yes, Echo: yes")
    client.expect(r"Throughput: [1-9]")
    need("RPC call failed" not in client.output, "a request failed")
    server.signal(signal.SIGINT)
    server.finish(status=None)
    received = sum(pair["received"]["bytes"] for pair in _pairs(statistics))
    need(received > BRPC_REQUESTS * 4096, f"not on the device: {received} bytes")


def _await_region(side, statistics, size):
    end = time.monotonic() + harness.WAIT_S
    while True:
        regions = (harness.json_of(statistics) or {"memory_regions": []})["memory_regions"]
        if any(region["bytes"] == size for region in regions):
            return
        need(side.process.poll() is None, f"{side.name} ended before it registered memory")
        need(time.monotonic() < end, f"{side.name} registers no memory")
        side.signal(signal.SIGUSR2)  # writes the statistics
        time.sleep(0.02)


def _validate(stage, places=(None, None)):
    """The transfer engine's own validator writes blocks into another process, reads them back and
    compares them. It was built without the TCP transport, so it has none to fall back to."""
    program = built("Mooncake", "build", "mooncake-transfer-engine", "example",
                    "transfer_engine_validator")
    common = ("--metadata_server=P2PHANDSHAKE", "--protocol=rdma", "--auto_discovery",
              "--buffer_size=67108864", "--batch_size=16", "--block_size=65536", "--threads=4",
              "--duration=2")
    names = [f"--local_server_name={place.ipv4 if place else '127.0.0.1'}:12345"
             for place in places]
    env, statistics = {"GLOG_logtostderr": "1"}, stage.scratch("target.json")
    target = stage.start("target", program, "--mode=target", *common, names[0], place=places[0],
                         env={**env, "WEFT_STATS": statistics})
    segment = target.expect(r"P2P handshake, listening on ([\d.]+:\d+)")[1]
    target.expect("DRAM is used")
    _await_region(target, statistics, 64 << 20)  # it does not say when its memory is registered
    initiator = stage.start("initiator", program, "--mode=initiator", f"--segment_id={segment}",
                            *common, names[1], place=places[1], env=env)
    initiator.finish(within_s=150)
    need(initiator.output.count("Data validation passed") == 4, "not all threads have compared")
    target.signal(signal.SIGTERM)
    target.finish()
    for side in (target, initiator):
        harness.need_no_trouble(side)
    pairs = _pairs(statistics)
    for name in ("peer_writes", "peer_reads"):
        moved = sum(pair[name]["bytes"] for pair in pairs)
        need(moved >= 4 << 20, f"not on the device: {moved} bytes of {name}")


cases.add("mooncake.validated", _validate, timeout_s=240, sources=True)
cases.add("mooncake.two_hosts", two_hosts.on_two_hosts(_validate), timeout_s=240, sources=True)
