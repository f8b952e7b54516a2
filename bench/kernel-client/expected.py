"""Which tests are expected to fail over RDMA devices, and how what was seen compares with that."""

import unittest

DEVICES = {"rxe": ("rxe",), "siw": ("siw",), "both": ("rxe", "siw")}


class ListError(Exception):
    """The list is not as it should be."""


def read(text):
    """The reasons of a list, by device, program and test."""
    expected = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=3)
        if len(words) != 4 or words[0] not in DEVICES:
            raise ListError(f"line {number}: not DEVICE PROGRAM TEST REASON: {line}")
        device, program, test, reason = words
        for name in DEVICES[device]:
            if (name, program, test) in expected:
                raise ListError(f"line {number}: {test} is listed twice for {name}")
            expected[name, program, test] = reason
    return expected


def compare(expected, device, program, outcomes, is_whole):
    """What is wrong with the outcomes (test to `ok`, `FAILED`, `ignored`, or None where it began and
    did not end) of a program on a device. `is_whole` says that all its tests were to run."""
    wrong = []
    for test, outcome in outcomes.items():
        listed = (device, program, test) in expected
        if outcome is None:
            wrong.append(f"{test} did not end")
        elif outcome == "FAILED" and not listed:
            wrong.append(f"{test} failed, which is not expected")
        elif outcome != "FAILED" and listed:
            wrong.append(f"{test} is expected to fail: {outcome}")
    for on, of, test in expected:
        if is_whole and (on, of) == (device, program) and test not in outcomes:
            wrong.append(f"{test} is expected to fail, and was not run")
    return wrong


class ExpectedTest(unittest.TestCase):
    """Tests of this check."""

    LIST = "# a comment\n\nrxe rr1_sec one a key holds\nboth rr1_sec two too deep\n"

    def test_lines_have_a_device_a_program_a_test_and_a_reason(self):
        """A good list, and bad ones."""
        self.assertEqual(read(self.LIST), {
            ("rxe", "rr1_sec", "one"): "a key holds",
            ("rxe", "rr1_sec", "two"): "too deep",
            ("siw", "rr1_sec", "two"): "too deep",
        })
        for bad in ("rxe rr1_sec one", "mlx rr1_sec one why", "rxe a b c\nboth a b c"):
            with self.assertRaises(ListError):
                read(bad)

    def test_what_is_expected_is_good_and_all_else_is_told(self):
        """Both ways of being wrong, and tests that did not run or end."""
        def wrong(device, is_whole, **outcomes):
            return compare(read(self.LIST), device, "rr1_sec", outcomes, is_whole)

        self.assertEqual(wrong("rxe", True, one="FAILED", two="FAILED", three="ok"), [])
        self.assertEqual(wrong("siw", True, one="ok", two="FAILED"), [])
        self.assertEqual(wrong("siw", False), [])
        for device, outcomes in (
            ("siw", {"one": "FAILED", "two": "FAILED"}),
            ("rxe", {"one": "ok", "two": "FAILED"}),
            ("rxe", {"one": "FAILED"}),
            ("siw", {"one": None, "two": "FAILED"}),
        ):
            self.assertEqual(len(wrong(device, True, **outcomes)), 1, outcomes)


def self_test():
    """Whether the tests of this check pass."""
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(ExpectedTest)
    return unittest.TextTestRunner().run(suite).wasSuccessful()
