"""tshark's opinion of a capture that the device wrote, read as the judge it is.

Its heuristic for RPC-over-RDMA takes perftest's payload for RPC and calls it malformed, so that one
dissector is off. It knows revision 1 of MPA only and warns of revision 2. It has no name for the
opcodes 8 and 9 (immediate data, RFC 7306), which it shows as DDP only. It knows MPA by its first
bytes, and asks them last: a port that some protocol is known for would win.
"""

import collections
import os
import subprocess
import tempfile

import harness
from harness import need

# Twice over the file (-2): what a frame belongs to is often known later only.
_ARGUMENTS = ["-n", "-2", "--disable-protocol", "rpcordma", "-o", "tcp.check_checksum:TRUE",
              "-o", "ip.check_checksum:TRUE", "-o", "tcp.try_heuristic_first:TRUE"]
# RFC 5040 §4.3, RFC 7306 §6.1
OPCODES = ("Write", "Read Request", "Read Response", "Send", "Send with Invalidate",
           "Send with SE", "Send with SE and Invalidate", "Terminate", "Immediate Data",
           "Immediate Data with SE", "Atomic Request", "Atomic Response")


def run(path, *arguments):
    """Output lines. tshark wants a directory for its settings, and a home may not be writable."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [harness.installed("tshark"), *_ARGUMENTS, "-r", path, *arguments], check=False,
            capture_output=True, text=True, errors="replace",
            env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "LC_ALL": "C.UTF-8"})
    need(done.returncode == 0, f"tshark cannot read {path}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def fields(path, select, *names):
    """One list of words for each frame that `select` takes."""
    arguments = [word for name in names for word in ("-e", name)]
    return [line.split("\t") for line in run(path, "-Y", select, "-T", "fields", *arguments)]


def need_nothing(path, select, what):
    found = run(path, "-Y", select)
    need(not found, f"{len(found)} frames {what}, the first: {found[0] if found else ''}")


def opcodes(path):
    """How many FPDUs of each RDMAP opcode."""
    counts = collections.Counter()
    for (codes,) in fields(path, "iwarp_rdma.opcode", "iwarp_rdma.opcode"):
        for code in codes.split(","):
            counts[OPCODES[int(code, 0)] if int(code, 0) < len(OPCODES) else code] += 1
    return counts


def check_crcs(path):
    """Each FPDU has a CRC and it is the right one. Returns how many there are."""
    lines = run(path, "-O", "iwarp_mpa", "-Y", "iwarp_mpa.fpdu")
    fpdus = sum("ULPDU length:" in line for line in lines)
    checks = [line.strip() for line in lines if "CRC check:" in line]
    other = [line for line in checks if "(Good CRC32)" not in line]
    need(not other, f"{len(other)} FPDUs have a bad CRC: {other[:1]}")
    need(fpdus > 0, "no FPDU in the capture")
    need(len(checks) == fpdus, f"{fpdus} FPDUs, {len(checks)} CRCs")
    return fpdus


def check(path):
    """A capture of a connection with CRCs is without fault. Returns the counts of the opcodes."""
    need(os.path.getsize(path) > 0, f"{path} is empty")
    need_nothing(path, "_ws.malformed", "are malformed")
    need_nothing(path, "tcp.checksum.status != 1", "have a bad TCP checksum")
    need_nothing(path, "ip && ip.checksum.status != 1", "have a bad IP checksum")
    need_nothing(path, "tcp.analysis.flags", "look like loss to tshark")
    need_nothing(path, "tcp.len > 0 && !iwarp_mpa && !tcp.reassembled_in",
                 "carry bytes that belong to no MPA frame")
    need_nothing(path, "iwarp_mpa.fpdu && !iwarp_ddp && !iwarp_rdma",
                 "have an FPDU without DDP")
    check_crcs(path)
    return opcodes(path)


_TERMINATE = ("iwarp_rdma.term_layer", "iwarp_rdma.term_etype_rdma",
              "iwarp_rdma.term_etype_ddp", "iwarp_rdma.term_etype_llp", "iwarp_rdma.term_etype",
              "iwarp_rdma.term_errcode_rdma", "iwarp_rdma.term_errcode_ddp_tagged",
              "iwarp_rdma.term_errcode_ddp_untagged", "iwarp_rdma.term_errcode_llp",
              "iwarp_rdma.term_errcode")


def terminates(path):
    """(layer, type, code) of each Terminate."""
    found = []
    for words in fields(path, "iwarp_rdma.terminate", *_TERMINATE):
        values = [int(word.split(",")[0], 0) if word else None for word in words]
        first = [next((v for v in group if v is not None), None)
                 for group in (values[:1], values[1:5], values[5:])]
        found.append(tuple(first))
    return found
