"""The drop-in libraries export every symbol, under its version, that rdma-core 44 exports.

What only programs of 2006 import (libibverbs 1.0, ibv_register_driver) is left out of the lists.
"""

import pathlib
import re
import subprocess
import sys
import unittest

import libraries

DATA = pathlib.Path(__file__).parents[1] / "data" / "dropin"
# Where programs built on newer releases look: rdma-core 59, 62, 64, 65, 60.
NEWER = {
    "libibverbs.so.1": {
        ("ibv_reg_mr_ex", "IBVERBS_1.15"), ("ibv_query_port_speed", "IBVERBS_1.16"),
        ("ibv_alloc_buf", "IBVERBS_1.17"), ("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18"),
        ("ibv_set_err_comp_cntr", "IBVERBS_1.18"), ("ibv_wr_opcode_str", "IBVERBS_PRIVATE_34"),
        ("ibv_query_gid_type", "IBVERBS_PRIVATE_57"), ("ibv_cmd_create_qp", "IBVERBS_PRIVATE_59"),
        ("verbs_register_driver_64", "IBVERBS_PRIVATE_64"),
        ("verbs_register_driver_65", "IBVERBS_PRIVATE_65"),
        ("ibv_query_gid_type", "IBVERBS_PRIVATE_65"),
        ("ibv_dmabuf_heap_free", "IBVERBS_PRIVATE_65"),
    },
    "librdmacm.so.1": {("rdma_resolve_addrinfo", "RDMACM_1.4"), ("repoll_wait", "RDMACM_1.5")},
}


def exported(library):
    """{(name, version)} and the set of those that are not the default version."""
    text = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    found, hidden = set(), set()
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] == "UND" or "@" not in fields[7]:
            continue
        name, version = re.split("@+", fields[7])
        found.add((name, version))
        if "@@" not in fields[7]:
            hidden.add((name, version))
    return found, hidden


def listed(name):
    lines = (DATA / name).read_text().splitlines()
    return {tuple(line.split()) for line in lines if line and not line.startswith("#")}


class Symbols(unittest.TestCase):
    def check(self, library, *lists):
        found, hidden = exported(libraries.FOLDER / library)
        wanted = set().union(*(listed(name) for name in lists))
        self.assertEqual(sorted(wanted - found), [])
        # A program is linked against the default version.
        self.assertEqual(sorted(wanted & hidden), [])
        self.assertEqual(sorted(NEWER[library] - found), [])
        return found, wanted

    def test_libibverbs(self):
        found, wanted = self.check("libibverbs.so.1", "libibverbs-44.symbols",
                                   "libibverbs-private-34.symbols")
        self.assertEqual((len(listed("libibverbs-44.symbols")), len(wanted)), (75, 75 + 71))
        self.assertIn(("weft_provider_table", "WEFT_PRIVATE_7"), found)
        self.assertIn(("weft_program_table", "WEFT_PRIVATE_7"), found)

    def test_librdmacm(self):
        _, wanted = self.check("librdmacm.so.1", "librdmacm-44.symbols")
        self.assertEqual(len(wanted), 68)

    def test_nothing_else_is_visible(self):
        for library, versions in (("libibverbs.so.1", r"IBVERBS_|WEFT_PRIVATE_7$"),
                                  ("librdmacm.so.1", r"RDMACM_")):
            found, _ = exported(libraries.FOLDER / library)
            symbols = {(name, version) for name, version in found if name != version}
            others = {pair for pair in symbols if not re.match(versions, pair[1])}
            self.assertEqual(sorted(others), [])

    def test_the_other_names_lead_here(self):
        # Some programs load libNAME.so first; with -dev packages that would be the system's.
        for name in ("libibverbs.so", "librdmacm.so"):
            self.assertEqual((libraries.FOLDER / name).resolve().name, name + ".1")

    def test_the_libraries_bring_their_runtime(self):
        for name in ("libibverbs.so.1", "librdmacm.so.1"):
            text = subprocess.run(["readelf", "--dynamic", "--wide", libraries.FOLDER / name],
                                  check=True, text=True, stdout=subprocess.PIPE).stdout
            self.assertNotIn("libstdc++", text)
            self.assertNotIn("libgcc_s", text)
            self.assertIn("NODELETE", text)


if __name__ == "__main__":
    sys.exit(libraries.main())
