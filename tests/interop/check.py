"""`weft run --check` on programs of others: its reports are true, and listed in docs/check.md."""

import json
import pathlib
import subprocess

import cases
import datagrams
import harness
from harness import Skip, need


def reported(path):
    """The checks that a report names, of all processes of a side."""
    found = set()
    for file in path.parent.glob(path.name + "*"):
        text = file.read_text()  # empty: of a process that was killed
        if text:
            found |= {finding["check"] for finding in json.loads(text)["findings"]}
    return found


def _case(program, *words, server=(), client=(), perhaps=(), server_words=(), client_words=(),
          faults=None, status=0):
    """Both sides run `program`; `server` and `client` name the checks that each breaks.

    What is in `perhaps` either side may break, as the timing of the run has it. `faults` are rules
    of the client, and both sides end with `status`.
    """

    def run(stage):
        harness.installed(program)
        port = harness.free_port()
        reports = {name: pathlib.Path(stage.scratch(f"{name}.json"))
                   for name in ("server", "client")}
        options = {name: ["--check-report", path] for name, path in reports.items()}
        if faults:
            options["client"] += ["--fault", faults]
        serving = stage.start("server", program, *words, *server_words, "-p", port,
                              options=options["server"])
        serving.await_listening(port)
        asking = stage.start("client", program, *words, *client_words, "-p", port, "127.0.0.1",
                             options=options["client"])
        asking.finish(status=status)
        serving.finish(status=status)
        for name, wanted, side in (("server", server, serving), ("client", client, asking)):
            found = reported(reports[name]) - set(perhaps)
            need(found == set(wanted), f"{name}: {found}, expected {set(wanted)}:\n{side.output}")

    return run


for _name, _words in {"rc": ["ibv_rc_pingpong"], "rc_events": ["ibv_rc_pingpong", "-e"],
                      "uc": ["ibv_uc_pingpong"], "ud": ["ibv_ud_pingpong"]}.items():
    cases.add(f"check.pingpong.{_name}", _case(*_words, "-g", 0))
# It ends when its queue pairs together have done their work: some may still have sends.
cases.add("check.pingpong.srq", _case("ibv_srq_pingpong", "-g", 0, perhaps=["never-polled"]))
for _name, _words in {"rc_checked": ["ibv_rc_pingpong", "-c"],
                      "rc_new_sends": ["ibv_rc_pingpong", "-N"],
                      "rc_odp": ["ibv_rc_pingpong", "-o"],
                      "rc_times": ["ibv_rc_pingpong", "-t"],
                      "uc_events": ["ibv_uc_pingpong", "-e"],
                      "ud_events": ["ibv_ud_pingpong", "-e"],
                      "xrc": ["ibv_xsrq_pingpong"]}.items():
    cases.add(f"check.pingpong.{_name}", _case(*_words, "-g", 0))

# The messages of the client are longer than the receives of the server.
cases.add("check.pingpong.short_receives",
          _case("ibv_rc_pingpong", "-g", 0, server_words=["-s", 1024], client_words=["-s", 4096],
                server=["short-receive"], perhaps=["leak", "never-polled"], status=1))

# The modes of perftest with their programs, and what each side breaks beside _USUAL.
_PROGRAMS = ("ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw", "ib_send_lat",
             "ib_send_bw", "ib_atomic_lat", "ib_atomic_bw")
_USUAL = {"ib_send_bw": {"client": ["leak"]}, "ib_atomic_lat": {"server": ["leak"]},
          # Its sides wait for the last byte of a Write.
          "ib_write_lat": {"perhaps": ["polled-write"]}}
_LATENCY = [each for each in _PROGRAMS if each.endswith("lat")]
_BANDWIDTH = [each for each in _PROGRAMS if each.endswith("bw")]
# Addresses are exchanged over rdma_cm out of the buffer into which the other side's arrive.
_ONE_BUFFER = {"server": ["leak"], "client": ["leak"], "perhaps": ["changed-send", "early-access",
                                                                   "polled-write"]}
_MODES = {
    "plain": ([], _PROGRAMS, {}),
    "events": (["-e"], ("ib_read_lat", "ib_send_lat", "ib_read_bw"), {}),
    "rdma_cm": (["-R"], _PROGRAMS, _ONE_BUFFER),
    "com_rdma_cm": (["-z"], ("ib_write_bw", "ib_send_lat"), _ONE_BUFFER),
    "large": (["-s", 1 << 20], ("ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw",
                                "ib_send_lat", "ib_send_bw"), {}),
    "each_size": (["-a"], ("ib_write_bw", "ib_read_bw", "ib_send_bw"), {}),
    "cycles": (["-C"], _LATENCY, {}),
    "no_peak": (["-N"], _BANDWIDTH, {}),
    "pairs": (["-q", 2], _BANDWIDTH, {}),
    "each_completion": (["-Q", 1], _BANDWIDTH, {}),
    "lists": (["-l", 4], ("ib_write_bw", "ib_read_bw", "ib_send_bw"), {}),
    "one_at_a_time": (["-t", 1], _BANDWIDTH, {}),
    "uc": (["-c", "UC"], ("ib_write_lat", "ib_write_bw", "ib_send_lat", "ib_send_bw"), {}),
    "ud": (["-c", "UD"], ("ib_send_lat", "ib_send_bw"), {}),
    "xrc": (["-c", "XRC"], ("ib_write_lat", "ib_write_bw", "ib_send_lat", "ib_send_bw",
                            "ib_read_bw"), {}),
    "inline": (["-I", 64], ("ib_write_lat", "ib_write_bw", "ib_send_lat", "ib_send_bw"), {}),
    "shared_receives": (["--use-srq"], ("ib_send_lat", "ib_send_bw"), {}),
    "old_posts": (["--use_old_post_send"], ("ib_write_bw", "ib_read_bw", "ib_send_bw"), {}),
    "on_demand": (["--odp"], ("ib_write_bw", "ib_read_bw"), {}),
    "swaps": (["-A", "CMP_AND_SWAP"], ("ib_atomic_lat", "ib_atomic_bw"), {}),
}
for _mode, (_words, _programs, _breaks) in _MODES.items():
    for _program in _programs:
        _sides = _breaks or _USUAL.get(_program, {})
        cases.add(f"check.{_program}.{_mode}", _case(_program, "-F", "-n", 100, *_words, **_sides))
# A Write whose key a rule of faults makes wrong: each side reports its part.
cases.add("check.ib_write_bw.refused",
          _case("ib_write_bw", "-F", "-n", 1000, server=["refused-peer"],
                client=["remote-refused"], perhaps=["leak", "never-polled"], status=1,
                faults="REM_ACCESS_ERR at write nth=300"))
# The client has more messages under way than the server has receives.
cases.add("check.ib_send_bw.few_receives",
          _case("ib_send_bw", "-F", "-n", 5000, "-s", 64, "-r", 16, server=["too-few-receives"],
                client=["leak"]))
cases.add("check.ib_send_bw.events", _case("ib_send_bw", "-F", "-e", "-n", 100))
cases.add("check.ib_send_bw.both_ways", _case("ib_send_bw", "-F", "-b", "-n", 100))
cases.add("check.ib_write_bw.both_ways", _case("ib_write_bw", "-F", "-b", "-n", 100))


def _need_debug_registers():
    told = subprocess.run([harness.weft(), "doctor"], stdout=subprocess.PIPE, text=True,
                          check=False).stdout
    if "lacks early-access and polled-write here" in told:
        raise Skip("the debug registers cannot be used: weft doctor")


@cases.case("check.ib_write_lat.waits")
def waits(stage):
    """Enough rounds that the byte for which both sides wait is found."""
    _need_debug_registers()
    both = ["polled-write"]
    _case("ib_write_lat", "-F", "-n", 5000, server=both, client=both)(stage)


@cases.case("check.ib_read_bw.one_buffer")
def one_buffer(stage):
    """It writes its addresses into the buffer of a posted receive."""
    _need_debug_registers()
    both = ["leak", "early-access"]
    _case("ib_read_bw", "-F", "-n", 100, "-R", server=both, client=both,
          perhaps=["changed-send"])(stage)


# A run that ends with its time leaves what is under way.
cases.add("check.ib_write_bw.time", _case("ib_write_bw", "-F", "-D", 1, perhaps=["never-polled"]))


def _rping(*words):
    def run(stage):
        reports = {name: pathlib.Path(stage.scratch(f"{name}.json"))
                   for name in ("server", "client")}
        port = harness.free_port()
        server = stage.start("server", "rping", "-s", "-p", port, "-C", 10, *words,
                             options=["--check-report", reports["server"]])
        server.await_listening(port)
        client = stage.start("client", "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 10,
                             *words, options=["--check-report", reports["client"]])
        client.finish()
        server.finish()
        for name, path in reports.items():
            need(not reported(path), f"{name}: {reported(path)}")

    return run


for _name, _words in {"plain": [], "validated": ["-V", "-v"], "small": ["-S", 100]}.items():
    cases.add(f"check.rping.{_name}", _rping(*_words))


def _udaddy(*words):
    def run(stage):
        path = pathlib.Path(stage.scratch("both.json"))
        datagrams.udaddy(stage, *words, weft_options=["--check-report", path])
        need(not reported(path), str(reported(path)))

    return run


cases.add("check.udaddy.ipv4", _udaddy())
cases.add("check.udaddy.connections", _udaddy("-c", 5, "-C", 20, "-S", 500))


@cases.case("check.cmtime.connections")
def cmtime(stage):
    """Its server serves until it is stopped."""
    port = harness.free_port()
    reports = {name: pathlib.Path(stage.scratch(f"{name}.json")) for name in ("server", "client")}
    both = ["-c", 50, "-p", port]
    server = stage.start("server", "cmtime", "-b", "127.0.0.1", *both,
                         options=["--check-report", reports["server"]])
    server.await_listening(port)
    stage.start("client", "cmtime", "-s", "127.0.0.1", *both,
                options=["--check-report", reports["client"]]).finish()
    found = {name: reported(path) for name, path in reports.items()}
    need(found == {"server": set(), "client": set()}, str(found))


def _fio(verb):
    """Its client destroys the queue and the channel before what uses them, and the server nothing.

    Both free their buffers, and what they keep for each job, and leave the regions.
    """
    def run(stage):
        reports = {name: pathlib.Path(stage.scratch(f"{name}.json"))
                   for name in ("server", "client")}
        port = harness.free_port()
        both = ["--name=job", "--ioengine=rdma", "--bs=64k", "--size=4m", "--thread",
                f"--port={port}", "--iodepth=8"]
        server = stage.start("server", "fio", *both, "--rw=read",
                             options=["--check-report", reports["server"]])
        server.await_listening(port)
        client = stage.start("client", "fio", *both, "--hostname=127.0.0.1", f"--verb={verb}",
                             "--rw=write", options=["--check-report", reports["client"]])
        client.finish()
        server.finish()
        found = {name: reported(path) for name, path in reports.items()}
        need(found == {"server": {"leak", "freed-memory"},
                       "client": {"leak", "freed-memory", "still-in-use"}}, str(found))

    return run


for _verb in ("write", "read"):
    cases.add(f"check.fio.{_verb}", _fio(_verb))


def _ucx(test):
    """A worker frees its pools before it destroys its queue pairs and deregisters the pools."""
    def run(stage):
        harness.installed("ucx_perftest")
        reports = {name: pathlib.Path(stage.scratch(f"{name}.json"))
                   for name in ("server", "client")}
        port = harness.free_port()
        common = ("-p", port, "-t", test, "-s", "65536", "-n", "100", "-w", "10")
        env = {"UCX_TLS": "rc_v,ud_v,self"}
        server = stage.start("server", "ucx_perftest", *common, env=env,
                             options=["--check-report", reports["server"]])
        server.await_listening(port)
        client = stage.start("client", "ucx_perftest", "127.0.0.1", *common, env=env,
                             options=["--check-report", reports["client"]])
        client.finish()
        server.finish()
        for name, path in reports.items():
            # The receiver of a put waits for its last byte, which the check samples.
            found = reported(path) - {"never-polled", "unmapped-memory", "changed-send",
                                      "polled-write"}
            need(found == {"freed-memory", "freed-posted"}, f"{name}: {found}")

    return run


for _test in ("tag_bw", "ucp_put_bw"):
    cases.add(f"check.ucx_perftest.{_test}", _ucx(_test))

# What each test of qperf may break, as the end of its time has it.
_QPERF_PERHAPS = {"never-polled", "not-drained", "too-few-receives"}


def _qperf(test, options, look, perhaps):
    def run(stage):
        port = harness.free_port()
        path = pathlib.Path(stage.scratch("client.json"))
        both = ["--personality", look]
        server_path = pathlib.Path(stage.scratch("server.json"))
        server = stage.start("server", "qperf", "-lp", port,
                             options=[*both, "--check-report", server_path])
        server.await_listening(port)
        client = stage.start("client", "qperf", "-lp", port, *options, "-t", 1, "127.0.0.1", test,
                             options=[*both, "--check-report", path])
        client.finish()
        stage.start("end", "qperf", "-lp", port, "127.0.0.1", "quit", options=both).finish()
        server.finish(status=None)
        found = reported(path) - perhaps
        need(found == {"leak", "still-in-use"}, f"client: {found}:\n{client.output}")
        found = reported(server_path) - perhaps - {"leak"}
        need(found == {"still-in-use"}, f"server: {found}:\n{server.output}")

    return run


_QPERF = ("rc_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_read_lat", "rc_rdma_write_bw",
          "rc_rdma_write_lat", "rc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr",
          "ver_rc_compare_swap", "ver_rc_fetch_add")
# By rdma_cm qperf asks for no retries of Sends that find no receive, so that rc_bi_bw may fail.
_QPERF_BY_LID = ("rc_bi_bw", "uc_bi_bw", "uc_bw", "uc_lat", "uc_rdma_write_bw", "uc_rdma_write_lat",
                 "uc_rdma_write_poll_lat")
_WAITS = {"polled-write"}  # for the last byte of a Write
for _test in _QPERF:
    _perhaps = _QPERF_PERHAPS | (_WAITS if "poll_lat" in _test else set())
    cases.add(f"check.qperf.{_test}", _qperf(_test, ["-cm", 1], "roce", _perhaps))
for _test in _QPERF + _QPERF_BY_LID:
    _perhaps = _QPERF_PERHAPS | (_WAITS if "poll_lat" in _test else set())
    cases.add(f"check.qperf.{_test}_by_lid", _qperf(_test, [], "ib", _perhaps))
# Sends and receives of datagrams use one buffer, so that what arrives changes what is sent.
for _test in ("ud_bi_bw", "ud_bw", "ud_lat"):
    cases.add(f"check.qperf.{_test}_by_lid",
              _qperf(_test, ["-m", 1024], "ib", _QPERF_PERHAPS | {"changed-send"}))
