"""Unmodified programs load the drop-in libraries, every symbol bound at once, and see weft0."""

import json
import re
import subprocess
import sys
import unittest

import libraries

# Programs of ibverbs-utils, rdmacm-utils and perftest, and others that are often there.
PROGRAMS = """
ibv_devices ibv_devinfo ibv_rc_pingpong ibv_srq_pingpong ibv_uc_pingpong ibv_ud_pingpong
ibv_xsrq_pingpong ibv_asyncwatch rping ucmatose udaddy mckey cmtime rdma_client rdma_server
rdma_xclient rdma_xserver rstream rcopy riostream udpong ib_send_bw ib_send_lat ib_write_bw
ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat raw_ethernet_bw fio qperf fi_info
ucx_info tgtd
""".split()
BROKEN = re.compile(r"undefined symbol|symbol lookup error|version .* not found")

# Prints what a library says of every value, as JSON.
STRINGS = """
import ctypes, json, sys
verbs = ctypes.CDLL("libibverbs.so.1")
cm = ctypes.CDLL("librdmacm.so.1")
said = {}
for library, name, last in ((verbs, "ibv_node_type_str", 9), (verbs, "ibv_port_state_str", 8),
                            (verbs, "ibv_event_type_str", 22), (verbs, "ibv_wc_status_str", 26),
                            (cm, "rdma_event_str", 16)):
    function = getattr(library, name)
    function.restype = ctypes.c_char_p
    said[name] = [function(value).decode() for value in range(-1, last)]
for name in ("ibv_rate_to_mult", "ibv_rate_to_mbps"):
    said[name] = [getattr(verbs, name)(rate) for rate in range(-1, 27)]
said["mult_to_ibv_rate"] = [verbs.mult_to_ibv_rate(value) for value in range(-1, 500)]
said["mbps_to_ibv_rate"] = [verbs.mbps_to_ibv_rate(value + more) for more in (-1, 0, 1)
                            for value in said["ibv_rate_to_mbps"]]
print(json.dumps(said))
"""


class Loading(unittest.TestCase):
    def test_every_symbol_of_every_program_is_found(self):
        checked = []
        for name in PROGRAMS:
            try:
                path = libraries.needs(name)
            except unittest.SkipTest:
                continue
            with self.subTest(program=name):
                # What `ldd -r` does, with the program's own interpreter.
                done = libraries.run("ldd", "-r", path)
                self.assertNotRegex(done.stdout + done.stderr, BROKEN)
                if "libibverbs.so.1" in done.stdout:
                    self.assertIn(f"{libraries.FOLDER}/libibverbs.so.1", done.stdout)
                    checked.append(name)
        if not checked:
            self.skipTest("no program that uses libibverbs is installed")
        print("checked:", *checked)

    def test_programs_start(self):
        started = (("ibv_devinfo", "--help"), ("rping", "-h"), ("ib_write_bw", "--version"),
                   ("ib_send_lat", "-h"), ("ucmatose", "-h"), ("ibv_rc_pingpong", "-h"))
        for name, option in started:
            with self.subTest(program=name):
                done = libraries.run(libraries.needs(name), option,
                                     env=libraries.environment(LD_BIND_NOW="1"))
                self.assertNotRegex(done.stderr, BROKEN)
                self.assertNotEqual(done.stdout + done.stderr, "")
                self.assertGreaterEqual(done.returncode, 0, "killed by a signal")
                self.assertNotEqual(done.returncode, 127)

    def test_only_weft0_is_seen(self):
        done = libraries.run(libraries.needs("ibv_devices"))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split()[0] for line in done.stdout.splitlines()[2:] if line.split()]
        self.assertEqual(rows, ["weft0"])
        self.assertRegex(done.stderr, r"^weft: weft0 \(embedded iWARP device, .*\) serves this")

    def test_devinfo(self):
        done = libraries.run(libraries.needs("ibv_devinfo"), "-v",
                             env=libraries.environment(WEFT_ADDR="127.0.0.1"))
        self.assertEqual(done.returncode, 0, done.stderr)
        for pattern in (r"hca_id:\s+weft0", r"transport:\s+InfiniBand \(0\)", r"board_id:\s+weft",
                        r"state:\s+PORT_ACTIVE \(4\)", r"link_layer:\s+Ethernet",
                        r"gid_tbl_len:\s+2\n", r"GID\[  1\]:\s+::ffff:127\.0\.0\.1, RoCE v2"):
            self.assertRegex(done.stdout, pattern)

    def test_it_can_be_quiet(self):
        done = libraries.run(libraries.needs("ibv_devices"),
                             env=libraries.environment(WEFT_QUIET="1"))
        self.assertEqual(done.stderr, "")

    def test_wrong_variables_are_said_once(self):
        done = libraries.run(libraries.needs("ibv_devices"),
                             env=libraries.environment(WEFT_ADDR="192.0.2", WEFT_QUIET="1"))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("weft: "), 1, done.stderr)
        self.assertIn("WEFT_ADDR=192.0.2: must be a numeric IP address", done.stderr)

    def test_names_and_rates_are_those_of_rdma_core(self):
        def ask(environment):
            done = subprocess.run([sys.executable, "-c", STRINGS], env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            return json.loads(done.stdout) if done.returncode == 0 else None

        ours = libraries.environment()
        system = {name: value for name, value in ours.items() if name != "LD_LIBRARY_PATH"}
        theirs = ask(system)
        if theirs is None:
            self.skipTest("rdma-core's own libraries are not installed")
        self.assertEqual(ask(ours), theirs)


if __name__ == "__main__":
    sys.exit(libraries.main())
