"""dtest of DAPL (uDAPL 2.0) on its providers for rdma_cm, and for queue pairs that exchange their
numbers over a socket. It compares what arrives."""

import json
import pathlib

import cases
import harness
from harness import need

_HOST = "127.0.0.1"
_PORT = 45248  # dtest has no option for it
# dat.conf(5)
_PROVIDERS = {"cma": ("libdaplofa.so.2", "lo 0"), "scm": ("libdaploscm.so.2", "weft0 1")}


def _environment(stage, provider):
    library, device = _PROVIDERS[provider]
    path = stage.scratch("dat.conf")
    pathlib.Path(path).write_text(
        f'weft u2.0 nonthreadsafe default {library} dapl.2.0 "{device}" ""\n')
    return {"DAT_OVERRIDE": path}


def _run(program, provider, arguments, server_arguments, client_arguments, look="roce"):
    def run(stage):
        harness.require_free(_PORT)
        environment = _environment(stage, provider)
        statistics = stage.scratch("stats.json")
        options = ("--personality", look)
        server = stage.start("server", program, *arguments, *server_arguments, options=options,
                             env={**environment, "WEFT_STATS": statistics})
        server.expect(r"(?i)waiting|ready")
        client = stage.start("client", program, *arguments, *client_arguments, options=options,
                             env=environment)
        client.finish()
        server.finish()
        done = sum(pair[name]["operations"]
                   for pair in json.loads(pathlib.Path(statistics).read_text())["queue_pairs"]
                   for name in ("received", "peer_writes", "peer_reads"))
        need(done >= 10, f"not on the device: {done} operations")
    return run


for _name, _provider, _look in (("cma", "cma", "roce"), ("cma_iwarp", "cma", "iwarp"),
                                ("scm", "scm", "roce")):
    cases.add(f"dtest.{_name}", _run("dtest", _provider, ("-P", "weft", "-b", 8192, "-D"), ("-s",),
                                     ("-h", _HOST), _look))
