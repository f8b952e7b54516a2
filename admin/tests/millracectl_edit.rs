//! `config edit`, with editors that are scripts and users that are pipes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use millrace_admin::control::Control;
use support::ctl::{Bench, ended, has, told};

mod support;

/// An editor: a script, whose first argument is the file.
fn editor(bench: &Bench, script: &str) -> PathBuf {
    let file = bench.write("editor", &format!("#!/bin/sh\nset -e\n{script}\n"));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    file
}

/// Edits with a script, with these answers to what is asked.
fn edit(
    bench: &Bench,
    status: i32,
    script: &str,
    options: &[&str],
    answers: &str,
) -> (String, String) {
    let mut command = bench.command(&[&["config", "edit"], options].concat());
    // In place of the shell, so that the editor's parent is the program.
    command.env(
        "VISUAL",
        format!("exec '{}'", editor(bench, script).display()),
    );
    command.env("BENCH", bench.folder.path());
    ended(status, told(command, answers).wait_with_output().unwrap())
}

fn left(bench: &Bench) -> Vec<PathBuf> {
    let files = std::fs::read_dir(bench.folder.path()).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    paths.filter(|path| is_edited(path)).collect()
}

fn is_edited(path: &Path) -> bool {
    path.file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .starts_with("millrace-config-")
}

#[test]
fn what_is_saved_is_shown_asked_for_and_put_in_force() {
    let bench = Bench::new();
    let script = "stat -c %a \"$1\" > \"$BENCH/mode\"
        sed -i -e 's/credits: 128/credits: 64/' -e 's/hugepages: auto/hugepages: off/' \"$1\"";
    let (said, asked) = edit(&bench, 0, script, &[], "what?\ny\n");
    has(&asked, &["flow.credits: 128 -> 64  (live)"]);
    has(
        &asked,
        &[
            "hugepages: auto -> off  (needs a restart)",
            "make this change?",
        ],
    );
    has(&said, &["generation 2 is in force"]);
    assert_eq!(bench.service.config().flow.credits, 64);
    assert_eq!(
        std::fs::read_to_string(bench.file("mode")).unwrap(),
        "600\n"
    );
    assert!(left(&bench).is_empty());
}

#[test]
fn nothing_edited_changes_nothing() {
    let bench = Bench::new();
    for script in ["true", ": > \"$1\""] {
        let (said, _) = edit(&bench, 0, script, &[], "");
        has(&said, &["nothing is changed"]);
    }
    let (_, complaint) = edit(&bench, 2, "exit 3", &[], "");
    has(
        &complaint,
        &["editor", "exit status: 3", "nothing is changed"],
    );
    assert!(left(&bench).is_empty());
    assert_eq!(
        bench.json(&["config", "history"])["history"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn mistakes_are_told_by_line_and_mended() {
    let bench = Bench::new();
    // The first time it makes a mistake that the parser finds, then one that only the server
    // knows, then none.
    let script = "echo >> \"$BENCH/count\"
        case $(wc -l < \"$BENCH/count\") in
        1) sed -i 's/credits: 128/credits: lots/' \"$1\" ;;
        2) sed -i -e 's/credits: lots/credits: 64/' -e 's/^log: .*/log: no such level/' \"$1\" ;;
        *) sed -i 's/^log: .*/log: warn/' \"$1\" ;;
        esac";
    let (said, asked) = edit(&bench, 0, script, &["--yes"], "e\ne\n");
    has(
        &asked,
        &[
            ".yaml:",
            "flow.credits: ",
            "[e]dit again",
            "is neither a level",
        ],
    );
    has(&said, &["credits: 128 -> 64", "log: info -> warn"]);
    assert!(left(&bench).is_empty());
}

#[test]
fn what_is_not_put_in_force_is_kept() {
    let bench = Bench::new();
    let script = "sed -i 's/credits: 128/credits: 64/' \"$1\"";
    let (_, complaint) = edit(&bench, 1, script, &[], "n\n");
    has(&complaint, &["not changed", "your edited file is "]);
    let kept = left(&bench);
    let [file] = kept.as_slice() else {
        panic!("{kept:?}");
    };
    assert!(complaint.contains(file.to_str().unwrap()), "{complaint}");
    assert_eq!(bench.service.config().flow.credits, 128);
    bench.says(&["config", "apply", file.to_str().unwrap()]);
    assert_eq!(bench.service.config().flow.credits, 64);
    std::fs::remove_file(file).unwrap();

    // Nobody answers.
    let (_, complaint) = edit(
        &bench,
        1,
        "sed -i 's/credits: 64/credits: 1/' \"$1\"",
        &[],
        "",
    );
    has(&complaint, &["your edited file is "]);
}

#[test]
fn somebody_who_was_faster_is_not_overwritten() {
    let bench = Bench::new();
    // Another one changes the configuration while the editor is open.
    let script = format!(
        "'{}' config set flow.credits=32 > /dev/null
        sed -i 's/^log: .*/log: warn/' \"$1\"",
        env!("CARGO_BIN_EXE_millracectl")
    );
    let (_, complaint) = edit(&bench, 1, &script, &["--yes"], "");
    has(&complaint, &["412", "your edited file is "]);
    assert_eq!(left(&bench).len(), 1);
    assert_eq!(bench.service.config().flow.credits, 32);
    assert_eq!(bench.service.config().log, "info");
}

#[test]
fn an_interrupt_in_the_editor_is_the_editors() {
    let bench = Bench::new();
    let script = "kill -INT $PPID
        sed -i 's/credits: 128/credits: 64/' \"$1\"";
    let (said, _) = edit(&bench, 0, script, &["--yes"], "");
    has(&said, &["generation 2 is in force"]);
}

#[test]
fn a_dry_run_only_shows() {
    let bench = Bench::new();
    let script = "sed -i 's/credits: 128/credits: 64/' \"$1\"";
    let (said, _) = edit(&bench, 0, script, &["--dry-run"], "");
    has(&said, &["128 -> 64", "dry run: nothing was changed"]);
    assert_eq!(bench.service.config().flow.credits, 128);
}
