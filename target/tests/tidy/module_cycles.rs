//! Cycles among the modules of a folder: files that can only be read and changed together, as each
//! uses the next one.
//!
//! A path counts for the file that defines what it names: a name that a module re-exports leads to
//! where it comes from, and a re-export is no use by itself. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::source_text::SourceTokens;
use super::{files, workspace};

/// The most files that may form a cycle.
const CYCLE_MAX: usize = 5;

/// Folders, the source root of the crate of each, and the size of its largest cycle. A size above
/// [`CYCLE_MAX`] was found when the folder came under this check, and may only shrink.
const FOLDERS: [(&str, &str, usize); 3] = [
    ("admin/src", "api", CYCLE_MAX),
    ("target/store/src", "posix", CYCLE_MAX),
    ("bench/src", "requester", 2),
];

/// Aliases that are followed to find where a name comes from.
const ALIASES_MAX: usize = 8;

#[test]
fn modules_of_a_folder_form_no_large_cycle() {
    for (root, folder, most) in FOLDERS {
        let tree = SourceTree::read(&workspace().join(root));
        let cycle = tree.largest_cycle(folder);
        let size = cycle.len();
        assert!(
            size <= most,
            "{root}/{folder}: {size} files form a cycle, at most {most} may: {cycle:?}"
        );
        assert!(
            most <= CYCLE_MAX || size == most,
            "{root}/{folder}: the largest cycle has {size} files by now; lower the limit of {most}"
        );
    }
}

#[test]
fn cycles_are_found_through_re_exports() {
    let mut tree = SourceTree::default();
    for (module, text) in [
        (
            "api",
            "mod one; mod two; mod three; mod four; pub use one::One; pub use four::*;",
        ),
        (
            "api::one",
            "use super::two::{self, Two as _}; pub struct One;",
        ),
        (
            "api::two",
            "pub struct Two; fn of() -> crate::api::One { three::f() }",
        ),
        (
            "api::three",
            "// super::one\nuse super::Four; fn f() { let _ = \"super::two\"; }",
        ),
        (
            "api::four",
            "pub struct Four; #[cfg(test)] mod tests { use super::super::three; }",
        ),
    ] {
        tree.add(module, text);
    }
    assert_eq!(tree.largest_cycle("api"), ["api::one", "api::two"]);
    let edges: Vec<_> = tree.used_by("api::three").into_iter().collect();
    assert_eq!(edges, ["api::four"]);
}

/// A name within a module and the path that it stands for.
type Alias = (String, Vec<String>);

/// The modules of a crate by their paths, that of the crate being empty.
#[derive(Default)]
struct SourceTree {
    modules: BTreeMap<String, Module>,
}

/// What one file says of others.
#[derive(Default)]
struct Module {
    /// Paths that are used, as written.
    paths: BTreeSet<Vec<String>>,
    /// What is brought in, under which name; `*` for whatever a module has.
    aliases: Vec<Alias>,
    /// Names of items.
    items: BTreeSet<String>,
}

impl SourceTree {
    fn read(root: &Path) -> Self {
        let mut found = Vec::new();
        files(root, &mut found);
        found.retain(|path| path.extension().is_some_and(|end| end == "rs"));
        let mut tree = Self::default();
        for path in found {
            let name = path.strip_prefix(root).expect("below").with_extension("");
            let names = name.iter().map(|name| name.to_str().expect("text"));
            let names = names.filter(|name| !["lib", "mod"].contains(name));
            let text = fs::read_to_string(&path).expect("text");
            tree.add(&names.collect::<Vec<_>>().join("::"), &text);
        }
        tree
    }

    fn add(&mut self, name: &str, text: &str) {
        self.modules.insert(name.to_owned(), Module::read(text));
    }

    /// The largest cycle of the modules of a folder.
    fn largest_cycle(&self, folder: &str) -> Vec<&str> {
        let inside = |name: &str| name == folder || name.starts_with(&format!("{folder}::"));
        let tests = |name: &str| name.split("::").any(|name| name.ends_with("tests"));
        let names = self.modules.keys().map(String::as_str);
        let names: Vec<_> = names.filter(|name| inside(name) && !tests(name)).collect();
        let used: BTreeMap<_, _> = names
            .iter()
            .map(|name| (*name, self.used_by(name)))
            .collect();
        let reached: BTreeMap<_, _> = names
            .iter()
            .map(|name| (*name, reached(&used, name)))
            .collect();
        let cycle = |one: &&str| -> Vec<&str> {
            let both =
                |other: &&&str| reached[*one].contains(**other) && reached[**other].contains(*one);
            names.iter().filter(both).copied().collect()
        };
        let cycles = names.iter().map(cycle);
        cycles.max_by_key(Vec::len).unwrap_or_default()
    }

    fn used_by(&self, name: &str) -> BTreeSet<String> {
        let paths = self.modules[name].paths.iter();
        let used = paths.filter_map(|path| self.find(name, path, ALIASES_MAX));
        used.filter(|used| used != name).collect()
    }

    /// The module that defines what a path within `module` names; `None` for other crates.
    fn find(&self, module: &str, path: &[String], aliases: usize) -> Option<String> {
        let mut at: Vec<&str> = module.split("::").filter(|name| !name.is_empty()).collect();
        let mut rest = path;
        let mut is_name = true;
        while let [first, others @ ..] = rest {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ => break,
            }
            (rest, is_name) = (others, false);
        }
        while let [first, others @ ..] = rest {
            at.push(first);
            if !self.modules.contains_key(&at.join("::")) {
                at.pop();
                break;
            }
            (rest, is_name) = (others, false);
        }
        let found = at.join("::");
        let Some((item, others)) = rest.split_first() else {
            return Some(found);
        };
        let here = &self.modules[&found];
        for (name, path) in here.aliases.iter().filter(|_| aliases > 0) {
            let target = match name.as_str() {
                "*" => self
                    .find(&found, path, aliases - 1)
                    .filter(|target| self.modules[target].items.contains(item)),
                _ if name == item => self.find(&found, &[path, others].concat(), aliases - 1),
                _ => continue,
            };
            if target.is_some() {
                return target;
            }
        }
        (!is_name).then_some(found)
    }
}

/// The modules that are used by one, and by those, and so on.
fn reached(used: &BTreeMap<&str, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(name) = left.pop() {
        let next = used.get(name).into_iter().flatten();
        left.extend(
            next.filter(|next| reached.insert((*next).clone()))
                .map(String::as_str),
        );
    }
    reached
}

impl Module {
    fn read(text: &str) -> Self {
        let mut module = Self::default();
        let mut re_exports = Vec::new();
        let mut words = BTreeSet::new();
        let mut tokens = SourceTokens::of(text);
        let mut before = String::new();
        while let Some(token) = tokens.next() {
            if token == "use" {
                let mut brought = Vec::new();
                tokens.use_tree(&mut Vec::new(), &mut brought);
                match before.as_str() {
                    "pub" | ")" => re_exports.extend(brought.iter().cloned()),
                    _ => module
                        .paths
                        .extend(brought.iter().map(|(_, path)| path.clone())),
                }
                module.aliases.extend(brought);
            } else if tokens.is_item(&token) {
                module.items.extend(tokens.peek().map(str::to_owned));
            } else if tokens.peek() == Some("::") && before != "::" {
                let path = tokens.path(&token);
                words.extend(path.first().cloned());
                // `pub(in …)` tells who may use something.
                if before != "in" {
                    module.paths.insert(path);
                }
            } else {
                words.insert(token.clone());
            }
            before = token;
        }
        let used = re_exports
            .into_iter()
            .filter(|(name, _)| words.contains(name));
        module.paths.extend(used.map(|(_, path)| path));
        module
    }
}
