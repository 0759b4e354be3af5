"""Twenty of the data rounds (tests/soak/data_rounds.py) with a fixed seed; `make soak` runs 500."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "soak"))

import data_rounds  # pylint: disable=wrong-import-position

SEED, ROUNDS = 5, 20


class DataRounds(unittest.TestCase):
    def test_twenty_rounds_lose_nothing_and_leave_nothing(self):
        self.assertEqual(data_rounds.run(SEED, ROUNDS, say=lambda text: print(f"# {text}")), [])


if __name__ == "__main__":
    unittest.main()
