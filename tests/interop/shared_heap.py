"""The shared heap of `weft run`: what unmodified programs allocate by the page can be mapped by
their peers on this host, and is otherwise as ordinary memory is."""

import json
import os
import pathlib

import cases
import harness
from harness import need
from perftest import need_results


def _scenario(name, options=(), **variables):
    def run(stage):
        stage.start("program", harness.companion("shared_heap"), name, options=options,
                    env=variables).finish()

    cases.add(f"shared_heap.{name}", run)


for _name in ("forks", "frees", "pages", "stacks", "clones", "descriptor", "handlers", "threads",
              "no_device"):
    _scenario(_name)
_scenario("limit", WEFT_SHARED_HEAP_LIMIT="1")
_scenario("all", WEFT_SHARED_HEAP="all")
_scenario("off", ("--shared-heap", "off"))


def _under_checks(stage):
    """The checks see what is freed while it is registered, and call the heap behind them."""
    side = stage.start("program", harness.companion("shared_heap"), "frees", options=("--check",))
    side.finish(status=None)
    side.expect("freed-memory")
    harness.need(side.process.returncode == 0, f"the program ended with {side.process.returncode}")


cases.add("shared_heap.checked", _under_checks)


def _regions(path):
    """Of a process and its children."""
    files = pathlib.Path(os.path.dirname(path)).glob(os.path.basename(path) + "*")
    return [region for file in files
            for region in json.loads(file.read_text())["memory_regions"]]


def _perftest(program, *options, size, counter):
    """Both programs on the heap, with no call of the kernel that copies."""
    def run(stage):
        port = harness.free_port()
        both = ["-F", "-p", port, "-n", 1000, *options]
        both += [] if program.startswith("ib_atomic") else ["-s", size]
        files = [stage.scratch(name) for name in ("server.json", "client.json")]
        server = stage.start("server", program, *both, options=("--stats", files[0], "-v"))
        server.await_listening(port)
        client = stage.start("client", program, *both, "127.0.0.1",
                             options=("--stats", files[1], "-v"))
        client.finish()
        server.finish()
        need_results(client, [size])
        for side in (server, client):
            side.expect("shared heap: processes of this user can map the page-aligned memory")
        regions = [region for file in files for region in _regions(file)]
        need(regions and all(region["shared"] for region in regions),
             f"regions outside of the heap: {regions}")
        need(any(region[counter]["operations"] >= 1000 for region in regions),
             f"no {counter}: {regions}")
    return run


for _name, _program, _options, _size, _counter in (
        ("64", "ib_write_lat", (), 64, "peer_writes"),
        ("64", "ib_read_lat", (), 64, "peer_reads"),
        ("1mib", "ib_write_bw", (), 1 << 20, "peer_writes"),
        ("lists", "ib_write_bw", ("-l", "8"), 64, "peer_writes"),
        ("64kib", "ib_read_bw", (), 1 << 16, "peer_reads"),
        ("add", "ib_atomic_bw", ("-A", "FETCH_AND_ADD"), 8, "peer_atomics"),
        ("swap", "ib_atomic_bw", ("-A", "CMP_AND_SWAP"), 8, "peer_atomics")):
    cases.add(f"{_program}.shared_heap_{_name}",
              _perftest(_program, *_options, size=_size, counter=_counter))
