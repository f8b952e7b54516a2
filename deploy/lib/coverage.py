"""The conformance matrix against the tests that carry its rows' names.

A test carries a row if the row's identifier, in lower case and with underscores, begins its name:
`rr1_done_07_...`. More rows may follow anywhere in the name by their whole identifiers
(`rr1_pad_05_rr1_pad_06_...`), by their numbers alone (`rr1_long_12_23_...`, `rr1_long_12_and_23_...`), or as
a range (`rr1_long_14_to_16_...`).
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

# The documents with the rows, in target/wire.
MATRICES = ("CONFORMANCE.md", "NFSV4.md", "GSS.md")

GROUP = r"(?:RR1|RR2|MPA|V4|GSS)-[A-Z][A-Z0-9]*|OLD"
ROW = re.compile(rf"^\|\s*((?:{GROUP})-\d\d)\s*\|(.*)\|\s*$")
GROUP_COUNT = re.compile(rf"^\|\s*({GROUP}|\*\*all\*\*)\s*\|\s*\**(\d+)\**\s*\|\s*$")
GROUPS = r"(?:rr1|rr2|mpa|v4|gss)_[a-z][a-z0-9]*|old"
IDENTIFIER = re.compile(rf"(?:^|(?<=_))({GROUPS})_(\d\d)((?:_to_\d\d|(?:_and)?_\d\d)*)(?=_|$)")
FUNCTION = re.compile(r"^\s*(?:pub(?:\([a-z]+\))?\s+)?(?:async\s+)?fn\s+([a-z][a-z0-9_]*)")
CARRIES = re.compile(rf"^(?:{GROUPS})_\d\d(?:_|$)")
SIDES = ("responder", "requester")
EXCEPTIONS_HEADING = "## Rows without a test"
SKIPPED_FOLDERS = {".git", "build", "artifacts", "corpus"}


class MatrixError(Exception):
    """The matrix cannot be read."""


@dataclass
class Row:
    """One requirement."""

    name: str
    role: str
    requirement: str

    @property
    def group(self):
        """The group of the row, such as RR1-DONE."""
        return self.name.rsplit("-", 1)[0]

    @property
    def sides(self):
        """The sides that need a test of their own.

        Both roles of MPA live in one crate below both sides, and rows of NFS version 4 and of Kerberos
        are about servers only, so any test of them does.
        """
        if self.group.startswith(("MPA-", "V4-", "GSS-")):
            return ()
        return SIDES if self.role == "both" else (self.role,)


@dataclass
class Untested:
    """A row that has no test, on one side or on both, with the reason."""

    name: str
    side: str
    reason: str


@dataclass
class Matrix:
    """All rows, and those known to have no test."""

    rows: dict = field(default_factory=dict)
    exceptions: list = field(default_factory=list)

    def excuses(self, name, side):
        """Whether a test of this row on this side is known to be missing."""
        return any(e.name == name and e.side in (side, "both") for e in self.exceptions)


@dataclass
class Test:
    """One test function that carries rows."""

    name: str
    path: str
    rows: list

    @property
    def side(self):
        """Tests of the requester live under bench/, all others count for the responder."""
        return "requester" if self.path.startswith("bench/") else "responder"


def read_matrices(texts):
    """Reads several documents as one."""
    matrix = Matrix()
    for text in texts:
        one = read_matrix(text)
        matrix.rows |= one.rows
        matrix.exceptions += one.exceptions
    return matrix


def read_matrix(text):
    """Reads rows and exceptions. Raises MatrixError where the text contradicts itself."""
    matrix = Matrix()
    stated = {}
    in_exceptions = False
    for line in text.splitlines():
        if line.startswith("#"):
            in_exceptions = line.strip() == EXCEPTIONS_HEADING
        count = GROUP_COUNT.match(line)
        if count:
            stated[count[1].strip("*")] = int(count[2])
        found = ROW.match(line)
        if not found:
            continue
        name = found[1]
        cells = [cell.strip() for cell in found[2].split("|")]
        if in_exceptions:
            if len(cells) != 2 or cells[0] not in (*SIDES, "both") or not cells[1]:
                raise MatrixError(f"{name}: an exception needs a side and a reason")
            matrix.exceptions.append(Untested(name, *cells))
            continue
        if name.startswith("GSS-"):
            cells.insert(1, "server")
        if len(cells) != 4:
            raise MatrixError(f"{name}: {len(cells) + 1} cells instead of 5")
        if name in matrix.rows:
            raise MatrixError(f"{name} stands there twice")
        if name.startswith("V4-"):
            cells[1] = "server"
        elif cells[1] not in (*SIDES, "both", "server", "MPA initiator", "MPA responder"):
            raise MatrixError(f"{name}: unknown role {cells[1]}")
        matrix.rows[name] = Row(name, cells[1], cells[2])
    if not matrix.rows:
        raise MatrixError("no rows found")
    counted = {"all": len(matrix.rows)}
    for row in matrix.rows.values():
        counted[row.group] = counted.get(row.group, 0) + 1
    if stated != counted:
        wrong = sorted(g for g in {*stated, *counted} if stated.get(g) != counted.get(g))
        raise MatrixError(f"the table of groups is wrong about {', '.join(wrong)}")
    for exception in matrix.exceptions:
        if exception.name not in matrix.rows:
            raise MatrixError(f"{exception.name}: an exception for a row that does not exist")
    return matrix


def rows_of(name):
    """The rows that the name of a test carries, in order and each once."""
    rows = []
    for group, first, more in IDENTIFIER.findall(name):
        prefix = group.upper().replace("_", "-")
        numbers = [int(first)]
        for word, number in re.findall(r"_(to_)?(?:and_)?(\d\d)", more):
            start = numbers[-1] + 1 if word else int(number)
            numbers.extend(range(start, int(number) + 1))
        for number in numbers:
            row = f"{prefix}-{number:02}"
            if row not in rows:
                rows.append(row)
    return rows


def tests_of(path, text):
    """The tests of one source file that carry rows, and the functions that only look like it."""
    tests, others = [], []
    attributes = []
    for line in text.splitlines():
        stripped = line.strip()
        function = FUNCTION.match(line)
        if function:
            name = function[1]
            if CARRIES.match(name):
                runs = any(re.search(r"\btest\b", a) for a in attributes)
                runs = runs and not any(a.startswith("#[ignore") for a in attributes)
                if runs:
                    tests.append(Test(name, path, rows_of(name)))
                else:
                    others.append(f"{path}: {name} is no test that runs")
            attributes = []
        elif stripped.startswith("#["):
            attributes.append(stripped)
        elif stripped and not stripped.startswith("//"):
            attributes = []
    return tests, others


def read_sources(project):
    """All tests below a folder that carry rows, and complaints about functions that do not run."""
    tests, complaints = [], []
    for path in sorted(Path(project).rglob("*.rs")):
        relative = path.relative_to(project)
        if SKIPPED_FOLDERS.isdisjoint(relative.parts):
            found, others = tests_of(relative.as_posix(), path.read_text(encoding="utf-8"))
            tests.extend(found)
            complaints.extend(others)
    return tests, complaints


def carriers(tests):
    """The tests of each row."""
    by_row = {}
    for test in tests:
        for row in test.rows:
            by_row.setdefault(row, []).append(test)
    return by_row


def problems(matrix, tests):
    """Everything in which matrix and tests disagree, one line each."""
    found = []
    by_row = carriers(tests)
    for test in tests:
        for name in test.rows:
            if name not in matrix.rows:
                found.append(f"{test.path}: {test.name} carries the unknown row {name}")
    for row in matrix.rows.values():
        carried = by_row.get(row.name, [])
        if not row.sides and not carried and not matrix.excuses(row.name, "both"):
            found.append(f"{row.name} has no test")
        for side in row.sides:
            tested = any(test.side == side for test in carried)
            if not tested and not matrix.excuses(row.name, side):
                found.append(f"{row.name} has no test of the {side}")
    for exception in matrix.exceptions:
        sides = SIDES if exception.side == "both" else (exception.side,)
        carried = [t for t in by_row.get(exception.name, []) if t.side in sides]
        if carried:
            found.append(
                f"{exception.name} is listed as untested ({exception.side}), "
                f"but {carried[0].name} carries it"
            )
        needed = matrix.rows[exception.name].sides
        if needed and exception.side != "both" and exception.side not in needed:
            found.append(f"{exception.name} is listed for the {exception.side}, which it does not bind")
    return found


def table(matrix, tests):
    """COVERAGE.md."""
    by_row = carriers(tests)
    lines = [
        "# Coverage of the conformance matrix",
        "",
        "Written by `deploy/coverage` from [CONFORMANCE.md](CONFORMANCE.md), [NFSV4.md](NFSV4.md), [GSS.md](GSS.md) and the names of the tests.",
        "Do not edit: `deploy/coverage --check` fails if this file is stale.",
        "",
        "The columns responder and requester count the rows that apply to that side, and those with a test. Rows of the MPA, V4 and GSS groups are not counted by side.",
        "",
        "| group | rows | with a test | without | responder | requester | tests |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    groups = {}
    for row in matrix.rows.values():
        groups.setdefault(row.group, []).append(row)
    groups_and_all = {**groups, "**all**": list(matrix.rows.values())}
    for group, rows in groups_and_all.items():
        tested = sum(1 for row in rows if row.name in by_row)
        names = {(t.path, t.name) for row in rows for t in by_row.get(row.name, [])}
        sides = [of_side(rows, by_row, side) for side in SIDES]
        cells = [group, len(rows), tested, len(rows) - tested, *sides, len(names)]
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    for group, rows in groups.items():
        lines += ["", f"## {group}", "", "| row | role | tests |", "| --- | --- | --- |"]
        for row in rows:
            cells = [f"`{t.name}` ({place(t.path)})" for t in by_row.get(row.name, [])]
            for exception in matrix.exceptions:
                if exception.name == row.name:
                    whose = "" if exception.side == "both" else f", {exception.side}"
                    cells.append(f"*no test{whose}: {exception.reason}*")
            lines.append(f"| {row.name} | {row.role} | {'<br>'.join(cells) or '**none**'} |")
    return "\n".join(lines) + "\n"


def of_side(rows, by_row, side):
    """How many of the rows that bind a side have a test there."""
    bound = [row for row in rows if side in row.sides]
    tested = sum(1 for row in bound if any(t.side == side for t in by_row.get(row.name, [])))
    return f"{tested} of {len(bound)}" if bound else ""


def place(path):
    """The part of the project that a file belongs to: its crate's folder."""
    for crate in ("target/wire", "target/store", "target/gss", "reactor/iwarp"):
        if path.startswith(crate + "/"):
            return crate
    return path.split("/")[0]
