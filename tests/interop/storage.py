"""fio's RDMA engine, and the migration of a virtual machine by qemu. What arrives is compared."""

import filecmp
import glob
import json
import os
import pathlib
import time

import cases
import harness
from harness import need

_HOST = "127.0.0.1"
_PATTERN = 0x5AC3F1
_FIO = ("--name=job", "--ioengine=rdma", "--bs=64k", "--size=4m", "--thread")
_DEPTH = 8


def _peer_operations(path, name):
    """The sum of one counter in all processes that wrote statistics: fio forks."""
    found = 0
    for part in glob.glob(path + "*"):
        if os.path.getsize(part):
            pairs = json.loads(pathlib.Path(part).read_text())["queue_pairs"]
            found += sum(pair[name]["operations"] for pair in pairs)
    return found


def _fio(verb, counter, look):
    def run(stage):
        """The server's buffers are a file, whose name fio removes at the end."""
        port = harness.free_port()
        memory, statistics = stage.scratch("memory"), stage.scratch("stats.json")
        options = ("--personality", look)
        pathlib.Path(memory).write_bytes(bytes(1 << 20))
        buffers = open(memory, "rb")
        server = stage.start("server", "fio", *_FIO, f"--port={port}", "--rw=read",
                             f"--iodepth={_DEPTH}",
                             f"--mem=mmapshared:{memory}", options=options,
                             env={"WEFT_STATS": statistics})
        server.await_listening(port)
        with buffers:
            client = stage.start("client", "fio", *_FIO, f"--port={port}", f"--hostname={_HOST}",
                                 f"--verb={verb}", "--rw=write",
                                 f"--iodepth={_DEPTH}",
                                 f"--buffer_pattern={_PATTERN:#x}", options=options)
            client.finish()
            server.finish()
            arrived = buffers.read()
        done = _peer_operations(statistics, counter)
        need(done >= 64, f"not on the device: {done} of 64 operations")
        if verb != "read":  # what the client read stays in its own memory
            # fio stores a pattern that is a number with its first byte first.
            words = (_PATTERN.to_bytes(3, "big") * 65536)[:65536]
            found = arrived.count(words[:3 * 64])
            need(found > 8 * 60000 // 192, f"the pattern is not in the server's memory: {found}")
    return run


for _verb, _counter in (("write", "peer_writes"), ("read", "peer_reads")):
    for _look in ("roce", "iwarp"):
        cases.add(f"fio.{_verb}_{_look}", _fio(_verb, _counter, _look))


def _answer(side, command, pattern, start=0):
    side.say(command)
    return side.expect(pattern, start=start)


def _machine(stage, name, *arguments, statistics=None):
    """Stopped, so that its memory does not change. The monitor reads standard input."""
    return stage.start(name, "qemu-system-x86_64", "-accel", "tcg", "-m", "64", "-S", "-nodefaults",
                       "-display", "none", "-monitor", "stdio", *arguments, say=True,
                       env={"WEFT_STATS": statistics} if statistics else None)


def _await_migration(side, within_s=harness.WAIT_S):
    end = time.monotonic() + within_s
    while True:
        start = len(side.lines)
        state = _answer(side, "info migrate", r"^Migration status: (\S+)", start).group(1)
        if state == "completed":
            return
        need(state not in ("failed", "cancelled"), f"the migration has {state}")
        need(time.monotonic() < end, f"the migration is {state} after {within_s} s")
        time.sleep(0.05)


@cases.case("qemu.migration", timeout_s=240)
def migration(stage):
    """The memory of the machine has 16 MiB of random bytes, and is the same on both sides."""
    port = harness.free_port()
    content, first, second = (stage.scratch(name) for name in ("content", "first", "second"))
    pathlib.Path(content).write_bytes(os.urandom(16 << 20))
    statistics = stage.scratch("stats.json")
    target = _machine(stage, "target", "-incoming", f"rdma:{_HOST}:{port}", statistics=statistics)
    target.await_listening(port)
    source = _machine(stage, "source", "-device",
                      f"loader,file={content},addr=0x1000000,force-raw=on")
    source.say(f"migrate -d rdma:{_HOST}:{port}")
    _await_migration(source)
    for side, path in ((source, first), (target, second)):
        side.say(f'pmemsave 0 0x4000000 "{path}"')  # quoted: a slash would divide
        side.say("quit")
        side.finish()
    need(os.path.getsize(first) == 64 << 20, "the memory is not written")
    need(filecmp.cmp(first, second, shallow=False), "the memory differs")
    with open(second, "rb") as memory:
        memory.seek(0x1000000)
        need(memory.read(16 << 20) == pathlib.Path(content).read_bytes(), "the content differs")
    done = sum(_peer_operations(statistics, name) for name in ("peer_writes", "received"))
    need(done > 16, f"not on the device: {done} operations")
