"""Ten of the kill rounds (tests/soak/kill_rounds.py) with a fixed seed; `make soak` runs a hundred."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "soak"))

import kill_rounds  # pylint: disable=wrong-import-position

SEED, ROUNDS = 3, 10


class KillRounds(unittest.TestCase):
    def test_ten_rounds_lose_nothing_and_leave_nothing(self):
        self.assertEqual(kill_rounds.run(SEED, ROUNDS, say=lambda text: print(f"# {text}")), [])


if __name__ == "__main__":
    unittest.main()
