"""Programs that look for devices below /sys/class/infiniband, and ask no library."""

import os

import cases
import harness
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
