"""What the device captures of unmodified programs that succeed has no finding in `weft dissect`."""

import glob
import json
import subprocess

import cases
import harness
from harness import need

# They state how long something took: a busy machine causes them.
ABOUT_TIME = {"credit-stall", "delayed-acknowledgement", "retransmission-timer", "slow-answer",
              "slow-acknowledgement", "slow-reply", "silence", "zero-window", "not-ready"}

# A program that ends with its time may leave its last Read without a response.
MAY_HAVE = {"qperf.rc_rdma_read_lat": {"unanswered-request"}}

# Each is captured as its own case runs it; all are short.
CAPTURED = [
    "rping.ipv4", "rping.ipv6", "rping.iwarp", "rping.ib", "ucmatose.ipv4", "ucmatose.connections",
    "rdma_server.ipv4", "cmtime.connections", "udaddy.ipv4", "mckey.loopback",
    "ib_send_bw.raw_shared_receives", "ib_send_bw.raw_bidirectional", "ib_send_bw.raw_inline",
    "ib_write_bw.raw_eight_queue_pairs", "ib_read_bw.raw_eight_queue_pairs",
    "ib_atomic_bw.raw_cmp_and_swap", "ib_atomic_lat.raw_fetch_and_add",
    "ib_send_bw.raw_uc", "ib_send_bw.raw_xrc", "ib_send_bw.raw_ud", "ib_write_bw.iwarp",
    "ibv_rc_pingpong.events", "ibv_srq_pingpong.polling", "ibv_xsrq_pingpong.polling",
    "ibv_uc_pingpong.polling", "ibv_ud_pingpong.polling", "ibv_rc_pingpong.by_lid",
    "riostream.blocking", "udpong.blocking", "qperf.rc_rdma_read_lat",
    "ucx_perftest.rc_tag_lat", "ucx_perftest.rc_put_lat", "ucx_perftest.rc_get",
    "ucx_perftest.rc_am_lat", "ucx_perftest.ud_verbs_am_lat", "mpich.exchanges",
]
CARRIERS = {"same_host": "auto", "tcp": "off"}  # values of WEFT_SAME_HOST


class CapturingStage(harness.Stage):
    """Captures each side that runs on the device."""

    def __init__(self, same_host):
        super().__init__()
        self._same_host = same_host

    def start(self, name, program, *arguments, options=(), env=None, **more):
        path = self.scratch(f"{len(self.sides)}.pcapng")
        env = {**(env or {}), "WEFT_SAME_HOST": self._same_host}
        return super().start(name, program, *arguments, env=env,
                             options=[*options, "--capture", path], **more)

    def captures(self):
        """Also those of child processes, which have their process id behind the name."""
        return sorted(glob.glob(self.scratch("*.pcapng*")))


def findings_of(path):
    """The findings of a capture, without notes and those about time."""
    done = subprocess.run([harness.weft(), "dissect", "--findings", "--json", path],
                          capture_output=True, text=True, check=False)
    need(done.returncode in (0, 1), f"weft dissect of {path}: {done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line for line in lines
            if line.get("type") == "finding" and line["severity"] != "note"
            and line["kind"] not in ABOUT_TIME]


def _clean(name, same_host):
    def run(stage):
        with CapturingStage(same_host) as inner:
            cases.CASES[name].run(inner)
            stage.ran += inner.ran
            need(inner.captures(), "there is no capture")
            for path in inner.captures():
                found = [each for each in findings_of(path)
                         if each["kind"] not in MAY_HAVE.get(name, ())]
                need(not found, f"{path}: {json.dumps(found[:3], ensure_ascii=False)}")

    return run


for _name in CAPTURED:
    for _carrier, _value in CARRIERS.items():
        cases.add(f"clean_capture.{_name}.{_carrier}", _clean(_name, _value),
                  timeout_s=cases.CASES[_name].timeout_s)
