"""What completes when a program disconnects: a message that the peer has received is a success,
even if its proof is still on its way."""

import cases
import harness
from harness import need

_CONNECTIONS = 40
# Each of 101 messages of a connection waits until the other process, which polls as well, has a
# processor: some seconds in all on an idle machine, and minutes where many programs poll.
_LIMIT_S = 600


def _last_send(same_host):
    def run(stage):
        side = stage.start("both ends", harness.companion("last_send"), _CONNECTIONS,
                           env={"WEFT_SAME_HOST": same_host})
        side.finish(_LIMIT_S)
        succeeded = side.expect(r"^outcome: (\d+) of \d+$")[1]
        need(int(succeeded) == _CONNECTIONS, f"{succeeded} of {_CONNECTIONS} were successful")

    return run


for _name, _same_host in (("tcp", "off"), ("within_host", "auto"), ("staged", "staged")):
    cases.add(f"last_send.{_name}", _last_send(_same_host), timeout_s=_LIMIT_S + 60)
