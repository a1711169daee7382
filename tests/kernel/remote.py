"""Runs a command line in the guest, and ends with its exit status.

usage: remote.py ADDRESS COMMAND
"""

import socket
import sys

_AGENT_PORT = 7  # in the guest, where nothing else listens


def main(address, command):
    with socket.create_connection((address, _AGENT_PORT), 60) as agent:
        agent.settimeout(None)
        agent.sendall(command.encode() + b"\n")
        last = ""
        for raw in agent.makefile("rb"):
            if last:
                print(last, flush=True)
            last = raw.decode(errors="replace").rstrip("\n")
            if not last.startswith("status "):
                print(last, flush=True)
                last = ""
    word, _, status = last.partition(" ")
    if word != "status":
        print("the agent in the guest closed the connection", file=sys.stderr)
        return 255
    return int(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
