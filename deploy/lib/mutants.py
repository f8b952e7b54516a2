"""Mutants: their variants of functions in one build, the tests that come to them, and the list."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter, defaultdict
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
RECORD = "\n[record]\n"
OUTCOMES = ("caught", "timeout", "unviable", "survived")
# A mutant's name begins with its place, which moves with every change above it.
PLACE = re.compile(r"^[^:]+:\d+:\d+: ")
# Faults in what is only read by people who search for faults.
EXCLUDED = (r"<impl ([a-z]+::)*(Debug|Display) for ",)
ENVIRONMENT = {"CARGO_PROFILE_DEV_DEBUG": "false", "CARGO_PROFILE_TEST_DEBUG": "false"}
# The least time that tests of a mutant may take, and how many times as long as expected without it.
LEAST_SECONDS, MORE = 30, 6

# Constants that overflow are for the tests to notice. On the first line, so that all lines keep their
# numbers, and not for the compiler of all crates, which then need no build of their own.
ALLOWED = "#![allow(arithmetic_overflow, unconditional_panic)] "
SWITCH = """
#[doc(hidden)]
#[allow(missing_docs)]
pub mod mutant_switch {
    extern crate std;
    use std::io::Write;
    pub fn at(function: u32) -> u32 {
        static NUMBER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        // Opened once: a thread may have given up the right to open files since.
        static REACHED: std::sync::OnceLock<Option<std::fs::File>> = std::sync::OnceLock::new();
        let reached = || {
            let path = std::env::var("MILLRACE_MUTANTS_REACHED").ok()?;
            Some(std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap())
        };
        if let Some(mut file) = REACHED.get_or_init(reached).as_ref() {
            std::thread_local! {
                static SEEN: std::cell::RefCell<std::collections::BTreeSet<u32>> =
                    const { std::cell::RefCell::new(std::collections::BTreeSet::new()) };
            }
            // What runs at the end of a thread is told each time.
            if SEEN.try_with(|seen| seen.borrow_mut().insert(function)).unwrap_or(true) {
                let thread = std::thread::current();
                let line = std::format!("{function}\\t{}\\n", thread.name().unwrap_or("?"));
                file.write_all(line.as_bytes()).unwrap();
            }
        }
        *NUMBER.get_or_init(|| {
            let number = std::env::var("MILLRACE_MUTANT").ok();
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        })
    }
}
"""


class Fault(Exception):
    """Something that the caller has to put right."""


class Deadline:
    """When a run is to stop."""

    def __init__(self, minutes):
        self.at = time.monotonic() + minutes * 60 if minutes else None

    def passed(self):
        """Whether it is time to stop."""
        return self.at is not None and time.monotonic() > self.at


def digest(file):
    """What tells one version of a file from another."""
    return hashlib.sha256((PROJECT / file).read_bytes()).hexdigest()


class Findings:
    """What became of mutants, by file and name, for files that are still the same."""

    def __init__(self, path, fresh):
        self.path = path
        self.all = json.loads(path.read_text("utf-8")) if path.exists() and not fresh else {}

    def of(self, file):
        """Outcomes by name."""
        found = self.all.get(file)
        if found is None or found["digest"] != digest(file):
            found = self.all[file] = {"digest": digest(file), "outcomes": {}}
        return found["outcomes"]

    def add(self, mutant, outcome):
        """Notes an outcome."""
        self.of(mutant["file"])[mutant["name"]] = outcome
        self.path.write_text(json.dumps(self.all, indent=1), "utf-8")


def made(package, files):
    """All mutants of these files, as cargo-mutants makes them."""
    listed = subprocess.run(["cargo", "mutants", "--list", "--json", *selection(package, files)],
                            cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    found = {file: [] for file in files}
    for mutant in json.loads(listed):
        found[mutant["file"]].append(mutant)
    return found


def selection(package, files):
    """Options that select the mutants of these files."""
    options = ["--no-config", "--package", package]
    for file in files:
        options += ["--file", file]
    for excluded in EXCLUDED:
        options += ["--exclude-re", excluded]
    return options


def copy_tree(tree, changed):
    """Makes the copy equal to the tree but for `changed`, leaving equal files alone."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    wanted = {name for name in listed.split("\0") if name and (PROJECT / name).is_file()}
    tree.mkdir(parents=True, exist_ok=True)
    for path in [path for path in tree.rglob("*") if path.is_file()]:
        if str(path.relative_to(tree)) not in wanted:
            path.unlink()
    for name in wanted:
        source, target = PROJECT / name, tree / name
        text = changed[name].encode() if name in changed else source.read_bytes()
        if not target.exists() or target.read_bytes() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
        if target.stat().st_mode != source.stat().st_mode:
            shutil.copymode(source, target)


# --- All variants of functions in one build ---------------------------------------------------

def offsets(text):
    """Where each line begins."""
    begins = [0]
    for line in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    return begins


def span(begins, place):
    """A span as offsets."""
    begin, end = place["start"], place["end"]
    return begins[begin["line"] - 1] + begin["column"] - 1, begins[end["line"] - 1] + end["column"] - 1


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|b?r#*"|b?"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\'\\])\'|->|.', re.S)


def body_of(text, begin):
    """Where the body of the function begins whose text begins here: its brace."""
    found = re.compile(r"\bfn\b").search(text, begin)
    depth = 0
    for token in TOKEN.finditer(text, found.end()):
        if token[0] in ("(", "[", "<"):
            depth += 1
        elif token[0] in (")", "]", ">"):
            depth -= 1
        elif token[0] == "{" and depth == 0:
            return token.start()
    raise Fault(f"a function without a body: {text[begin:begin + 80]}")


class Function:
    """A function and its mutants."""

    def __init__(self, file, number, begin, end, text):
        self.file, self.number, self.begin, self.end = file, number, begin, end
        self.body = body_of(text, begin)
        self.signature = text[begin:self.body]
        self.mutants = []
        self.is_opaque = "impl " in self.signature.split("->", 1)[-1] and "->" in self.signature

    def variant(self, text, begins, mutant):
        """The body with this fault."""
        begin, end = span(begins, mutant["span"])
        return text[self.body:begin] + mutant["replacement"] + " " + text[end:self.end]


def functions_of(mutants, text, first):
    """The functions of one file that have mutants; those inside others count with these."""
    begins = offsets(text)
    spans = {span(begins, mutant["function"]["span"]) for mutant in mutants if mutant["function"]}
    outer = sorted(one for one in spans
                   if not any(o != one and o[0] <= one[0] and one[1] <= o[1] for o in spans))
    found = [Function(mutants[0]["file"], first + at, begin, end, text)
             for at, (begin, end) in enumerate(outer)]
    for mutant in mutants:
        begin, end = span(begins, mutant["span"])
        for function in found:
            if function.body <= begin and end <= function.end:
                function.mutants.append(mutant)
    return found


def rewrite(text, functions, numbers, left_out, constant):
    """The file with all variants, and the lines of each: (first, last, mutant number)."""
    begins, parts, at, lines = offsets(text), [], 0, []
    line = 1

    def put(piece):
        nonlocal line
        parts.append(piece)
        line += piece.count("\n")

    for function in functions:
        kept = [mutant for mutant in function.mutants if numbers[mutant["name"]] not in left_out]
        if not kept or function.is_opaque or function.number in constant:
            continue
        put(text[at:function.begin])
        put(re.sub(r"\bconst\s+((?:unsafe\s+)?fn\b)", r"\1", function.signature))
        put(f"{{ match crate::mutant_switch::at({function.number}) {{\n")
        for mutant in kept:
            number, first = numbers[mutant["name"]], line
            put(f"{number} => {function.variant(text, begins, mutant)}\n")
            lines.append((first, line - 1, number))
        put(f"_ => {text[function.body:function.end]}\n}} }}")
        at = function.end
    put(text[at:])
    return "".join(parts), lines


def environment(tree):
    """For builds of the copy: in one build folder cargo would take it for the tree itself."""
    return {**ENVIRONMENT, **os.environ, "CARGO_TARGET_DIR": str(tree.parent / "build")}


def cargo(tree, arguments):
    """Messages of cargo in JSON."""
    done = subprocess.run(["cargo", *arguments, "--message-format=json"], cwd=tree, text=True,
                          env=environment(tree), check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done, messages


def all_spans(message):
    """All places that a message of the compiler names, the nearest first."""
    spans = sorted(message["spans"], key=lambda one: not one["is_primary"])
    for one in spans:
        yield one
    for child in message["children"]:
        yield from all_spans(child)


class Schema:
    """The tree with all variants of one package."""

    def __init__(self, base, package, made_of):
        self.tree, self.package = base / "tree", package
        self.mutants = [mutant for mutants in made_of.values() for mutant in mutants]
        self.numbers = {mutant["name"]: number for number, mutant in enumerate(self.mutants, 1)}
        self.texts, self.functions, count = {}, {}, 1
        for file, mutants in made_of.items():
            if mutants:
                self.texts[file] = (PROJECT / file).read_text("utf-8")
                self.functions[file] = functions_of(mutants, self.texts[file], count)
                count += len(self.functions[file])
        self.left_out, self.constant = set(), set()
        self.library = self.find_library()

    def find_library(self):
        """The root of the package's library."""
        told = subprocess.run(["cargo", "metadata", "--no-deps", "--format-version", "1"],
                              cwd=PROJECT, check=True, capture_output=True, text=True).stdout
        package = next(p for p in json.loads(told)["packages"] if p["name"] == self.package)
        library = next(t for t in package["targets"] if "lib" in t["kind"])
        return str(Path(library["src_path"]).relative_to(PROJECT))

    def write(self):
        """Writes the tree. Returns the lines of the variants by file."""
        changed, lines = {}, {}
        for file, functions in self.functions.items():
            changed[file], lines[file] = rewrite(self.texts[file], functions, self.numbers,
                                                 self.left_out, self.constant)
        library = changed.get(self.library) or (PROJECT / self.library).read_text("utf-8")
        changed[self.library] = ALLOWED + library + SWITCH
        copy_tree(self.tree, changed)
        return lines

    def build(self):
        """Leaves out what cannot be built, until the rest can."""
        for _ in range(40):
            lines = self.write()
            done, messages = cargo(self.tree, ["check", "-p", self.package, "--lib"])
            if done.returncode == 0:
                return
            before = len(self.left_out) + len(self.constant)
            errors = [m["message"] for m in messages
                      if m["reason"] == "compiler-message" and m["message"]["level"] == "error"]
            for error in errors:
                self.leave_out(error, lines)
            if len(self.left_out) + len(self.constant) == before:
                raise Fault("the variants cannot be built: "
                            + "".join(e["rendered"] or e["message"] for e in errors[:3]) + done.stderr[-2000:])
            print(f"{len(self.left_out)} mutants cannot be built", flush=True)
        raise Fault("the variants cannot be built")

    def leave_out(self, error, lines):
        """Leaves out what an error is about."""
        called = re.search(r"cannot call non-const (?:function|associated function|method) `([^`]+)`",
                           error["message"])
        if called:
            name = re.sub(r"::<.*>$", "", called[1]).split("::")[-1]
            for functions in self.functions.values():
                self.constant |= {f.number for f in functions
                                  if re.search(rf"\bfn\s+{re.escape(name)}\b", f.signature)}
            return
        for place in all_spans(error):
            for first, last, number in lines.get(place["file_name"], ()):
                if first <= place["line_start"] and place["line_end"] <= last:
                    self.left_out.add(number)
                    return

    def executables(self, tests):
        """Builds the tests. Returns the programs, each with the folder it runs in."""
        done, messages = cargo(self.tree, ["test", "--no-run", "-p", self.package, *tests])
        if done.returncode != 0:
            raise Fault("the tests cannot be built: " + done.stderr[-3000:])
        folder = (self.tree / self.library).parent.parent
        return [(m["executable"], folder) for m in messages
                if m["reason"] == "compiler-artifact" and m.get("executable")
                and m["profile"]["test"]]


def execute(program, folder, arguments, variables, limit):
    """Runs tests. Returns the exit status, `None` at the time limit, and the time it took."""
    began = time.monotonic()
    with subprocess.Popen([program, *arguments], cwd=folder, start_new_session=True,
                          env={**os.environ, "CARGO_MANIFEST_DIR": str(folder), **variables},
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            status = running.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(running.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            running.wait()
    return status, time.monotonic() - began


def reached(base, programs):
    """By function, and program: the names of the tests that come to it, and `None` if threads of
    others do. By program: how long all its tests took, and one of them on average."""
    found, took, one_took = defaultdict(dict), {}, {}
    record = base / "reached"
    for program, folder in programs:
        record.write_text("", "utf-8")
        status, took[program] = execute(program, folder, [],
                                        {"MILLRACE_MUTANTS_REACHED": str(record)}, 900)
        if status != 0:
            raise Fault(f"{program}: the tests fail without any fault put in")
        listed = subprocess.run([program, "--list", "--format", "terse"], cwd=folder, check=True,
                                capture_output=True, text=True).stdout
        tests = {line.removesuffix(": test") for line in listed.splitlines()}
        one_took[program] = took[program] / max(len(tests), 1)
        for line in record.read_text("utf-8").splitlines():
            function, thread = line.split("\t", 1)
            found[int(function)].setdefault(program, set()).add(thread if thread in tests else None)
    return found, took, one_took


def try_all(base, package, tests, made_of, findings, deadline):
    """Tries all mutants of a package that are not known to be noticed."""
    noticed = ("caught", "timeout", "unviable")
    if all(findings.of(file).get(mutant["name"]) in noticed
           for file, mutants in made_of.items() for mutant in mutants):
        return
    schema = Schema(base, package, made_of)
    schema.build()
    programs = schema.executables(tests)
    print(f"{package}: {len(schema.mutants)} mutants, {len(programs)} programs", flush=True)
    by_function, took, one_took = reached(base, programs)
    folders = dict(programs)
    placed = {m["name"]: f for fs in schema.functions.values() for f in fs for m in f.mutants}
    for mutant in schema.mutants:
        if deadline.passed():
            return
        function, number = placed.get(mutant["name"]), schema.numbers[mutant["name"]]
        outcomes = findings.of(mutant["file"])
        if outcomes.get(mutant["name"]) in noticed:
            continue
        if number in schema.left_out:
            findings.add(mutant, "unviable")
            continue
        if function is None or function.is_opaque or function.number in schema.constant:
            if outcomes.get(mutant["name"]) != "survived":
                findings.add(mutant, "untried")
            continue
        outcome = "survived"
        steps = []
        for program, names in by_function[function.number].items():
            named = sorted(names - {None})
            if named:
                steps.append((one_took[program] * len(named), program, named))
            if None in names:
                steps.append((took[program], program, []))
        for expected, program, names in sorted(steps):
            arguments = ["--exact", *names] if names else []
            limit = max(LEAST_SECONDS, MORE * expected)
            status, _ = execute(program, folders[program], arguments,
                                {"MILLRACE_MUTANT": str(number)}, limit)
            if status != 0:
                outcome = "timeout" if status is None else "caught"
                break
        findings.add(mutant, outcome)
        if outcome != "caught":
            print(f"{outcome}: {mutant['name']}", flush=True)


def rebuild_each(base, package, tests, made_of, findings, deadline):
    """Lets cargo-mutants try what cannot be built beside others."""
    left = [mutant for file, mutants in made_of.items() for mutant in mutants
            if findings.of(file).get(mutant["name"]) in (None, "untried")]
    copy_tree(base / "tree", {})
    for mutant in left:
        if deadline.passed():
            return
        output = base / "output"
        shutil.rmtree(output, ignore_errors=True)
        pattern = "^" + re.escape(mutant["name"]).replace("\\ ", " ") + "$"
        command = ["cargo", "mutants", "--in-place", "--output", str(output), "--baseline", "skip",
                   "--timeout", "300", *selection(package, [mutant["file"]]), "--re", pattern,
                   "--", *tests]
        subprocess.run(command, cwd=base / "tree", env=environment(base / "tree"), check=False,
                       stdout=subprocess.DEVNULL)
        told = json.loads((output / "mutants.out/outcomes.json").read_text("utf-8"))
        words = {"CaughtMutant": "caught", "MissedMutant": "survived", "Timeout": "timeout",
                 "Unviable": "unviable"}
        outcome = words[told["outcomes"][-1]["summary"]]
        findings.add(mutant, outcome)
        print(f"{outcome}: {mutant['name']}", flush=True)


# --- The list and the record ------------------------------------------------------------------

def plain(name):
    """A mutant's name without its place."""
    return PLACE.sub("", name)


def judge(names, outcomes, reasons):
    """Compares what survived of one file with the list. Returns what is wrong with it."""
    survived = Counter(plain(name) for name in names if outcomes.get(name) == "survived")
    listed = Counter(reasons)
    wrong = [f"survives: {name}" for name in (survived - listed).elements()]
    if counted(names, outcomes):
        wrong += [f"is listed, and does not survive: {name}"
                  for name in (listed - survived).elements()]
    return wrong


def counted(names, outcomes):
    """What became of a file's mutants; `None` if some were not tried."""
    if any(outcomes.get(name) not in OUTCOMES for name in names):
        return None
    counts = Counter(outcomes[name] for name in names)
    return {"mutants": len(names), **{key: counts[key] for key in OUTCOMES}}


def reasons_of(document, file):
    """The survivors of a file that are listed, once for each time."""
    return [survivor["mutant"] for survivor in document.get("survivors", ())
            if survivor["file"] == file for _ in range(survivor.get("times", 1))]


def write_record(text, record):
    """The list's text with this record at its end."""
    head = text.split(RECORD)[0].rstrip("\n")
    lines = [f'"{file}" = {{ {", ".join(f"{key} = {count}" for key, count in counts.items())} }}\n'
             for file, counts in sorted(record.items())]
    return head + "\n" + RECORD + "".join(lines)


def check(document):
    """What is wrong with the list by itself."""
    wrong = []
    files = [file for part in document["parts"].values() for file in part["files"]]
    wrong += [f"{file}: is in more than one part" for file, n in Counter(files).items() if n > 1]
    for file in sorted({*files, *document.get("record", {})}):
        if not (PROJECT / file).is_file():
            wrong.append(f"{file}: there is no such file")
    for survivor in document.get("survivors", ()):
        if survivor["file"] not in files:
            wrong.append(f"{survivor['file']}: has survivors and is in no part")
        if not survivor.get("reason"):
            wrong.append(f"{survivor['file']}: {survivor['mutant']}: no reason")
    for file, counts in document.get("record", {}).items():
        if counts["survived"] != len(reasons_of(document, file)):
            wrong.append(f"{file}: {counts['survived']} survived, "
                         f"{len(reasons_of(document, file))} have a reason")
    return wrong
