"""Waiting for what has to come about, and no longer than a test may."""

import time

# Nothing is proved by how soon it comes: the machine may be busy, or stand still for some seconds.
PATIENCE_S = 30


def until(condition, seconds=PATIENCE_S):
    """What the condition answers at last: true, or after so long whatever it is."""
    deadline = time.monotonic() + seconds
    while not (got := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return got


def wait_for(test, what, condition, seconds=PATIENCE_S):
    """What the condition answers at last."""
    got = until(condition, seconds)
    if not got:
        test.fail(f"not within {seconds} s: {what}")
    return got


def wait_equal(test, want, read, seconds=PATIENCE_S):
    """Waits until that is what is read."""
    got = []

    def is_there():
        got[:] = [read()]
        return got == [want]

    until(is_there, seconds)
    test.assertEqual(got, [want])
