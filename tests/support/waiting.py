"""Waiting for what has to come about, and no longer than a test may."""

import time


def wait_for(test, what, condition, seconds=30):
    """What the condition answers at last."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        got = condition()
        if got:
            return got
        time.sleep(0.02)
    test.fail(f"not within {seconds} s: {what}")
