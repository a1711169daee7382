"""Failures on demand in programs of others: `weft run --fault`."""

import json
import os
import pathlib
import re
import signal
import subprocess
import textwrap
import time

import cases
import harness
import tshark
from harness import need

# Rule: what ibv_rc_pingpong prints about it.
CALLS = {
    "alloc-pd": "Couldn't allocate PD",
    "reg-mr": "Couldn't register MR",
    "create-cq": "Couldn't create CQ",
    "create-qp": "Couldn't create QP",
    "modify-qp": "Failed to modify QP to INIT",
    "post-recv": "Couldn't post receive (0)",
}
# Status: how libibverbs names it.
STATUSES = {
    "LOC_LEN_ERR": "local length error (1)",
    "LOC_QP_OP_ERR": "local QP operation error (2)",
    "LOC_PROT_ERR": "local protection error (4)",
    "WR_FLUSH_ERR": "Work Request Flushed Error (5)",
    "REM_INV_REQ_ERR": "remote invalid request error (9)",
    "REM_ACCESS_ERR": "remote access error (10)",
    "REM_OP_ERR": "remote operation error (11)",
    "RETRY_EXC_ERR": "transport retry counter exceeded (12)",
    "RNR_RETRY_EXC_ERR": "RNR retry counter exceeded (13)",
    "FATAL_ERR": "fatal error (19)",
    "GENERAL_ERR": "general error (21)",
}
CARRIERS = {"same_host": "auto", "tcp": "off"}


# The same, where ibv_rc_pingpong needs an option for the call.
MORE_CALLS = {
    "open-device": ((), "Couldn't get context for"),
    "create-comp-channel": (("-e",), "Couldn't create completion channel"),
}


# The same for calls of other programs: the program, its options, and what it prints.
OTHER_CALLS = {
    "create-srq": ("ibv_srq_pingpong", "Couldn't create SRQ"),
    "create-comp-channel": ("ibv_uc_pingpong", "Couldn't create completion channel"),
}


def rule(text):
    return ["--fault", text]


def need_text(side, text):
    need(text in side.output, f"{side.name} does not print '{text}':\n{side.output}")


def _call(point, printed, words=(), program="ibv_rc_pingpong"):
    def run(stage):
        side = stage.start("server", program, "-g", 0, "-p", harness.free_port(), *words,
                           options=rule(f"ENOMEM at {point} nth=1"))
        side.finish(status=1)
        need_text(side, printed)
        need_text(side, "1 rule of WEFT_FAULT for this program, with seed=")

    return run


for _point, _printed in CALLS.items():
    cases.add(f"faults.call.{_point.replace('-', '_')}", _call(_point, _printed))


for _point, (_words, _printed) in MORE_CALLS.items():
    cases.add(f"faults.call.{_point.replace('-', '_')}", _call(_point, _printed, _words))


for _point, (_program, _printed) in OTHER_CALLS.items():
    cases.add(f"faults.call.{_program}.{_point.replace('-', '_')}",
              _call(_point, _printed, ("-e",), _program))


@cases.case("faults.call.create_ah")
def create_ah(stage):
    """A client that knows its peer's address, and gets no handle for it."""
    port = harness.free_port()
    server = stage.start("server", "ibv_ud_pingpong", "-g", 0, "-p", port)
    server.await_listening(port)
    client = stage.start("client", "ibv_ud_pingpong", "-g", 0, "-p", port, "127.0.0.1",
                         options=rule("ENOMEM at create-ah nth=1"))
    client.finish(status=1)
    need_text(client, "Failed to create AH")
    stage.forget(server)


# No program of rdma-core or perftest has a window; pyverbs does.
_WINDOWS = """
import pyverbs.enums as e
from pyverbs.device import Context
from pyverbs.mr import MW
from pyverbs.pd import PD
context = Context(name="weft0")
domain = PD(context)
first = MW(domain, e.IBV_MW_TYPE_1)
print("the first window")
second = MW(domain, e.IBV_MW_TYPE_1)
"""


@cases.case("faults.call.alloc_mw")
def alloc_mw(stage):
    python = "/usr/bin/python3"  # the one that Debian's package is for
    if not harness.succeeds(python, "-c", "import pyverbs.device"):
        raise harness.Skip("no python3-pyverbs")
    side = stage.start("program", python, "-c", _WINDOWS,
                       options=rule("ENOMEM at alloc-mw nth=2"))
    side.finish(status=1)
    need_text(side, "the first window")
    need_text(side, "Errno: 12, Cannot allocate memory")


def pingpong(stage, server_rules=None, client_rules=None, carrier="auto", count=100,
             client_options=()):
    port = harness.free_port()
    both = ["-g", 0, "-p", port, "-n", count]
    options = ["--same-host", carrier]
    server = stage.start("server", "ibv_rc_pingpong", *both,
                         options=options + (rule(server_rules) if server_rules else []))
    server.await_listening(port)
    client = stage.start("client", "ibv_rc_pingpong", *both, "127.0.0.1",
                         options=[*options, *client_options,
                                  *(rule(client_rules) if client_rules else [])])
    return server, client


def _request(status, printed, carrier):
    def run(stage):
        server, client = pingpong(stage, client_rules=f"{status} at send nth=20", carrier=carrier)
        client.finish(status=1)
        need_text(client, f"Failed status {printed} for wr_id 2")
        stage.forget(server)  # its queue pair may wait for ever, as with adapters

    return run


for _status, _printed in STATUSES.items():
    for _name, _carrier in CARRIERS.items():
        cases.add(f"faults.send.{_status.lower()}.{_name}", _request(_status, _printed, _carrier))


def _post_send(error):
    def run(stage):
        server, client = pingpong(stage, client_rules=f"{error} at post-send nth=20")
        client.finish(status=1)
        need_text(client, "Couldn't post send")
        stage.forget(server)

    return run


for _error in ("ENOMEM", "EINVAL"):
    cases.add(f"faults.call.post_send.{_error.lower()}", _post_send(_error))


def _receive(carrier):
    def run(stage):
        server, client = pingpong(stage, server_rules="LOC_LEN_ERR at recv nth=20", carrier=carrier)
        client.finish(status=1)
        server.finish(status=1)
        need_text(server, "Failed status local length error (1) for wr_id 1")
        # As with a receive whose memory cannot be written: the sender learns of it.
        need_text(client, "Failed status remote operation error (11) for wr_id 2")

    return run


for _name, _carrier in CARRIERS.items():
    cases.add(f"faults.recv.{_name}", _receive(_carrier))


def _perftest(program, point, status, number, carrier):
    def run(stage):
        port = harness.free_port()
        both = ["-F", "-n", 1000, "-s", 4096, "-p", port]
        server = stage.start("server", program, *both, options=["--same-host", carrier])
        server.await_listening(port)
        client = stage.start("client", program, *both, "127.0.0.1",
                             options=["--same-host", carrier,
                                      *rule(f"{status} at {point} nth=300")])
        client.finish(status=1)
        need_text(client, f"Failed status {number}")
        server.finish(status=1)

    return run


for _name, _carrier in CARRIERS.items():
    cases.add(f"faults.ib_write_bw.{_name}",
              _perftest("ib_write_bw", "write", "REM_ACCESS_ERR", 10, _carrier))
    cases.add(f"faults.ib_read_bw.{_name}",
              _perftest("ib_read_bw", "read", "RETRY_EXC_ERR", 12, _carrier))
    cases.add(f"faults.any_request.{_name}",
              _perftest("ib_write_bw", "request", "REM_OP_ERR", 11, _carrier))


def rping(stage, server_rules=None, client_rules=None, count=3):
    """Silence ends after the time that an adapter waits, which is 10 s with iWARP and 74 s else."""
    port = harness.free_port()
    silent = "SILENCE at connect" in f"{server_rules} {client_rules}"
    common = ["--personality", "iwarp"] if silent else []
    server = stage.start("server", "rping", "-s", "-p", port, "-C", count, "-v",
                         options=common + (rule(server_rules) if server_rules else []))
    server.await_listening(port)
    client = stage.start("client", "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", count, "-v",
                         options=common + (rule(client_rules) if client_rules else []))
    return server, client


# Rules of the client: the event that rping prints, and its status.
CONNECTING = {
    "ADDR_ERROR at resolve-addr": ("ADDR_ERROR", -110),
    "ADDR_ERROR:EHOSTUNREACH at resolve-addr peer=127.0.0.1": ("ADDR_ERROR", -113),
    "ROUTE_ERROR at resolve-route": ("ROUTE_ERROR", -110),
    "REJECT at connect": ("REJECTED", -111),
    "REJECT:CONSUMER_DEFINED at connect": ("REJECTED", 28),
    "UNREACHABLE at connect": ("UNREACHABLE", -110),
    "CONNECT_ERROR:EINVAL at connect": ("CONNECT_ERROR", -22),
    "SILENCE at connect": ("UNREACHABLE", -110),
}


def _connecting(rules, event, status):
    def run(stage):
        server, client = rping(stage, client_rules=rules)
        client.expect(rf"RDMA_CM_EVENT_{event}, error {status}\b")
        client.finish(status=255)
        stage.forget(server)  # nothing comes to it

    return run


for _rules, (_event, _status) in CONNECTING.items():
    _name = re.sub(r"[^a-z]+", "_", _rules.partition(" peer=")[0].lower())
    cases.add(f"faults.connecting.{_name}", _connecting(_rules, _event, _status))


def _requested(rules, event, status):
    def run(stage):
        server, client = rping(stage, server_rules=rules)
        client.expect(rf"RDMA_CM_EVENT_{event}, error {status}\b")
        client.finish(status=255)
        need("cma" not in server.output, "the server has seen the request")
        stage.forget(server)

    return run


cases.add("faults.requested.reject", _requested("REJECT at connect-request", "REJECTED", -111))
cases.add("faults.requested.silence",
          _requested("SILENCE at connect-request", "UNREACHABLE", -110))


@cases.case("faults.timewait")
def timewait(stage):
    """rping's server meets an event that it does not know, after the end of the connection."""
    text = "TIMEWAIT_EXIT at disconnect"
    port = harness.free_port()
    server = stage.start("server", "rping", "-s", "-P", "-p", port,
                         options=[*rule(text), "--verbose"])
    server.await_listening(port)
    client = stage.start("client", "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 3)
    client.finish()
    server.expect(f'fault 1 of the rule "{text}" after ')
    stage.forget(server)


@cases.case("faults.late")
def late(stage):
    """Connections that are established late work, and are as late as the rules ask for."""
    begin = time.monotonic()
    server, client = rping(stage, server_rules="DELAY:300ms at connect-request",
                           client_rules="DELAY:300ms at connect")
    client.finish()
    server.finish()
    need(time.monotonic() - begin >= 0.6, "the connection was not late")
    begin = time.monotonic()
    server, client = pingpong(stage, server_rules="DELAY:600ms at pair")
    client.finish()
    server.finish()
    need(time.monotonic() - begin >= 0.6, "the pair was not late")


@cases.case("faults.no_pair")
def no_pair(stage):
    """Two queue pairs that never find each other: requests fail as without a network."""
    server, client = pingpong(stage, server_rules="UNREACHABLE at pair")
    client.finish(status=1)
    need_text(client, "Failed status transport retry counter exceeded (12)")
    stage.forget(server)  # it waits for a message


def write_bw(stage, server_rules=None, client_rules=None, options=()):
    port = harness.free_port()
    both = ["-F", "-n", 1000, "-s", 4096, "-p", port]
    server = stage.start("server", "ib_write_bw", *both,
                         options=rule(server_rules) if server_rules else [])
    server.await_listening(port)
    client = stage.start("client", "ib_write_bw", *both, "127.0.0.1",
                         options=[*options, *(rule(client_rules) if client_rules else [])])
    return server, client


# Rules, the side that has them, and the status of the client's Write.
STREAMS = {
    "fin": ("FIN at connection after=100000B", "client", 12),
    "fin_of_peer": ("FIN at connection after=100000B", "server", 12),
    "rst": ("RST at connection after=1MiB", "client", 12),
    "rst_of_peer": ("RST at connection after=1MiB", "server", 12),
    "rst_at_write": ("RST at write nth=300", "client", 12),
    "fin_at_first_write": ("FIN at write nth=1", "client", 12),
    "silence": ("SILENCE at connection after=100000B", "client", 12),
}


def _stream(rules, side, number):
    def run(stage):
        server, client = write_bw(stage, **{f"{side}_rules": rules})
        client.finish(status=1)
        need_text(client, f"Failed status {number}")
        server.finish(status=1)  # it notices that the client's program has ended

    return run


for _name, (_rules, _side, _number) in STREAMS.items():
    cases.add(f"faults.stream.{_name}", _stream(_rules, _side, _number))


def _terminated(rules, side, code):
    """tshark sees this Terminate, and the client's requests are flushed: it quotes none."""
    def run(stage):
        path = stage.scratch("client.pcapng")
        server, client = write_bw(stage, **{f"{side}_rules": rules}, options=["--capture", path])
        client.finish(status=1)
        need_text(client, "Failed status 5")
        server.finish(status=1)
        found = tshark.terminates(path)
        need(found == [code], f"Terminate {found}, expected {code}")

    return run


cases.add("faults.stream.bit_flip",
          _terminated("BIT_FLIP at connection after=100000B", "client", (2, 0, 2)))
cases.add("faults.stream.terminate",
          _terminated("TERMINATE:0/1/2 at connection after=100000B", "server", (0, 1, 2)))
cases.add("faults.stream.terminate_at_write",
          _terminated("TERMINATE:1/2/5 at write nth=300", "client", (1, 2, 5)))


@cases.case("faults.stream.stall")
def stall(stage):
    """A connection that stalls goes on afterwards. Rules about TCP keep a connection on it."""
    path = stage.scratch("stats.json")
    begin = time.monotonic()
    server, client = write_bw(stage, client_rules="STALL:700ms at connection after=100000B",
                              options=["--stats", path])
    client.finish()
    server.finish()
    need(time.monotonic() - begin >= 0.7, "the connection did not stall")
    found = json.loads(pathlib.Path(path).read_text())
    need(found["faults"][0]["faults"] == 1, f"{found['faults']}")
    need(found["queue_pairs"][0]["carrier_reason"] == "a rule of faults acts on TCP connections",
         f"{found['queue_pairs']}")


def _disconnected(action, after, side):
    def run(stage):
        server, client = rping(stage, count=10000,
                               **{f"{side}_rules": f"{action} at connection {after}"})
        # rping ends with the event or with a failed completion, whichever its threads see first.
        for end in (client, server):
            end.expect(r"DISCONNECT EVENT|cq completion failed status (5|12)\b")
        stage.forget(client)
        stage.forget(server)

    return run


for _action in ("FIN", "RST"):
    for _side in ("client", "server"):
        cases.add(f"faults.disconnected.{_action.lower()}.{_side}",
                  _disconnected(_action, "after=10000B", _side))
cases.add("faults.disconnected.in_time", _disconnected("FIN", "after=50ms", "client"))


def _late_completion(carrier):
    def run(stage):
        begin = time.monotonic()
        server, client = pingpong(stage, client_rules="DELAY:5ms at completion every=10",
                                  carrier=carrier)
        client.finish()
        server.finish()
        need(time.monotonic() - begin >= 0.05, "no completion was late")

    return run


def _overrun(carrier):
    """The queue pair fails. A program that does not ask for events may wait for ever."""
    def run(stage):
        path = stage.scratch("counters.json")
        server, client = pingpong(stage, carrier=carrier,
                                  client_rules="OVERRUN at completion nth=20",
                                  client_options=["--stats", path, "--verbose"])
        client.expect("fault 1 of the rule")
        end = time.monotonic() + harness.WAIT_S
        lost, states = 0, []
        while not (lost == 1 and states == ["ERR"]):
            need(time.monotonic() < end, f"{lost} completions are lost, the states are {states}")
            client.signal(signal.SIGUSR2)  # writes the statistics
            time.sleep(0.02)
            found = harness.json_of(path)
            if found:
                lost = sum(queue["lost"] for queue in found["completion_queues"])
                states = [each["state"] for each in found["queue_pairs"]]
        stage.forget(client)
        stage.forget(server)

    return run


for _name, _carrier in CARRIERS.items():
    cases.add(f"faults.completion.delay.{_name}", _late_completion(_carrier))
    cases.add(f"faults.completion.overrun.{_name}", _overrun(_carrier))


@cases.case("faults.arrival.late")
def arrival_late(stage):
    """A receiver that is not ready for a time: the message waits, and the statistics count it."""
    path = stage.scratch("counters.json")
    port = harness.free_port()
    both = ["-g", 0, "-p", port, "-n", 100]
    begin = time.monotonic()
    server = stage.start("server", "ibv_rc_pingpong", *both,
                         options=["--stats", path, *rule("RNR:50ms at arrival nth=20 times=1")])
    server.await_listening(port)
    client = stage.start("client", "ibv_rc_pingpong", *both, "127.0.0.1")
    client.finish()
    server.finish()
    need(time.monotonic() - begin >= 0.05, "the receiver was ready")
    found = json.loads(pathlib.Path(path).read_text())
    need(found["queue_pairs"][0]["rnr_waits"] >= 1, f"{found['queue_pairs']}")


@cases.case("faults.arrival.never")
def arrival_never(stage):
    """An iWARP device has no retries: the sender's request fails at once."""
    port = harness.free_port()
    iwarp = ["--personality", "iwarp"]
    server = stage.start("server", "rping", "-s", "-p", port, "-C", 3, "-v",
                         options=[*iwarp, *rule("RNR at arrival nth=2")])
    server.await_listening(port)
    client = stage.start("client", "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 3, "-v",
                         options=iwarp)
    client.expect(r"failed status 13\b")
    stage.forget(client)
    stage.forget(server)


def comments(path):
    """What the capture notes between its packets, according to tshark."""
    return [text for (text,) in tshark.fields(path, "frame.comment", "frame.comment")]


# A rule of the client, and the status with which ib_write_bw ends.
NOTED = {
    "request": ("REM_ACCESS_ERR at write nth=300", 1),
    "stall": ("STALL:20ms at connection after=100000B", 0),
    "completion": ("DELAY:5ms at completion nth=5", 0),
    "call": ("ENOMEM at reg-mr nth=1", 1),
    "reset": ("RST at connection after=100000B", None),
    "bit_flip": ("BIT_FLIP at connection after=100000B", None),
    "terminate": ("TERMINATE:1/1/1 at write nth=300", None),
    "queue_pair": ("QP_FATAL at write nth=300", None),
    "device": ("GID_CHANGE at device", 0),
}


def _noted(rules, status):
    """Each fault that happened is in the statistics, in the capture, and a line on stderr."""
    def run(stage):
        path, stats = stage.scratch("client.pcapng"), stage.scratch("counters.json")
        server, client = write_bw(stage, client_rules=rules,
                                  options=["--capture", path, "--stats", stats, "--verbose"])
        client.finish(status=status)
        text = f'fault 1 of the rule "{rules}" after '
        need_text(client, text)
        noted = [each for each in comments(path) if each.startswith(text)]
        need(len(noted) == 1, f"the capture has {comments(path)}")
        found = json.loads(pathlib.Path(stats).read_text())["faults"]
        need(found[0]["faults"] == 1, f"{found}")
        stage.forget(server)

    return run


for _name, _values in NOTED.items():
    cases.add(f"faults.noted.{_name}", _noted(*_values))


def rping_of(stage, server_options=(), client_options=()):
    """A server that stays for the next client, and a client."""
    port = harness.free_port()
    server = stage.start("server", "rping", "-s", "-P", "-p", port, options=server_options)
    server.await_listening(port)
    client = stage.start("client", "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 3,
                         options=client_options)
    return server, client


def pingpong_of(stage, server_options=(), client_options=()):
    port = harness.free_port()
    both = ["-g", 0, "-p", port, "-n", 100]
    server = stage.start("server", "ibv_rc_pingpong", *both, options=server_options)
    server.await_listening(port)
    return server, stage.start("client", "ibv_rc_pingpong", *both, "127.0.0.1",
                               options=client_options)


# Two programs, the side with the rule, and the rule. Not all of these programs end by themselves.
NOTED_EVERYWHERE = {
    "arrival": (pingpong_of, "server", "RNR:20ms at arrival nth=20"),
    "receive": (pingpong_of, "server", "LOC_LEN_ERR at recv nth=20"),
    "overrun": (pingpong_of, "client", "OVERRUN at completion nth=20"),
    "pair": (pingpong_of, "client", "DELAY:20ms at pair"),
    "silence": (pingpong_of, "client", "SILENCE at send nth=20"),
    "resolve_addr": (rping_of, "client", "ADDR_ERROR at resolve-addr"),
    "resolve_route": (rping_of, "client", "ROUTE_ERROR at resolve-route"),
    "connect": (rping_of, "client", "REJECT:CONSUMER_DEFINED at connect"),
    "connect_request": (rping_of, "server", "REJECT at connect-request"),
    "late_request": (rping_of, "server", "DELAY:20ms at connect-request"),
    "timewait": (rping_of, "server", "TIMEWAIT_EXIT:20ms at disconnect"),
    "fin": (rping_of, "server", "FIN at connection after=1KiB"),
}


def _noted_everywhere(start, name, rules):
    def run(stage):
        path, stats = stage.scratch("capture.pcapng"), stage.scratch("counters.json")
        options = [*rule(rules), "--capture", path, "--stats", stats, "--verbose"]
        sides = dict(zip(("server", "client"), start(stage, **{f"{name}_options": options})))
        text = f'fault 1 of the rule "{rules}" after '
        sides[name].expect(re.escape(text))
        end = time.monotonic() + harness.WAIT_S
        noted, counted = [], 0
        while not (len(noted) == 1 and counted == 1):
            need(time.monotonic() < end, f"the capture has {noted}, the statistics {counted}")
            sides[name].signal(signal.SIGUSR2)  # writes the statistics, if it has not ended
            time.sleep(0.02)
            noted = [each for each in comments(path) if each.startswith(text)]
            counted = ((harness.json_of(stats) or {}).get("faults") or [{"faults": 0}])[0]["faults"]
        for side in sides.values():
            stage.forget(side)

    return run


for _name, _values in NOTED_EVERYWHERE.items():
    cases.add(f"faults.noted.{_name}", _noted_everywhere(*_values))


def _one_side(name, other):
    """Both programs have the rule, as if they were started by one script."""
    def run(stage):
        paths = {side: stage.scratch(f"{side}.json") for side in (name, other)}
        text = rule(f"GENERAL_ERR at send nth=2 side={name}; FATAL_ERR at send process=ping; "
                    "FATAL_ERR at send peer=192.0.2.7; FATAL_ERR at send after=1GiB")
        options = {f"{side}_options": [*text, "--stats", path] for side, path in paths.items()}
        server, client = rping_of(stage, **options)
        failing, end = {"server": server, "client": client}[name], time.monotonic() + harness.WAIT_S
        failing.expect(r"failed status 21\b|general error")
        if name == "client":
            client.finish(status=None)
        found = {}
        while not found.keys() == paths.keys():
            need(time.monotonic() < end, f"statistics of {list(found)} only")
            server.signal(signal.SIGUSR2)
            client.signal(signal.SIGUSR2)
            time.sleep(0.02)
            found = {side: content["faults"] for side, path in paths.items()
                     if (content := harness.json_of(path))}
        need(found[name][0]["faults"] == 1, str(found))
        need(found[other][0]["occurrences"] == 0, str(found))
        # Of the others none applies: rping is no ping, and its peer is another host.
        for faults in found.values():
            need(all(each["faults"] == 0 for each in faults[1:]), str(found))
        stage.forget(server)
        stage.forget(client)

    return run


cases.add("faults.side.client", _one_side("client", "server"))
cases.add("faults.side.server", _one_side("server", "client"))


@cases.case("faults.conditions")
def conditions(stage):
    """Only towards this peer, in this program, and when so much was carried."""
    text = "GENERAL_ERR at send peer=127.0.0.1 process=rping after=64B"
    server, client = rping_of(stage, client_options=[*rule(text), "--verbose"])
    # Each Send of rping has 16 bytes.
    client.expect(rf'fault 1 of the rule "{text}" after 1 of its kind')
    client.finish(status=None)
    stage.forget(server)


@cases.case("faults.datagram")
def datagram(stage):
    port = harness.free_port()
    both = ["-g", 0, "-p", port, "-n", 100]
    server = stage.start("server", "ibv_ud_pingpong", *both)
    server.await_listening(port)
    client = stage.start("client", "ibv_ud_pingpong", *both, "127.0.0.1",
                         options=rule("LOC_QP_OP_ERR at send nth=50"))
    client.finish(status=1)
    need_text(client, "Failed status local QP operation error (2) for wr_id 2")
    stage.forget(server)  # datagrams have no end


@cases.case("faults.queue_pair_fatal")
def queue_pair_fatal(stage):
    """The queue pair fails by itself: the request behind it is flushed or refused."""
    for carrier in CARRIERS.values():
        path = stage.scratch(f"{carrier}.json")
        server, client = pingpong(stage, client_rules="QP_FATAL at send nth=20", carrier=carrier,
                                  client_options=["--stats", path])
        client.finish(status=1)
        found = json.loads(pathlib.Path(path).read_text())
        need(found["faults"][0]["faults"] == 1, str(found["faults"]))
        stage.forget(server)
        stage.forget(client)


@cases.case("faults.device_events")
def device_events(stage):
    """A program that only waits for events receives the ones that were asked for, in order."""
    side = stage.start("watcher", "ibv_asyncwatch",
                       options=rule("PORT_ERR at device after=50ms\n"
                                    "PORT_ACTIVE at device after=90ms\n"
                                    "GID_CHANGE at device after=120ms"))
    for event in ("PORT_ERR", "PORT_ACTIVE", "GID_CHANGE"):
        side.expect(f"IBV_EVENT_{event}")
    stage.forget(side)


@cases.case("faults.seed")
def seed(stage):
    """With the same seed a run repeats itself; the statistics and each line of it show so."""
    def run(number, name):
        path = stage.scratch(f"{name}.json")
        port = harness.free_port()
        both = ["-F", "-n", 1000, "-s", 64, "-p", port]
        server = stage.start(f"server {name}", "ib_write_bw", *both)
        server.await_listening(port)
        client = stage.start(f"client {name}", "ib_write_bw", *both, "127.0.0.1",
                             options=["--stats", path, "--verbose"] +
                             rule(f"seed={number}; GENERAL_ERR at write p=0.01"))
        client.finish(status=1)
        server.finish(status=1)
        need_text(client, f"with seed={number}")
        need_text(client, 'fault 1 of the rule "GENERAL_ERR at write p=0.01"')
        found = json.loads(pathlib.Path(path).read_text())
        need(found["fault_seed"] == number, f"the seed is {found['fault_seed']}")
        first = re.search(r"after (\d+) of its kind", client.output).group(1)
        need(found["faults"][0]["faults"] >= 1, f"{found['faults']}")
        need(found["faults"][0]["occurrences"] >= int(first), f"{found['faults']}")
        return first

    need(run(11, "first") == run(11, "second"), "the same seed gave another fault")


@cases.case("faults.page")
def page(stage):
    """The rules of docs/testing-your-program.md and of `weft help faults` are rules."""
    text = (pathlib.Path(__file__).parents[2] / "docs/testing-your-program.md").read_text()
    rules = re.findall(r"--fault '([^']+)'", text)
    rules += re.findall(r"`([A-Z]\w+(?::[^ `]+)? at [^`]+)`", text)
    explained = subprocess.run([harness.weft(), "help", "faults"], check=True, text=True,
                               stdout=subprocess.PIPE).stdout
    rules += re.findall(r"^  ([A-Z]\w+(?::[^ ]+)? at .*)$", explained, re.MULTILINE)
    rules = [each for each in rules if "POINT" not in each and "$" not in each]
    for each in re.findall(r"--adapter '?([\w=,]+)'?", text):
        stage.start(f"adapter {each}", "ibv_devices", options=["--adapter", each]).finish()
    links = re.findall(r"weft run --link ([\w=,.%-]+)", text)
    need(len(links) >= 2, "the page has no link")
    for each in links:
        stage.start(f"link {each}", "ibv_devices", options=["--link", each]).finish()
    need(len(rules) > 25, f"only {len(rules)} rules are found")
    for number, each in enumerate(rules):
        side = stage.start(f"program {number}", "ibv_devices", options=rule(each))
        side.finish()


def job_steps(text):
    """The name and the commands of each step of the page's job."""
    job = re.search(r"```yaml\n(.*?)```", text, re.DOTALL).group(1)
    steps = []
    for step in re.split(r"^      - ", job, flags=re.MULTILINE)[1:]:
        found = re.match(r"name: (.*)\n        run: (?:\|\n(.*)|(.*))", step, re.DOTALL)
        if found:
            name, block, line = found.groups()
            steps.append((name, textwrap.dedent(block) if block else line))
    return steps


@cases.case("faults.job")
def job(stage):
    """Each command of the page's job for continuous integration, but for the installation."""
    text = (pathlib.Path(__file__).parents[2] / "docs/testing-your-program.md").read_text()
    steps = job_steps(text)
    need(len(steps) == 8 and steps[0][0] == "install", f"the job has {[name for name, _ in steps]}")
    folder = pathlib.Path(stage.scratch("job"))
    folder.mkdir()
    for program in ("ibv_rc_pingpong", "tshark"):
        harness.installed(program)
    environment = {**os.environ, "GITHUB_RUN_ID": "17", "PORT": str(harness.free_port()),
                   "PATH": f"{pathlib.Path(harness.weft()).parent}:{os.environ['PATH']}"}
    for name, commands in steps[1:]:
        done = subprocess.run(["bash", "-e", "-c", commands], cwd=folder, env=environment,
                              check=False, capture_output=True, text=True, timeout=200)
        need(done.returncode == 0, f"the step '{name}' fails:\n{done.stdout}{done.stderr}")
    need(len(comments(folder / "late.pcapng")) >= 1, "no completion was late")


@cases.case("faults.mistakes")
def mistakes(stage):
    """A wrong rule ends the command before the program starts, and shows the place."""
    side = stage.start("program", "ibv_devices", options=rule("ENOMEM at create-pq"))
    side.finish(status=2)
    need_text(side, "ENOMEM at create-pq\n            ^")


def adapter(limits):
    return ["--adapter", limits]


@cases.case("faults.adapter.shown")
def adapter_shown(stage):
    """A program that asks sees the smaller adapter."""
    side = stage.start("program", "ibv_devinfo", "-v",
                       options=adapter("max_qp=8,max_cq=9,max_mr=10,max_sge=3,max_qp_wr=100,"
                                       "max_mr_size=64MiB,max_srq=0,max_ah=11,max_pd=12,max_mw=0,"
                                       "max_qp_rd_atom=5,atomics=0,max_cqe=500"))
    side.finish()
    shown = dict(re.findall(r"^\s*(\w+):\s+(\S+)", side.output, re.MULTILINE))
    for name, value in {"max_qp": "8", "max_cq": "9", "max_mr": "10", "max_sge": "3",
                        "max_qp_wr": "100", "max_mr_size": "0x4000000", "max_srq": "0",
                        "max_ah": "11", "max_pd": "12", "max_mw": "0", "max_qp_rd_atom": "5",
                        "atomic_cap": "ATOMIC_NONE", "max_cqe": "500"}.items():
        need(shown.get(name) == value, f"{name} is {shown.get(name)} and not {value}")


# What one side of perftest lacks: the program, its options, and what it prints about it.
SMALLER = {
    "queue": ("ib_write_bw", ["-t", 512], "max_qp_wr=100", "max_qp_wr",
              "Unable to create QP"),
    "queue_pairs": ("ib_write_bw", ["-q", 4], "max_qp=3", "max_qp", "Unable to create QP"),
    "regions": ("ib_write_bw", ["-s", 1 << 20], "max_mr_size=4096", "max_mr_size",
                "Couldn't allocate MR"),
    "atomics": ("ib_atomic_bw", [], "atomics=0", "", "Couldn't post send"),
}


def _smaller(program, options, limits, name, printed):
    def run(stage):
        path = stage.scratch("counters.json")
        port = harness.free_port()
        both = ["-F", "-n", 1000, "-p", port, *options]
        server = stage.start("server", program, *both)
        server.await_listening(port)
        client = stage.start("client", program, *both, "127.0.0.1",
                             options=adapter(limits) + ["--stats", path])
        client.finish(status=1)
        need_text(client, printed)
        stage.forget(server)  # it may wait for the parameters of the client
        if name:
            found = json.loads(pathlib.Path(path).read_text())["adapter"]
            need(found[name]["refused"] >= 1, f"no refusal of {name}: {found}")

    return run


for _name, _values in SMALLER.items():
    cases.add(f"faults.adapter.{_name}", _smaller(*_values))


@cases.case("faults.adapter.within_limits")
def adapter_within_limits(stage):
    """A program that stays within the limits does not notice them."""
    port = harness.free_port()
    both = ["-F", "-n", 1000, "-s", 4096, "-q", 2, "-t", 64, "-p", port]
    limits = adapter("max_qp=2,max_cq=2,max_mr=2,max_pd=1,max_qp_wr=128,max_sge=2,atomics=0")
    server = stage.start("server", "ib_write_bw", *both, options=limits)
    server.await_listening(port)
    client = stage.start("client", "ib_write_bw", *both, "127.0.0.1", options=limits)
    client.finish()
    server.finish()


@cases.case("faults.adapter.mistakes")
def adapter_mistakes(stage):
    side = stage.start("program", "ibv_devices", options=adapter("max_qp=8,max_sge=99"))
    side.finish(status=2)
    need_text(side, "  max_qp=8,max_sge=99\n                   ^")
