//! Names of types: a search for one finds what is meant.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::source_text::SourceTokens;
use super::{files, sources, workspace};

/// Words that say nothing by themselves.
const EMPTY_WORDS: [&str; 9] = [
    "State", "Place", "Entry", "Slot", "Line", "Held", "Plan", "Seat", "Noted",
];

/// Source roots of crates. A program is a crate of its own.
const CRATES: [&str; 12] = [
    "admin/src",
    "admin/src/bin/millracectl",
    "bench/src",
    "mempool/src",
    "reactor/iwarp/src",
    "reactor/primitives/src",
    "reactor/src",
    "target/gss/src",
    "target/src",
    "target/src/bin/millraced",
    "target/store/src",
    "target/wire/src",
];

/// Parallel modules, of which each may have a type of the same name: versions of a protocol, RPC
/// protocols, engines of the store, and what is there with a cargo feature and what without.
const PARALLEL: [[&str; 2]; 9] = [
    ["target/wire/src/mount", "target/wire/src/nfs3"],
    ["target/wire/src/mount", "target/wire/src/ccp"],
    ["target/wire/src/nfs3", "target/wire/src/ccp"],
    [
        "target/wire/src/rpcrdma/version1",
        "target/wire/src/rpcrdma/version2",
    ],
    ["target/store/src/memory", "target/store/src/posix"],
    ["target/store/src/memory", "target/store/src/ceph"],
    ["target/store/src/posix", "target/store/src/ceph"],
    ["target/store/src/any", "target/store/src/"],
    [
        "target/src/service/devices/built_in",
        "target/src/service/devices/left_out",
    ],
];

/// A type, also within a macro or a function.
struct DeclaredType {
    name: String,
    is_visible: bool,
}

fn declared_types(text: &str) -> Vec<DeclaredType> {
    let mut tokens = SourceTokens::of(text);
    let mut found = Vec::new();
    let (mut depth, mut before) = (0, String::new());
    while let Some(word) = tokens.next() {
        match word.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            // Below the top level, `type` is associated with a trait.
            "struct" | "enum" | "trait" | "union" | "type"
                if (depth == 0 || word != "type") && tokens.is_item(&word) =>
            {
                found.push(DeclaredType {
                    name: tokens.peek().unwrap_or_default().to_owned(),
                    // `pub`, the end of `pub(...)`, or `pub fixed` of the macro for XDR.
                    is_visible: ["pub", ")", "fixed"].contains(&before.as_str()),
                });
            }
            _ => {}
        }
        before = word;
    }
    found
}

/// The sources of a crate, without tests and without programs that are crates of their own.
fn product_sources(root: &str) -> Vec<PathBuf> {
    let folder = workspace().join(root);
    let mut found = Vec::new();
    files(&folder, &mut found);
    found.retain(|path| {
        let inside = path.strip_prefix(&folder).expect("it was found there");
        let is_test = inside.components().any(|part| {
            let part = part.as_os_str().to_string_lossy();
            part.trim_end_matches(".rs").ends_with("tests")
        });
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        is_rust && !is_test && !inside.starts_with("bin")
    });
    assert!(!found.is_empty(), "{root} has sources");
    found
}

fn are_parallel(one: &Path, other: &Path) -> bool {
    let workspace = workspace();
    let below = |path: &Path, root: &str| {
        path.starts_with(workspace.join(root)) || {
            path.with_extension("") == workspace.join(root)
        }
    };
    PARALLEL.iter().any(|[left, right]| {
        below(one, left) && below(other, right) || below(one, right) && below(other, left)
    })
}

#[test]
fn no_type_is_named_by_a_word_that_says_nothing() {
    for path in sources() {
        let text = fs::read_to_string(&path).expect("text");
        for DeclaredType { name, .. } in declared_types(&text) {
            let is_empty = EMPTY_WORDS.contains(&name.as_str());
            assert!(!is_empty, "{}: {name} says nothing", path.display());
        }
    }
}

#[test]
fn visible_type_names_are_unique_in_their_crate() {
    let mut faults = Vec::new();
    for root in CRATES {
        let mut visible: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in product_sources(root) {
            let text = fs::read_to_string(&path).expect("text");
            for declared in declared_types(&text)
                .into_iter()
                .filter(|one| one.is_visible)
            {
                visible.entry(declared.name).or_default().push(path.clone());
            }
        }
        for (name, paths) in visible {
            let doubled = paths.iter().enumerate().any(|(at, one)| {
                paths[at + 1..]
                    .iter()
                    .any(|other| !are_parallel(one, other))
            });
            if doubled {
                faults.push(format!(
                    "{root}: {name} is there {} times: {paths:?}",
                    paths.len()
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn declared_types_are_found_with_their_visibility() {
    let text = "
        pub struct One<T>(T); pub(crate) enum Two { Three } struct Four { five: u8 }
        impl Iterator for Four { type Item = u8; } pub type Six = u8; trait Seven { type Eight; }
        xdr_struct! { pub fixed struct Nine { ten: u32 } } fn eleven() { struct Twelve; }
        #[cfg(test)] mod tests { struct Thirteen; }";
    let found = declared_types(text);
    let found: Vec<_> = found
        .iter()
        .map(|one| (one.name.as_str(), one.is_visible))
        .collect();
    let expected = [
        ("One", true),
        ("Two", true),
        ("Four", false),
        ("Six", true),
        ("Seven", false),
        ("Nine", true),
        ("Twelve", false),
    ];
    assert_eq!(found, expected);
}
