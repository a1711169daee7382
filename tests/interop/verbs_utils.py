"""ibv_devices, ibv_devinfo and ibv_asyncwatch, from ibverbs-utils."""

import re
import signal

import cases
import harness
from harness import need


@cases.case("ibv_devices.lists_the_device")
def ibv_devices(stage):
    side = stage.start("ibv_devices", "ibv_devices")
    side.finish()
    found = [line.split() for line in side.lines if re.match(r"\s+weft0\s", line)]
    need(len(found) == 1, "weft0 is not shown exactly once")
    need(re.fullmatch(r"[0-9a-f]{16}", found[0][1]), f"no GUID: {found[0]}")


TRANSPORTS = {"roce": "InfiniBand", "iwarp": "iWARP", "ib": "InfiniBand"}


def ibv_devinfo(stage, personality):
    """All that a program can ask about the device, and it must be there: `-v` prints it."""
    side = stage.start("ibv_devinfo", "ibv_devinfo", "-v",
                       options=("--personality", personality))
    side.finish()
    need(re.search(r"hca_id:\s+weft0", side.output), "weft0 is not shown")
    need(re.search(r"state:\s+PORT_ACTIVE", side.output), "the port is not active")
    transport = TRANSPORTS[personality]
    need(re.search(rf"transport:\s+{transport}", side.output), f"not shown as {transport}")
    layer = "InfiniBand" if personality == "ib" else "Ethernet"
    need(re.search(rf"link_layer:\s+{layer}", side.output), f"the link layer is not {layer}")
    lid = int(re.search(r"port_lid:\s+(\d+)", side.output).group(1))
    need((lid != 0) == (personality == "ib") and lid < 0xC000, f"a wrong LID: {lid}")
    need(re.search(r"phys_port_cnt:\s+1$", side.output, re.MULTILINE), "not one port")
    for what in ("max_mr_size", "max_qp", "max_qp_wr", "max_cqe", "max_sge", "max_qp_rd_atom"):
        value = re.search(rf"\b{what}:\s+(\w+)", side.output)
        need(value and int(value.group(1), 0) > 0, f"{what} is not shown or 0")
    kind = "" if personality == "ib" else ", RoCE v2"
    gids = re.findall(rf"GID\[\s*\d+\]:\s+[^\s,]+{kind}", side.output)
    need(gids, "no GID is shown")
    need(personality == "iwarp" or len(gids) == 1, f"more than one such GID: {gids}")
    harness.need_no_trouble(side)


for _personality in TRANSPORTS:
    cases.add("ibv_devinfo.verbose" + ("" if _personality == "roce" else f"_{_personality}"),
              lambda stage, _personality=_personality: ibv_devinfo(stage, _personality))


@cases.case("ibv_asyncwatch.starts_and_ends")
def ibv_asyncwatch(stage):
    side = stage.start("ibv_asyncwatch", "stdbuf", "-oL", harness.installed("ibv_asyncwatch"))
    side.expect(r"weft0: async event FD \d+")
    side.signal(signal.SIGTERM)
    side.finish(status=None)
    code = side.process.returncode
    need(code in (-signal.SIGTERM, 128 + signal.SIGTERM), f"ended with {harness.ending(code)}")
