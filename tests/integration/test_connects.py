"""A thousand of the connects and disconnects of tests/soak/connects.py; `make soak` does 20,000."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "soak"))

import connects  # pylint: disable=wrong-import-position


class Connects(unittest.TestCase):
    def test_a_thousand_leave_no_descriptor_memory_or_row(self):
        self.assertEqual(connects.run(1000, say=lambda text: print(f"# {text}")), [])


if __name__ == "__main__":
    unittest.main()
