"""Targets that do nothing: one-sided operations must not need the target's help."""

import cases
import harness
from harness import need


def _start(stage, kind):
    port = harness.free_port()
    program = harness.companion("targets")
    target = stage.start("target", program, kind, "127.0.0.1", port, say=True)
    target.await_listening(port)
    driver = stage.start("driver", program, "drive", "127.0.0.1", port, say=True)
    return target, driver


def _end(target, driver):
    driver.say("end")
    for side in (driver, target):
        side.finish()
        harness.need_no_trouble(side)
    need("region written" in target.output, "the target does not have what was written to it")


@cases.case("targets.idle", sanitized=True)
def idle(stage):
    """The target sits in read(2) while a peer writes to it, reads from it and sends to it."""
    target, driver = _start(stage, "idle")
    target.expect("^idle$")
    driver.expect("^written and read$")
    target.say("look")
    target.expect("^region")
    _end(target, driver)


@cases.case("targets.ready_to_receive", sanitized=True)
def ready(stage):
    """The target's queue pair goes to RTR and no further."""
    target, driver = _start(stage, "ready")
    target.expect("^message received$")
    _end(target, driver)
