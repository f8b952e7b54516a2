"""Tests of mutants.py."""

import tomllib
import unittest

import mutants

NAMES = ("a.rs:1:2: replace + with - in f", "a.rs:1:9: replace + with - in f",
         "a.rs:7:1: replace g with ()")


class Judgement(unittest.TestCase):
    """The list and what is said about it."""

    def test_survivors_need_a_reason_each(self):
        outcomes = dict.fromkeys(NAMES, "survived")
        one = "replace + with - in f"
        self.assertEqual(mutants.judge(NAMES, outcomes, [one]),
                         [f"survives: {one}", "survives: replace g with ()"])
        self.assertEqual(mutants.judge(NAMES, outcomes, [one, one, "replace g with ()"]), [])

    def test_a_reason_without_a_survivor_is_told_once_all_was_tried(self):
        outcomes = {name: "caught" for name in NAMES}
        listed = ["replace g with ()"]
        self.assertEqual(mutants.judge(NAMES, outcomes, listed),
                         ["is listed, and does not survive: replace g with ()"])
        outcomes[NAMES[0]] = "untried"
        self.assertEqual(mutants.judge(NAMES, outcomes, listed), [])
        self.assertIsNone(mutants.counted(NAMES, outcomes))

    def test_the_record_is_written_behind_everything_else(self):
        counts = mutants.counted(NAMES, dict(zip(NAMES, ("caught", "survived", "unviable"))))
        text = mutants.write_record("# kept\n[parts]\n", {"a.rs": counts})
        self.assertEqual(text, mutants.write_record(text, {"a.rs": counts}))
        self.assertTrue(text.startswith("# kept\n[parts]\n"))
        self.assertEqual(tomllib.loads(text)["record"]["a.rs"]["survived"], 1)

    def test_times_count(self):
        document = {"survivors": [{"file": "a.rs", "mutant": "m", "times": 2, "reason": "r"}]}
        self.assertEqual(mutants.reasons_of(document, "a.rs"), ["m", "m"])


TEXT = """\
/// Doc { of f.
pub const fn f<T: Fn() -> u8>(a: [u8; 2]) -> u32 {
    a + b
}
"""


def place(line, column, end_line, end_column):
    return {"start": {"line": line, "column": column},
            "end": {"line": end_line, "column": end_column}}


class Variants(unittest.TestCase):
    """Functions with all their variants."""

    def setUp(self):
        function = {"function_name": "f", "span": place(2, 1, 4, 2)}
        self.mutants = [
            {"file": "a.rs", "name": "1", "function": function, "replacement": "-",
             "span": place(3, 7, 3, 8)},
            {"file": "a.rs", "name": "2", "function": function, "replacement": "0",
             "span": place(3, 5, 3, 10)},
        ]
        self.functions = mutants.functions_of(self.mutants, TEXT, 7)

    def test_a_function_has_all_of_them(self):
        text, lines = mutants.rewrite(TEXT, self.functions, {"1": 1, "2": 2}, set(), set())
        self.assertEqual(" ".join(text.split()),
                         "/// Doc { of f. pub fn f<T: Fn() -> u8>(a: [u8; 2]) -> u32 "
                         "{ match crate::mutant_switch::at(7) { 1 => { a - b } 2 => { 0 } "
                         "_ => { a + b } } }")
        self.assertEqual(lines, [(3, 5, 1), (6, 8, 2)])

    def test_what_cannot_be_built_is_left_out(self):
        numbers = {"1": 1, "2": 2}
        text, lines = mutants.rewrite(TEXT, self.functions, numbers, {1}, set())
        self.assertNotIn("a - b", text)
        self.assertEqual([number for _, _, number in lines], [2])
        self.assertEqual(mutants.rewrite(TEXT, self.functions, numbers, set(), {7}), (TEXT, []))


if __name__ == "__main__":
    unittest.main()
