"""Tests of the check of the conformance matrix: every fault that it looks for is shown to it."""

import tempfile
import unittest
from pathlib import Path

import coverage

ROWS = """
| group | rows |
| --- | --- |
| RR1-HDR | 3 |
| MPA-REQ | 1 |
| **all** | **4** |

| ID | source | role | requirement | how to test |
| --- | --- | --- | --- | --- |
| RR1-HDR-01 | 5666 §4.1 | both | **MUST** One. | RAW |
| RR1-HDR-02 | 5666 §4.1 | responder | **MUST** Two. | RAW |
| RR1-HDR-03 | 5666 §4.1 | requester | **MUST** Three. | RAW |
| MPA-REQ-01 | peer-connect §6 | MPA initiator | **MUST** Four. | RAW |

## Rows without a test

| row | side | reason |
| --- | --- | --- |
"""


def test(name, path="target/tests/a.rs"):
    """A test of this name."""
    return coverage.Test(name, path, coverage.rows_of(name))


COMPLETE = [
    test("rr1_hdr_01_a"),
    test("rr1_hdr_01_b", "bench/tests/b.rs"),
    test("rr1_hdr_02_c"),
    test("rr1_hdr_03_d", "bench/src/d.rs"),
    test("mpa_req_01_e", "reactor/iwarp/src/e.rs"),
]


class Matrix(unittest.TestCase):
    """Reading the matrix."""

    def test_rows_are_read(self):
        matrix = coverage.read_matrix(ROWS)
        self.assertEqual(len(matrix.rows), 4)
        self.assertEqual(matrix.rows["RR1-HDR-01"].sides, ("responder", "requester"))
        self.assertEqual(matrix.rows["RR1-HDR-03"].sides, ("requester",))
        self.assertEqual(matrix.rows["MPA-REQ-01"].sides, ())
        self.assertEqual(matrix.rows["MPA-REQ-01"].group, "MPA-REQ")

    def test_contradictions_are_errors(self):
        for wrong in (
            "",
            ROWS.replace("RR1-HDR | 3", "RR1-HDR | 2"),
            ROWS.replace("**4**", "**5**"),
            ROWS.replace("RR1-HDR-02", "RR1-HDR-01"),
            ROWS.replace("| responder |", "| somebody |"),
            ROWS.replace("| **MUST** Two. |", ""),
            ROWS + "| RR1-HDR-02 | responder | |\n",
            ROWS + "| RR1-HDR-02 | nobody | why |\n",
            ROWS + "| RR1-HDR-09 | both | why |\n",
        ):
            with self.assertRaises(coverage.MatrixError, msg=wrong):
                coverage.read_matrix(wrong)

    def test_the_matrix_of_the_project_is_sound(self):
        project = Path(__file__).resolve().parent.parent.parent
        for name in coverage.MATRICES:
            text = (project / "target/wire" / name).read_text("utf-8")
            least = 50 if name == "GSS.md" else 300
            self.assertGreater(len(coverage.read_matrix(text).rows), least)

    def test_rows_of_version_4_bind_servers_and_need_one_test(self):
        row = "| V4-V42-01 | 7862 §15 | MUST | Five. | R |"
        matrix = coverage.read_matrices([ROWS, f"| V4-V42 | 1 |\n| **all** | 1 |\n{row}\n"])
        self.assertEqual((matrix.rows["V4-V42-01"].role, len(matrix.rows)), ("server", 5))
        self.assertEqual(coverage.problems(matrix, COMPLETE), ["V4-V42-01 has no test"])
        carried = test("v4_v42_01_f", "bench/tests/f.rs")
        self.assertEqual(coverage.problems(matrix, [*COMPLETE, carried]), [])


    def test_rows_of_kerberos_have_no_column_for_the_role(self):
        row = "| GSS-CRED-05 | 2203 5.3 | **MUST** Five. | KEYS |"
        matrix = coverage.read_matrices([ROWS, f"| GSS-CRED | 1 |\n| **all** | 1 |\n{row}\n"])
        self.assertEqual(matrix.rows["GSS-CRED-05"].role, "server")
        self.assertEqual(matrix.rows["GSS-CRED-05"].requirement, "**MUST** Five.")
        carried = test("gss_cred_05_f", "target/tests/f.rs")
        self.assertEqual(coverage.problems(matrix, [*COMPLETE, carried]), [])


class Names(unittest.TestCase):
    """What the names of tests carry."""

    def test_forms(self):
        for name, rows in (
            ("rr1_done_07_stray_dones_are_dropped", ["RR1-DONE-07"]),
            ("old_09_two_calls", ["OLD-09"]),
            ("rr1_pad_05_rr1_pad_06_positions", ["RR1-PAD-05", "RR1-PAD-06"]),
            ("rr1_long_14_to_16_a_chunk", ["RR1-LONG-14", "RR1-LONG-15", "RR1-LONG-16"]),
            (
                "rr1_hdr_21_rr1_long_12_23_plans",
                ["RR1-HDR-21", "RR1-LONG-12", "RR1-LONG-23"],
            ),
            ("v4_v42_07_and_09_space", ["V4-V42-07", "V4-V42-09"]),
            ("v4_open_08_to_10_creates", ["V4-OPEN-08", "V4-OPEN-09", "V4-OPEN-10"]),
            ("rr1_sec_11_nothing_and_rr1_sec_12_no_key", ["RR1-SEC-11", "RR1-SEC-12"]),
            ("mpa_ird_12_stated_as_0x3ffe_at_most", ["MPA-IRD-12"]),
            ("rr1_hdr_18_4096_bytes", ["RR1-HDR-18"]),
            ("rr1_hdr_18", ["RR1-HDR-18"]),
            ("threshold_10_is_old_news", []),
        ):
            self.assertEqual(coverage.rows_of(name), rows, name)


class Sources(unittest.TestCase):
    """Finding tests in sources."""

    def found(self, text):
        """Names of the tests, and the number of complaints."""
        tests, others = coverage.tests_of("a.rs", text)
        return [t.name for t in tests], len(others)

    def test_tests_are_found(self):
        for text in (
            "#[test]\nfn rr1_hdr_01_a() {",
            "    #[test]\n    #[should_panic]\n    fn rr1_hdr_01_a(\n        x in any(),",
            "#[test]\n/// Says why.\n// Or this.\n\nfn rr1_hdr_01_a() {",
            "#[tokio::test]\nasync fn rr1_hdr_01_a() {",
        ):
            self.assertEqual(self.found(text), (["rr1_hdr_01_a"], 0), text)

    def test_what_does_not_run_is_no_test(self):
        for text in (
            "fn rr1_hdr_01_a() {",
            "#[test]\n#[ignore]\nfn rr1_hdr_01_a() {",
            '#[test]\n#[ignore = "slow"]\nfn rr1_hdr_01_a() {',
            "#[test]\nfn other() {}\n\nfn rr1_hdr_01_a() {",
            "#[inline]\nfn rr1_hdr_01_a() {",
        ):
            self.assertEqual(self.found(text), ([], 1), text)

    def test_others_are_left_alone(self):
        self.assertEqual(self.found("// fn rr1_hdr_01_a() {"), ([], 0))
        self.assertEqual(self.found("#[test]\nfn older_things() {"), ([], 0))

    def test_folders_are_searched_without_build_output(self):
        with tempfile.TemporaryDirectory() as folder:
            for place in ("target/tests", "build/debug"):
                path = Path(folder, place)
                path.mkdir(parents=True)
                (path / "a.rs").write_text("#[test]\nfn rr1_hdr_01_a() {}\nfn old_01_b() {}\n")
            tests, complaints = coverage.read_sources(folder)
        self.assertEqual([t.path for t in tests], ["target/tests/a.rs"])
        self.assertEqual(len(complaints), 1)


class Problems(unittest.TestCase):
    """Matrix against tests."""

    def problems(self, tests, exceptions=""):
        """The faults, as one text."""
        return "\n".join(coverage.problems(coverage.read_matrix(ROWS + exceptions), tests))

    def test_a_complete_set_is_without_fault(self):
        self.assertEqual(self.problems(COMPLETE), "")

    def test_every_test_is_missed(self):
        for missing in COMPLETE:
            rest = [t for t in COMPLETE if t is not missing]
            self.assertIn(f"{missing.rows[0]} has no test", self.problems(rest))

    def test_the_other_side_does_not_count(self):
        moved = [test("rr1_hdr_02_c", "bench/src/c.rs") if t.name == "rr1_hdr_02_c" else t
                 for t in COMPLETE]
        self.assertEqual(self.problems(moved), "RR1-HDR-02 has no test of the responder")

    def test_unknown_rows_are_faults(self):
        self.assertIn("unknown row RR1-HDR-44", self.problems([*COMPLETE, test("rr1_hdr_44_x")]))
        self.assertIn("unknown row RR2-HDR-01", self.problems([*COMPLETE, test("rr2_hdr_01_x")]))

    def test_a_reason_excuses_its_side_only(self):
        without = [t for t in COMPLETE if "RR1-HDR-01" not in t.rows]
        both = "| RR1-HDR-01 | both | not built |\n"
        self.assertEqual(self.problems(without, both), "")
        one = "| RR1-HDR-01 | requester | not built |\n"
        self.assertEqual(self.problems(without, one), "RR1-HDR-01 has no test of the responder")
        mpa = [t for t in COMPLETE if "MPA-REQ-01" not in t.rows]
        self.assertEqual(self.problems(mpa, "| MPA-REQ-01 | both | not built |\n"), "")

    def test_a_reason_for_a_tested_row_is_a_fault(self):
        for side in ("both", "responder", "requester"):
            listed = f"| RR1-HDR-01 | {side} | not built |\n"
            self.assertIn("is listed as untested", self.problems(COMPLETE, listed))
        foreign = "| RR1-HDR-02 | requester | not built |\n"
        self.assertIn("does not bind", self.problems(COMPLETE, foreign))


class Table(unittest.TestCase):
    """The written table."""

    def test_it_names_tests_and_reasons(self):
        listed = ROWS + "| RR1-HDR-02 | responder | not built |\n"
        tests = [t for t in COMPLETE if "RR1-HDR-02" not in t.rows]
        text = coverage.table(coverage.read_matrix(listed), tests)
        self.assertIn("| RR1-HDR | 3 | 2 | 1 | 1 of 2 | 2 of 2 | 3 |", text)
        self.assertIn("| **all** | 4 | 3 | 1 | 1 of 2 | 2 of 2 | 4 |", text)
        self.assertIn("| RR1-HDR-01 | both | `rr1_hdr_01_a` (target)<br>`rr1_hdr_01_b` (bench) |", text)
        self.assertIn("| RR1-HDR-02 | responder | *no test, responder: not built* |", text)
        self.assertIn("`mpa_req_01_e` (reactor/iwarp)", text)

    def test_it_changes_with_the_tests(self):
        matrix = coverage.read_matrix(ROWS)
        self.assertNotEqual(coverage.table(matrix, COMPLETE), coverage.table(matrix, COMPLETE[1:]))


if __name__ == "__main__":
    unittest.main()
