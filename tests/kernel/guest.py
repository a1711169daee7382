"""A guest with Debian's kernel, and the network that joins it with programs of this machine.

The network is a TAP device in a network namespace that belongs to a new user namespace, so neither
needs a privilege; both end with the test. The emulator needs no KVM.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import harness
from harness import Skip
from lossy_link import Place

_HERE = pathlib.Path(__file__).resolve().parent
HOST, GUEST = ("10.79.0.1", "fd79::1"), ("10.79.0.2", "fd79::2")
_TAP = "weft-tap"
BOOT_S = 600  # some seconds on an idle machine
_COMMAND_S = 600
# Segments as they are on a wire: no device computes checksums or cuts segments for the kernel.
_NO_OFFLOAD = ("csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,"
               "guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off")


def image():
    """The folder of the guest's image, or a skip."""
    folder = pathlib.Path(os.environ.get("WEFT_KERNEL_IMAGE") or
                          _HERE.parents[1] / "build/kernel")
    for name in ("vmlinuz", "initrd", "stamp"):
        if not (folder / name).exists():
            raise Skip(f"no {folder / name}: ./dev test --kernel makes the image")
    return folder


class Guest:
    """A booted guest with one RDMA device, siw0 or rxe0, or none. A context manager.

    `parameters` are those of the module siw_parameters, which then replaces siw; `shared` are
    folders of this machine that the guest sees at the same paths, and cannot change.
    """

    def __init__(self, stage, device="siw", parameters="", shared=(), memory_mib=1024):
        self._stage = stage
        self._device, self._parameters, self._shared = device, parameters, shared
        self._memory_mib = memory_mib
        self._owner = None
        self.place = None  # where programs of this machine reach the guest

    def __enter__(self):
        for tool in ("qemu-system-x86_64", "ip", "unshare", "nsenter", "setpriv"):
            if shutil.which(tool) is None:
                raise Skip(f"{tool} is not installed: ./dev test --kernel installs it")
        folder = image()
        try:
            self._make_network()
            self._boot(folder)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for side in self._stage.sides:  # they end before their network does
            if side.process.poll() is None:
                side.signal(9)
        if self.place:
            self.place.close()
        if self._owner:
            self._owner.stdin.close()  # it ends at the end of its input
            self._owner.wait()
            self._owner.stdout.close()
        self.place = self._owner = None

    def _make_network(self):
        self._owner = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", "echo ready; read end"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        answer = self._owner.stdout.readline().strip()
        if answer != "ready":
            raise Skip(f"no namespaces: {answer or 'their owner ended at once'}")
        self._ip("tuntap", "add", _TAP, "mode", "tap")
        self._ip("address", "add", f"{HOST[0]}/24", "dev", _TAP)
        if harness.has_ipv6():
            self._ip("address", "add", f"{HOST[1]}/64", "dev", _TAP, "nodad")
        for device in ("lo", _TAP):
            self._ip("link", "set", device, "up")
        self.place = Place(self._owner.pid, *HOST)

    def _inside(self, *command):
        """The command line that runs a command in the namespaces, as their owner."""
        return ["nsenter", f"--target={self._owner.pid}", "--user", "--net",
                "--preserve-credentials", *command]

    def _ip(self, *words):
        done = subprocess.run(self._inside("ip", *words), capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise Skip(f"ip {' '.join(words)}: {done.stderr.strip()}")

    def _boot(self, folder):
        # The kernel tests its timer by counting interrupts in a short time: an emulator that waits
        # for a processor fails that. Its watchdog takes the same for a lockup, so it gets its
        # largest limit.
        line = ("console=ttyS0 panic=-1 quiet no_timer_check watchdog_thresh=60 net.ifnames=0 "
                f"RDMA_DEVICE={self._device}")
        if self._parameters:
            line += f" SIW_PARAMETERS={self._parameters}"
        shared = []
        if self._shared:
            line += " SHARED=" + ",".join(map(str, self._shared))
        for number, path in enumerate(self._shared):
            shared += ["-virtfs", f"local,path={path},mount_tag=shared{number},"
                                  "security_model=none,readonly=on,multidevs=remap"]
        # A process that enters a user namespace loses its parent's death signal: it is set again,
        # so that no guest outlives a test that is killed.
        self.console = self._stage.plain("guest", *self._inside(
            "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64",
            "-accel", "tcg,tb-size=256", "-cpu", "max", "-M", "q35",
            "-m", self._memory_mib,
            "-display", "none", "-nodefaults", "-no-reboot",
            "-serial", "stdio", "-monitor", "none", "-kernel", folder / "vmlinuz",
            "-initrd", folder / "initrd", "-append", line, "-device", "virtio-rng-pci",
            "-netdev", f"tap,id=n0,ifname={_TAP},script=no,downscript=no,vnet_hdr=off",
            "-device", f"virtio-net-pci,netdev=n0,{_NO_OFFLOAD}", *shared))
        self.console.expect("guest ready", BOOT_S)

    def start(self, name, *words):
        """Starts a program in the guest. The Side ends with the program's exit status."""
        command = " ".join(map(str, words))
        print_pid = "echo in the guest: process $BASHPID; exec "
        side = self._stage.plain(name, sys.executable, "-B", _HERE / "remote.py", GUEST[0],
                                 print_pid + command, place=self.place)
        self._stage.ran[-1] = f"{name}, in the guest: {command}"
        return side

    def kill(self, side):
        """Kills a program that `start` has started."""
        self.run("kill -9", side.expect("^in the guest: process ([0-9]+)$")[1])

    def run(self, *words, status=0):
        """Runs a short shell command in the guest to its end. Returns its output."""
        side = self._stage.plain("command in the guest", sys.executable, "-B",
                                 _HERE / "remote.py", GUEST[0], " ".join(map(str, words)),
                                 place=self.place)
        side.finish(_COMMAND_S, status=status)
        output = side.output
        self._stage.forget(side)
        return output

    def await_listening(self, port):
        """Until a program in the guest listens on the TCP port."""
        self.run(f"for ((i = 0; i < 1200; ++i)); do "
                 f"grep -qi ':{port:04X} [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6 && exit; "
                 "sleep 0.05; done; exit 1")

    def await_traffic(self, byte_count):
        """Until the guest has sent and received so many bytes more."""
        self.run("cd /sys/class/net/eth0/statistics; "
                 f"end=$(($(<rx_bytes) + $(<tx_bytes) + {byte_count})); "
                 "for ((i = 0; i < 1200; ++i)); do "
                 "(($(<rx_bytes) + $(<tx_bytes) > end)) && exit; sleep 0.05; done; exit 1")

    def need_healthy(self):
        """The kernel of the guest has reported no fault."""
        for line in self.run("dmesg").splitlines() + self.console.lines:
            harness.need("BUG" not in line and "Oops" not in line and "WARNING:" not in line,
                         f"the guest's kernel reports: {line}")
