"""Which layer may include which, and no file includes itself by a detour."""

import sys

import house

# What the files of a layer may include, besides their own layer. The layers above the seam work on
# any device, so below `provider` they see nothing but `base`.
MAY_INCLUDE = {
    "base": set(),
    "wire": {"base"},
    "faults": {"base"},
    "live": {"base"},
    "iwarp": {"base", "wire"},
    "device": {"base", "wire", "iwarp", "faults", "live"},
    "cm": {"base", "wire", "iwarp", "faults", "device"},
    "provider": {"base", "wire", "iwarp", "faults", "live", "device", "cm"},
    "check": {"base", "provider"},
    "verbs": {"base", "provider"},
    "simulation": {"base", "verbs"},
    "connection": {"base", "provider", "verbs"},
    "message": {"base", "provider", "verbs", "connection"},
    "stream": {"base", "provider", "verbs", "connection"},
    "c": {"base", "verbs", "connection", "message", "stream"},
    "capture": {"base", "wire"},
    "library": {"base", "check", "provider", "verbs"},  # which it puts together
    "dropin": {"base", "provider", "check", "stream"},
    # of provider the device of the drop-in, by its name
    "interpose": {"base", "provider", "stream"},
    "fabric": {"base", "stream"},
    # of provider the table of environment variables, of check its rules, which know no device
    "cli": {"base", "capture", "check", "faults", "live", "provider", "public"},
    "examples": {"public"},
}
# The rooms of a layer are its folders, and "." stands for the files beside them. The table has for
# each room the other rooms of the layer that its files may include. Public headers belong to no
# room. A layer without an entry has no such rules; in a layer with one, each folder needs a row.
ROOMS = {
    "device": {
        ".": {"completion", "connect", "datagram", "faults", "local", "memory", "queue_pair",
              "tap", "trace"},
        "completion": {".", "queue_pair", "trace"},  # the slots of the requests that complete
        "connect": {".", "faults", "local", "queue_pair", "tap"},
        "datagram": {".", "connect", "faults", "tap"},
        "faults": {".", "tap", "trace"},
        "local": {".", "memory", "queue_pair", "trace"},
        "memory": {".", "local"},  # regions are published for other processes
        "queue_pair": {".", "completion", "connect", "datagram", "faults", "local", "memory",
                       "trace"},
        "tap": {".", "datagram"},
        "trace": {"completion"},  # what is traced is delivered there
    },
    "capture": {
        "text": set(),
        "page": set(),
        "tcp": set(),
        "sources": {"tcp"},
        "iwarp": {"sources", "tcp"},
        "infiniband": {"sources", "tcp"},
        "filter": set(),
        "findings": {"text"},
        "rpc": {"findings", "tcp", "text"},
        "management": {"text"},
        # rpc/send_assembly.h joins the parts of any Send, and findings/allowance.h follows limits.
        "storage": {"findings", "rpc", "text"},
        "report": {"filter", "findings", "page", "rpc", "text"},
        # These files join the rooms, so no room may include them.
        ".": {"filter", "findings", "infiniband", "iwarp", "report", "rpc", "sources", "tcp",
              "text"},
    },
}
# Public headers are include/weft/LAYER.hpp or LAYER/*.hpp. These belong to no layer above base:
# anybody may include them.
PUBLIC_BASE = {"asio", "bytes", "counters", "deadline", "device_options", "error", "executor",
               "export", "handle", "log", "task", "version"}
# include/weft/weft.hpp includes all the others, and only programs include it.
PUBLIC_ALL = "weft"

SEES_VERBS = {"device", "cm", "provider", "check", "verbs", "dropin"}
VERBS_HEADERS = ("infiniband/", "rdma/")
# libfabric's headers lie beside those of rdma_cm, and have nothing to do with verbs.
SEES_FABRIC = {"fabric"}
FABRIC_HEADERS = ("rdma/fabric.h", "rdma/fi_", "rdma/providers/")

# iwarp is driven from outside: bytes, work and time are arguments.
IWARP_FORBIDDEN = {
    "arpa/inet.h", "fcntl.h", "netdb.h", "netinet/in.h", "netinet/tcp.h", "poll.h", "pthread.h",
    "signal.h", "stdio.h", "sys/epoll.h", "sys/eventfd.h", "sys/file.h", "sys/ioctl.h",
    "sys/mman.h", "sys/poll.h", "sys/random.h", "sys/select.h", "sys/sendfile.h", "sys/socket.h",
    "sys/stat.h", "sys/time.h", "sys/timerfd.h", "sys/un.h", "sys/wait.h", "threads.h", "time.h",
    "unistd.h",
    "barrier", "chrono", "condition_variable", "cstdio", "ctime", "filesystem", "fstream", "future",
    "iostream", "latch", "mutex", "semaphore", "shared_mutex", "stop_token", "thread",
}


def layer_of(root, path):
    """The layer of a file, and whether it is a public header; None where no rule applies."""
    parts = path.relative_to(root).parts
    if parts[0] == "src" and len(parts) > 2:
        return parts[1], False
    if parts[0] == "examples":
        return "examples", False
    if parts[:2] == ("include", "weft") and len(parts) > 2:
        stem = parts[2].removesuffix(".hpp")
        if stem == PUBLIC_ALL:
            return "examples", True
        if stem in PUBLIC_BASE:
            return "base", True
        for layer in MAY_INCLUDE:
            if stem == layer or stem.startswith(layer + "_"):
                return layer, True
        return "unknown", True
    return None, False


def room_of(root, path):
    """The room of a file below src/, "." beside the rooms; None outside of layers with rooms."""
    parts = path.relative_to(root).parts
    if parts[0] != "src" or len(parts) < 3 or parts[1] not in ROOMS:
        return None
    return parts[2] if len(parts) > 3 else "."


def resolve(root, path, name, quoted):
    """The project's file behind an #include, or None for a system header."""
    bases = [root / "src", root / "include"]
    if quoted:
        bases = [path.parent, *bases, root / "tests"]
    for base in bases:
        found = base / name
        if found.is_file():
            return found.resolve()
    return None


class Checker:
    def __init__(self, root):
        self.root = root.resolve()
        self.report = house.Report(self.root)
        trees = ("src", "include", "examples", "tests")
        self.paths = house.sources(self.root, trees)
        # Per file: (line, name, file or None for a system header)
        self.graph = {
            path: [
                (line, name, resolve(self.root, path, name, quoted))
                for line, name, quoted in house.includes(path)
            ]
            for path in self.paths
        }

    def check(self):
        for path in self.paths:
            layer, public = layer_of(self.root, path)
            if layer is None:
                continue
            if layer not in MAY_INCLUDE:
                self.report.fail(path, 1, "belongs to no layer: name it after one, or add it to "
                                          "the tables of tests/house/includes.py")
                continue
            self.check_rooms(path, layer)
            for line, name, target in self.graph[path]:
                if target is None:
                    self.check_system(path, line, layer, name)
                else:
                    self.check_direction(path, line, layer, public, name, target)
            if layer == "iwarp":
                self.check_iwarp(path)
        self.check_cycles()
        return self.report.finish(len(self.paths))

    def check_system(self, path, line, layer, name):
        if name.startswith(FABRIC_HEADERS):
            if layer not in SEES_FABRIC:
                self.report.fail(path, line, f"{layer} may not include <{name}>: only "
                                             f"{', '.join(sorted(SEES_FABRIC))} sees libfabric")
            return
        if name.startswith(VERBS_HEADERS) and layer not in SEES_VERBS:
            self.report.fail(path, line, f"{layer} may not include <{name}>: only "
                                         f"{', '.join(sorted(SEES_VERBS))} see verbs")

    def check_direction(self, path, line, layer, public, name, target):
        other, other_public = layer_of(self.root, target)
        if other is None:
            self.report.fail(path, line, f'{layer} may not include "{name}": it belongs to no '
                                         "layer")
        elif public and not other_public:
            self.report.fail(path, line, f'a public header may not include "{name}": src/ is not '
                                         "installed")
        elif other != layer and other not in MAY_INCLUDE[layer]:
            if other_public and (other == "base" or "public" in MAY_INCLUDE[layer]):
                return
            if path.name == PUBLIC_ALL + ".hpp" and other_public:
                return
            allowed = ", ".join(sorted(MAY_INCLUDE[layer])) or "nothing else"
            self.report.fail(path, line, f'{layer} may not include "{name}" of {other}; it may '
                                         f"include {allowed}")

    def check_rooms(self, path, layer):
        """Includes between the rooms of one layer; check_direction() checks the other ones."""
        room = room_of(self.root, path)
        if room is None:
            return
        rooms = ROOMS[layer]
        if room not in rooms:
            self.report.fail(path, 1, f"{room} is no room of {layer}: add it to ROOMS in "
                                      "tests/house/includes.py")
            return
        for line, name, target in self.graph[path]:
            if target is None or layer_of(self.root, target) != (layer, False):
                continue
            other = room_of(self.root, target)
            if other != room and other not in rooms[room]:
                allowed = ", ".join(sorted(rooms[room])) or "no other room"
                self.report.fail(path, line, f'{layer}/{room} may not include "{name}"; it may '
                                             f"include {allowed}")

    def check_iwarp(self, path):
        """Also by way of our own headers."""
        pending, seen = [(path, None, None)], {path}
        while pending:
            at, first_line, via = pending.pop()
            for line, name, target in self.graph.get(at, ()):
                if target is None and name in IWARP_FORBIDDEN:
                    detour = f", by way of {via}" if via else ""
                    self.report.fail(path, first_line or line, f"iwarp may not include <{name}>"
                                     f"{detour}: it does no I/O, threads or clocks")
                elif target is not None and target not in seen:
                    seen.add(target)
                    step = str(target.relative_to(self.root))
                    via_target = f"{via} -> {step}" if via else step
                    pending.append((target, first_line or line, via_target))

    def check_cycles(self):
        state, trail = {}, []

        def visit(path):
            state[path] = "open"
            trail.append(path)
            for line, _, target in self.graph.get(path, ()):
                if target is None:
                    continue
                if state.get(target) == "open":
                    ring = trail[trail.index(target) :] + [target]
                    names = " -> ".join(str(step.relative_to(self.root)) for step in ring)
                    self.report.fail(path, line, f"include cycle: {names}")
                elif target not in state:
                    visit(target)
            trail.pop()
            state[path] = "done"

        for path in self.paths:
            if path not in state:
                visit(path)


if __name__ == "__main__":
    sys.exit(Checker(house.arguments(__doc__).parse_args().root).check())
