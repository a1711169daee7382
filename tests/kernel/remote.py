"""Runs a command line in the guest, and ends with its exit status.

usage: remote.py ADDRESS COMMAND
"""

import re
import socket
import sys

_AGENT_PORT = 7  # in the guest, where nothing else listens
_STATUS = re.compile("status ([0-9]+)")  # the agent's last line


def main(address, command):
    with socket.create_connection((address, _AGENT_PORT), 60) as agent:
        agent.settimeout(None)
        agent.sendall(command.encode() + b"\n")
        # Not until the end of the connection: socat holds both ends of its pipes, so that only
        # SIGCHLD shows it the command's end, and one that comes just before its select(2) is lost.
        for raw in agent.makefile("rb"):
            line = raw.decode(errors="replace").rstrip("\n")
            status = _STATUS.fullmatch(line)
            if status:
                return int(status[1])
            print(line, flush=True)
    print("the agent in the guest closed the connection", file=sys.stderr)
    return 255


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
