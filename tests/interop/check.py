"""`weft run --check` on programs of others: its reports are true, and listed in docs/check.md."""

import json
import pathlib

import cases
import harness
from harness import need


def reported(path):
    """The checks that a report names, of all processes of a side."""
    found = set()
    for file in path.parent.glob(path.name + "*"):
        found |= {finding["check"] for finding in json.loads(file.read_text())["findings"]}
    return found


def _case(program, *words, server=(), client=(), perhaps=()):
    """Both sides run `program`; `server` and `client` name the checks that each breaks.

    What is in `perhaps` either side may break, as the timing of the run has it.
    """

    def run(stage):
        harness.installed(program)
        port = harness.free_port()
        reports = {name: pathlib.Path(stage.scratch(f"{name}.json"))
                   for name in ("server", "client")}
        options = {name: ["--check-report", path] for name, path in reports.items()}
        serving = stage.start("server", program, *words, "-p", port, options=options["server"])
        serving.await_listening(port)
        asking = stage.start("client", program, *words, "-p", port, "127.0.0.1",
                             options=options["client"])
        asking.finish()
        serving.finish()
        for name, wanted, side in (("server", server, serving), ("client", client, asking)):
            found = reported(reports[name]) - set(perhaps)
            need(found == set(wanted), f"{name}: {found}, expected {set(wanted)}:\n{side.output}")

    return run


for _name, _words in {"rc": ["ibv_rc_pingpong"], "rc_events": ["ibv_rc_pingpong", "-e"],
                      "uc": ["ibv_uc_pingpong"], "ud": ["ibv_ud_pingpong"]}.items():
    cases.add(f"check.pingpong.{_name}", _case(*_words, "-g", 0))
# It ends when its queue pairs together have done their work: some may still have sends.
cases.add("check.pingpong.srq", _case("ibv_srq_pingpong", "-g", 0, perhaps=["never-polled"]))
for _program in ("ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw", "ib_send_lat",
                 "ib_atomic_bw"):
    cases.add(f"check.{_program}", _case(_program, "-n", 100))
cases.add("check.ib_send_bw", _case("ib_send_bw", "-n", 100, client=["leak"]))
cases.add("check.ib_send_bw_both", _case("ib_send_bw", "-b", "-n", 100))
# A queue pair of XRC has one completion queue, or none.
cases.add("check.ib_send_lat_xrc", _case("ib_send_lat", "-n", 100, "-c", "XRC"))
cases.add("check.ib_write_bw_xrc", _case("ib_write_bw", "-n", 100, "-c", "XRC"))
cases.add("check.ib_write_bw_uc", _case("ib_write_bw", "-n", 100, "-c", "UC"))
cases.add("check.ib_write_bw_rdma_cm", _case("ib_write_bw", "-n", 100, "-R",
                                             server=["leak"], client=["leak"]))
cases.add("check.ib_atomic_lat", _case("ib_atomic_lat", "-n", 100, server=["leak"]))
