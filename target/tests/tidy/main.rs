//! House rules that no compiler checks.

mod module_cycles;
mod source_text;
mod type_names;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A file longer than this has more than one purpose.
const LINES_MAX: usize = 700;

fn workspace() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder
        .parent()
        .expect("the crate lives in the workspace")
        .to_owned()
}

/// All files below a folder, without build output and what git keeps.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let skipped = ["build", ".git", "artifacts", "corpus"];
        if path.is_dir() {
            if !skipped
                .iter()
                .any(|name| path.file_name() == Some(OsStr::new(name)))
            {
                files(&path, found);
            }
        } else {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&workspace(), &mut found);
    found.retain(|path| path.extension() == Some(OsStr::new("rs")));
    assert!(found.len() > 50, "the search finds the sources");
    found
}

/// `target/` is cargo's default build folder, and `cargo clean` would delete it: whatever cargo
/// leaves here shows that someone built without `.cargo/config.toml`.
#[test]
fn the_folder_called_target_holds_nothing_but_the_crates() {
    let allowed = [
        "Cargo.toml",
        "examples",
        "gss",
        "src",
        "store",
        "tests",
        "wire",
    ];
    for entry in fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("readable") {
        let name = entry.expect("readable").file_name();
        assert!(
            allowed.iter().any(|known| name == *known),
            "target/{} is foreign",
            name.display()
        );
    }
    let config = fs::read_to_string(workspace().join(".cargo/config.toml")).expect("readable");
    assert!(
        config.contains("target-dir = \"build\""),
        "the build output is moved"
    );
}

#[test]
fn files_have_one_purpose() {
    for path in sources() {
        let lines = fs::read_to_string(&path).expect("text").lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
    }
}

/// What cannot be tried everywhere is skipped with its reason, and the checks judge that
/// (`bench/testing`). An ignored test is run by nobody.
#[test]
fn no_test_is_ignored() {
    let marker = ["#[", "ignore"].concat();
    for path in sources() {
        let text = fs::read_to_string(&path).expect("text");
        assert!(!text.contains(&marker), "{}", path.display());
    }
}

/// The service maps one file, takes sockets from the service manager and sets up the allocator, and
/// is safe code otherwise.
#[test]
fn unsafe_code_of_the_service_is_in_three_places() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&folder, &mut found);
    let marker = ["allow(", "unsafe_code)"].concat();
    found.retain(|path| fs::read_to_string(path).is_ok_and(|text| text.contains(&marker)));
    found.sort();
    let places = [
        "bin/millraced/allocator.rs",
        "bin/millraced/inherited.rs",
        "rpc/replay/map.rs",
    ];
    assert_eq!(found, places.map(|place| folder.join(place)));
}

/// The management crate reads what the data path writes. Only what builds and reports the service
/// knows both.
#[test]
fn the_data_path_does_not_name_the_management_crate() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&source, &mut found);
    found.retain(|path| {
        let may = ["service", "bin"].map(|room| path.starts_with(source.join(room)));
        may == [false; 2]
    });
    assert!(found.len() > 50, "the search finds the data path");
    found.retain(|path| {
        let text = fs::read_to_string(path).expect("text");
        text.contains("millrace_admin")
            || text.contains("millrace::service")
            || text.contains("crate::service")
    });
    assert_eq!(found, [""; 0].map(PathBuf::from));
}

#[test]
fn scripts_build_outside_the_source_folder() {
    let common = fs::read_to_string(workspace().join("deploy/lib/common.sh")).expect("readable");
    assert!(common.contains("export CARGO_TARGET_DIR"));
    for name in ["check", "quickstart", "fuzz"] {
        let script = fs::read_to_string(workspace().join("deploy").join(name)).expect("readable");
        assert!(
            script.contains("lib/common.sh"),
            "deploy/{name} uses the common ground"
        );
    }
}
