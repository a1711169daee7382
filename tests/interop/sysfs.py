"""Programs that look for devices below /sys/class/infiniband, and ask no library."""

import os
import re
import time
import urllib.request

import cases
import harness
import perftest
import rdmacm_utils
from harness import need


@cases.case("ibstat.shows_the_device")
def ibstat(stage):
    """It reads the files by libibumad, which is not Weft's."""
    side = stage.start("ibstat", "/usr/sbin/ibstat")
    side.finish()
    for line in (r"^CA 'weft0'", r"State: Active", r"Physical state: LinkUp",
                 r"Link layer: Ethernet", r"Node GUID: 0x[0-9a-f]{16}"):
        side.expect(line)


@cases.case("ibstat.shows_the_lid")
def ibstat_of_ib(stage):
    side = stage.start("ibstat", "/usr/sbin/ibstat", options=("--personality", "ib"),
                       env={"WEFT_ADDR": "127.0.0.1"})
    side.finish()
    for line in (r"State: Active", r"Base lid: 1$", r"SM lid: 1$", r"Link layer: InfiniBand",
                 r"Port GUID: 0x027765ff7f000001"):
        side.expect(line)


@cases.case("ibstatus.shows_the_device")
def ibstatus(stage):
    """A script for the shell."""
    side = stage.start("ibstatus", "/usr/sbin/ibstatus")
    side.finish()
    for line in (r"^Infiniband device 'weft0' port 1 status", r"default gid:\s+[0-9a-f:]{39}",
                 r"state:\s+4: ACTIVE", r"link_layer:\s+Ethernet"):
        side.expect(line)


@cases.case("sysfs.of_a_shell")
def shell(stage):
    """As scripts such as ibdev2netdev look for devices and their interfaces."""
    side = stage.start("sh", "sh", "-c", "cd /sys/class/infiniband && ls && ls weft0/device/net && "
                       "cat weft0/ports/1/gid_attrs/types/1 /sys/class/infiniband_verbs/*/ibdev && "
                       "test ! -e /sys/class/infiniband_none && ls /sys/class/net")
    side.finish()
    need("weft0" in side.lines, "no device is listed")
    need("RoCE v2" in side.lines, "no type of a GID")
    interfaces = set(os.listdir("/sys/class/net"))
    need(interfaces <= set(side.lines), "not the interfaces of this host")
    need(len([line for line in side.lines if line in interfaces]) > len(interfaces),
         "the device has no interface")


@cases.case("sysfs.of_python")
def python(stage):
    """By the calls of the C library that other runtimes use."""
    program = """
import glob, os
base = "/sys/class/infiniband"
assert os.listdir(base) == ["weft0"], os.listdir(base)
assert os.path.isdir(base + "/weft0/ports/1") and not os.path.exists(base + "/mlx5_0")
print(open(base + "/weft0/node_type").read().strip())
print(glob.glob(base + "/*/ports/*/state"), os.path.realpath(base + "/weft0"))
with os.scandir(base) as entries: print([entry.name for entry in entries])
"""
    side = stage.start("python3", "python3", "-c", program)
    side.finish()
    need("1: CA" in side.lines, "not the type of the device")


@cases.case("sysfs.without_room")
def without_room(stage):
    """A tree that cannot be written is not left behind, where later processes would find it."""
    program = """
import os, resource
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
try:
    print("lists", os.listdir("/sys/class/infiniband"))
except FileNotFoundError:
    print("no devices")
"""
    folder = stage.scratch("runtime")
    os.mkdir(folder, 0o700)
    for handles in ("SIG_IGN", "SIG_DFL"):
        signals = f"import signal; signal.signal(signal.SIGXFSZ, signal.{handles})"
        stage.start("python3", "python3", "-c", signals + program,
                    env={"XDG_RUNTIME_DIR": folder}).finish()
        need(not os.listdir(folder), f"files stay: {os.listdir(folder)}")


def _tree_of(stage, folder):
    side = stage.start("sh", "sh", "-c", "cd /sys/class/infiniband && pwd -P",
                       env={"XDG_RUNTIME_DIR": folder})
    side.finish()
    return next(line for line in side.lines if line.startswith("/"))


@cases.case("sysfs.folder_is_shared")
def shared(stage):
    """One folder serves all processes of a user, and nobody else's is used."""
    folder = stage.scratch("runtime")
    os.mkdir(folder, 0o700)
    first, second = _tree_of(stage, folder), _tree_of(stage, folder)
    need(first == second and first.startswith(folder), f"{first} and then {second}")
    need(len(os.listdir(folder)) == 1, f"left behind: {os.listdir(folder)}")
    os.chmod(folder, 0o777)  # others could put something there
    need(not _tree_of(stage, folder).startswith(folder), "a folder of everybody is used")


_PORT = "/sys/class/infiniband/weft0/ports/1"
_HEADROOM = 1.1  # requests of the programs themselves, beside what is measured


def _counters(stage, folder):
    """{name: value} as a program sees them that has no device."""
    side = stage.start("sh", "sh", "-c", f"cd {_PORT} && grep -H . counters/* hw_counters/*",
                       env={"XDG_RUNTIME_DIR": folder})
    side.finish()
    found = (re.fullmatch(r"(?:hw_)?counters/(\w+):(\d+)", line) for line in side.lines)
    return {match[1]: int(match[2]) for match in found if match}


def _own_folder(stage):
    folder = stage.scratch("runtime")
    os.mkdir(folder, 0o700)
    return folder


@cases.case("sysfs.counters_count")
def counters(stage):
    """The counters of the port are those of all programs of the user, also of those that ended."""
    folder = _own_folder(stage)
    before = _counters(stage, folder)
    need(before and not any(before.values()), f"not zero at first: {before}")
    stage.environment = {"XDG_RUNTIME_DIR": folder}
    count, size = 100, 4096
    rdmacm_utils.rping(stage, "127.0.0.1", "-S", size, count=count)
    after = _counters(stage, folder)
    # Each ping is read by the server and written back.
    need(after["rx_read_requests"] == count, f"reads: {after['rx_read_requests']}")
    need(after["rx_write_requests"] == count, f"writes: {after['rx_write_requests']}")
    for way in ("xmit", "rcv"):
        data_bytes = after[f"port_{way}_data"] * 4
        need(2 * count * size <= data_bytes <= 2 * count * size * _HEADROOM, f"{way}: {data_bytes}")


@cases.case("sysfs.counters_of_a_running_program")
def counters_of_a_running_program(stage):
    """Others see what a program has counted while it goes on."""
    folder = _own_folder(stage)
    _counters(stage, folder)  # makes the files
    stage.environment = {"XDG_RUNTIME_DIR": folder}
    port = harness.free_port()
    server = stage.start("server", "rping", "-s", "-a", "127.0.0.1", "-p", port)
    server.await_listening(port)
    client = stage.start("client", "rping", "-c", "-a", "127.0.0.1", "-p", port)
    end = time.monotonic() + harness.WAIT_S
    while not all(_counters(stage, folder)[f"rx_{kind}_requests"] for kind in ("read", "write")):
        need(time.monotonic() < end, "nothing is counted")
    for side in (client, server):
        need(side.process.poll() is None, f"{side.name} has ended")


@cases.case("sysfs.counters_of_perftest")
def counters_of_perftest(stage):
    """It keeps the files open, and reads them again when it has measured."""
    stage.environment = {"XDG_RUNTIME_DIR": _own_folder(stage)}
    size, iterations = 65536, 1000
    server, client = perftest.perftest(
        stage, "ib_write_bw", "127.0.0.1", "-W", "counters/port_xmit_data", sizes=[size],
        iterations=iterations)
    counted = int(client.expect(r"counters/port_xmit_data=(\d+)")[1]) * 4
    need(size * iterations <= counted <= size * iterations * _HEADROOM, f"{counted} bytes")
    need(server.expect(r"counters/port_xmit_data=(\d+)"), "the server shows none")


@cases.case("sysfs.node_exporter")
def node_exporter(stage):
    """Prometheus' exporter makes its own system calls, so it is told where the files are."""
    program = harness.installed("prometheus-node-exporter")
    folder = _own_folder(stage)
    tree = os.path.dirname(os.path.dirname(_tree_of(stage, folder)))
    stage.environment = {"XDG_RUNTIME_DIR": folder}
    rdmacm_utils.rping(stage, "127.0.0.1", count=10)
    port = harness.free_port()
    exporter = stage.plain("exporter", program, "--collector.disable-defaults",
                           "--collector.infiniband", f"--path.sysfs={tree}",
                           f"--web.listen-address=127.0.0.1:{port}")
    exporter.await_listening(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=harness.WAIT_S) as got:
        text = got.read().decode()
    values = dict(re.findall(r"^node_infiniband_(\w+)\{device=\"weft0\",port=\"1\"\} (\S+)$", text,
                             re.MULTILINE))
    need(float(values.get("port_data_transmitted_bytes_total", 0)) > 0, f"no bytes: {values}")
    need(float(values.get("port_packets_received_total", 0)) > 0, f"no packets: {values}")
    need("node_infiniband_info" in text and 'board_id="weft"' in text, "no description")
