"""Programs of libfabric on Weft's provider: Debian's fi_info, and the smallest one of a stream."""

import json
import os
import pathlib

import cases
import harness
import tshark
from harness import need


def environment():
    folder = pathlib.Path(harness.weft()).resolve().parents[1] / "lib/libfabric"
    if not (folder / "libweft-fi.so").exists():
        raise harness.Skip("the provider was not built: libfabric-dev is missing")
    return {"FI_PROVIDER_PATH": str(folder)}


def _need_the_offer(side):
    side.finish()
    for line in ("provider: weft", "domain: weft0", "type: FI_EP_SOCK_STREAM",
                 "protocol: FI_PROTO_RSTREAM"):
        need(line in side.output, f"no line says {line}")


@cases.case("fi_info.weft")
def fi_info(stage):
    """It is offered with and without `weft run`, and the other providers stay."""
    program = harness.installed("fi_info")
    _need_the_offer(stage.start("on the device", "fi_info", "-p", "weft", env=environment()))
    _need_the_offer(stage.plain("alone", program, "-p", "weft", env=environment()))
    everybody = stage.plain("everybody", program, "-l", env=environment())
    everybody.finish()
    for name in ("weft:", "tcp"):
        need(name in everybody.output, f"{name} is not among the providers")


def _greet(stage, protocol, run_server, run_client):
    harness.installed("tshark")
    program = harness.companion("fabric_greeting")
    if not os.path.exists(program):
        raise harness.Skip("libfabric-dev is missing")
    path = stage.scratch("capture.pcapng")
    server = run_server("server", program, "server", protocol, env=environment())
    port = server.expect(r"^(\d+)$").group(1)
    client = run_client("client", program, "client", port, protocol,
                        env={**environment(), "WEFT_CAPTURE": path})
    client.finish()
    server.finish()
    need("hello stream!" in client.output, "the client has not got the greeting")
    need("the greeting came back" in server.output, "the greeting did not come back")
    return tshark.check(path)


@cases.case("libfabric.greeting")
def greeting(stage):
    counts = _greet(stage, "rstream", stage.start, stage.start)
    need(counts["Send"] == 0, "a Send where immediate data were agreed on")


@cases.case("libfabric.greeting_alone")
def greeting_alone(stage):
    """Without `weft run`, and with a peer that has it."""
    _greet(stage, "rstream", stage.start, stage.plain)


@cases.case("libfabric.greeting_iwarp")
def greeting_iwarp(stage):
    counts = _greet(stage, "iwarp", stage.plain, stage.start)
    need(counts["Send"] >= 2, "no Send behind the Writes")
    need(counts["Write"] >= 1, "no Write")


def converse(stage, provider, kind, look, places=(None, None), address="127.0.0.1"):
    """libfabric's own provider for verbs. With -c each message is compared. The server names no
    address of its own: the provider finds one, and the client is told."""
    port = harness.free_port()
    statistics = stage.scratch("stats.json")
    options = ("--personality", look)
    common = ("-p", provider, "-e", kind, "-I", 50, "-c")
    server = stage.start("server", "fi_pingpong", *common, "-B", port, options=options,
                         place=places[0], env={"WEFT_STATS": statistics})
    server.await_listening(port)
    client = stage.start("client", "fi_pingpong", *common, "-P", port, address, options=options,
                         place=places[1])
    client.finish()
    server.finish()
    done = sum(pair[name]["operations"]
               for pair in json.loads(pathlib.Path(statistics).read_text())["queue_pairs"]
               for name in ("received", "peer_reads"))
    need(done >= 50, f"not on the device: {done} operations")


def _pingpong(provider, kind, look):
    return lambda stage: converse(stage, provider, kind, look)


for _name, _provider, _kind in (("msg", "verbs", "msg"), ("rxm", "verbs;ofi_rxm", "rdm")):
    for _look in ("roce", "iwarp"):
        cases.add(f"fi_pingpong.{_name}_{_look}", _pingpong(_provider, _kind, _look))
cases.add("fi_pingpong.rxd", _pingpong("verbs;ofi_rxd", "rdm", "roce"))
