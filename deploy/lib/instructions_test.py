"""Tests of instructions.py."""

import tomllib
import unittest
from collections import Counter

import instructions

# As callgrind writes it: names are given once, what follows `calls=` belongs to another function,
# and lines are told relative to the one before.
PROFILE = """\
# callgrind format
positions: line
events: Ir

fl=(1) a.rs
fn=(1) serve::h0123456789abcdef
10 5
fi=(2) inlined.rs
+2 7
fe=(1)
cfi=(2)
cfn=(2) encode
calls=3 20
-1 40
* 1

fn=(2)
20 40

totals: 53
"""


class Profiles(unittest.TestCase):
    """What is read from profiles."""

    def test_functions_have_what_is_their_own(self):
        costs = instructions.functions(PROFILE)
        self.assertEqual(costs, {"serve::h0123456789abcdef": 13, "encode": 40})
        self.assertEqual(instructions.most_expensive(costs, 1), ["        40  encode"])
        self.assertEqual(instructions.shortened(next(iter(costs))), "serve")

    def test_a_profile_that_does_not_add_up_is_a_fault(self):
        with self.assertRaises(instructions.Fault):
            instructions.functions(PROFILE.replace("totals: 53", "totals: 54"))
        with self.assertRaises(instructions.Fault):
            instructions.functions("")

    def test_the_reactor_is_found_although_another_thread_takes_more(self):
        turns = Counter({"<Worker as millrace_reactor::core::Worker>::turn": 40, "memcpy": 9})
        threads = [Counter({"memset": 1000}), turns, Counter()]
        self.assertIs(instructions.reactor(threads), turns)
        self.assertEqual(instructions.reactor([]), Counter())

    def test_what_both_runs_took_is_no_cost_of_an_operation(self):
        costs = instructions.per_operation({"a": 100, "b": 10}, {"a": 100, "b": 50, "c": 20}, 4)
        self.assertEqual(costs, {"b": 10, "c": 5})


class Comparison(unittest.TestCase):
    """Figures against those recorded."""

    def test_growth_beyond_the_tolerance_is_wrong(self):
        record = {"read": 1000, "write": 1000}
        self.assertEqual(instructions.compare(record, {"read": 1050, "write": 950}), ([], []))
        wrong, said = instructions.compare(record, {"read": 1051, "write": 1000})
        self.assertEqual((len(wrong), said), (1, []))
        self.assertIn("read: 1,051 instructions, +5.1 % of the recorded 1,000", wrong[0])

    def test_a_figure_that_has_become_much_smaller_is_told(self):
        wrong, said = instructions.compare({"read": 1000}, {"read": 940})
        self.assertEqual((wrong, len(said)), ([], 1))

    def test_version_4_may_take_so_many_times_more_than_version_3(self):
        figures = {"read-4KiB": 1000, "read-4KiB-nfs4": 1350}
        for figure in (1350, 1377):
            figures["read-4KiB-nfs4"] = figure
            self.assertEqual(instructions.compare(figures, figures), ([], []))
        figures["read-4KiB-nfs4"] = 1380
        wrong, said = instructions.compare(figures, figures)
        self.assertEqual((len(wrong), said), (1, []))
        self.assertIn("read-4KiB-nfs4 takes 1.38 times what read-4KiB takes", wrong[0])

    def test_a_figure_without_a_record_is_wrong(self):
        self.assertEqual(len(instructions.compare({}, {"read": 1})[0]), 1)

    def test_builds_have_figures_of_their_own(self):
        text = "# kept\n# too\n\n[lto]\nread = 7\n"
        text = instructions.write_record(text, "no-lto", {"read": 8, "write-4KiB": 9})
        text = instructions.write_record(text, "lto", {"write-4KiB": 1})
        self.assertTrue(text.startswith("# kept\n# too\n\n[lto]\n"))
        self.assertEqual(tomllib.loads(text), {
            "lto": {"read": 7, "write-4KiB": 1}, "no-lto": {"read": 8, "write-4KiB": 9}})

    def test_the_usual_processor_has_avx2(self):
        text = "processor\t: 0\nmodel name\t: X 1 avx2\nflags\t\t: fpu erms {} ht\n"
        self.assertTrue(instructions.is_usual(text.format("avx2")))
        self.assertFalse(instructions.is_usual(text.format("avx")))
        self.assertFalse(instructions.is_usual(""))

    def test_every_operation_is_recorded(self):
        path = instructions.PROJECT / "deploy/instructions.toml"
        record = tomllib.loads(path.read_text("utf-8"))
        self.assertTrue(record)
        for figures in record.values():
            self.assertEqual(figures.keys(), instructions.OPERATIONS.keys())
