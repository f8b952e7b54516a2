//! Unusual, hostile and random YAML: a result each time, never a panic and never a long wait. These
//! also define what a replacement of the YAML library must do.

use proptest::prelude::*;

use super::super::*;
use super::{FILE, accept, refuse};

#[test]
fn text_that_is_not_yaml_names_the_line() {
    for (text, line) in [
        ("flow:\n\tcredits: 1\n", 2),
        ("log: info\n@\n", 2),
        ("log: info\nexports: [\n", 3),
        ("log: 'info\n", 2),
        ("flow: { credits: 1,\n", 2),
        ("log: info\n  poll: busy\n", 2),
        ("log: *nowhere\n", 1),
    ] {
        let errors = refuse(text);
        let error = errors.iter().next().unwrap();
        assert_eq!(error.line, Some(line), "{errors}\n---\n{text}");
    }
}

#[test]
fn a_file_without_content_is_refused() {
    for text in ["", "\n\n", "# only a comment\n", "---\n", "---\n# x\n...\n"] {
        assert!(
            refuse(text).to_string().contains("the file is empty"),
            "{text:?}"
        );
    }
    for text in ["~\n", "null", "42", "[]", "text", "- 1\n"] {
        refuse(text);
    }
}

#[test]
fn more_than_one_document_is_refused() {
    assert!(
        refuse("log: info\n---\nlog: warn\n")
            .to_string()
            .contains("document")
    );
}

#[test]
fn anchors_and_aliases_work_and_errors_still_find_their_place() {
    let config = accept(
        "exports:\n- &one\n  path: /a\n  store: &store { kind: memory, size: 1GiB }\n\
         - path: /b\n  store: *store\n",
    );
    assert_eq!(config.exports[1].store, config.exports[0].store);
    let errors = refuse(
        "exports:\n- path: /a\n  store: &store { kind: memory, size: 0 }\n- path: /b\n  store: *store\n",
    );
    let lines: Vec<_> = errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [Some(3), Some(3)], "{errors}");
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let item = format!("*a{},", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", item.repeat(9)));
    }
    // In place of a value that is read, so that it would be expanded.
    refuse(&format!("{text}exports: *a11\n"));
    let within = text.replace("a0: &a0", "exports: &a0");
    refuse(&within);
}

#[test]
fn a_self_containing_alias_is_refused() {
    refuse("exports: &all\n- *all\n");
    refuse("exports:\n- &one\n  path: /a\n  store: *one\n");
}

#[test]
fn deep_nesting_is_refused() {
    let deep = 100_000;
    refuse(&format!(
        "exports: {}{}\n",
        "[".repeat(deep),
        "]".repeat(deep)
    ));
    refuse(&format!("log: {}", "- ".repeat(deep)));
}

#[test]
fn merge_keys_and_tags_are_not_silently_dropped() {
    let text = "flow: &f { credits: 1 }\nrpc:\n  <<: *f\n";
    assert!(refuse(text).to_string().contains("unknown key `<<`"));
    refuse("flow: { credits: !!str 12 }\n");
}

#[test]
fn keys_that_are_not_words_are_refused() {
    for text in ["1: 2\n", "true: 1\n", "? [a]\n: 1\n", "~: 1\n", "'': 1\n"] {
        refuse(text);
    }
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_accepted() {
    assert_eq!(
        accept("\u{feff}log: warn\r\nflow:\r\n  credits: 7\r\n")
            .flow
            .credits,
        7
    );
}

#[test]
fn a_text_beyond_the_bound_is_refused_unread() {
    let text = format!("log: info\n#{}", "x".repeat(TEXT_MAX));
    assert!(
        refuse(&text)
            .to_string()
            .contains("longer than 1048576 bytes")
    );
    accept(&format!("log: info\n#{}", "x".repeat(TEXT_MAX - 100)));
}

proptest! {
    #[test]
    fn random_text_gets_an_answer(text in "\\PC{0,200}") {
        if let Err(errors) = parse(&text, FILE) {
            prop_assert!(!errors.to_string().is_empty());
        }
    }

    #[test]
    fn an_example_with_one_character_changed_gets_an_answer(
        at: proptest::sample::Index,
        with in "[-:#\\[\\]{}&*!|>'\"%@` \t\n0-9a-z]",
    ) {
        let mut text: Vec<char> = Config::default_text().chars().collect();
        let at = at.index(text.len());
        text.splice(at..=at, with.chars());
        let text: String = text.into_iter().collect();
        if let Err(errors) = parse(&text, FILE) {
            for error in &errors {
                prop_assert!(error.line.is_some(), "{}", error);
                prop_assert!(error.line <= Some(text.lines().count() + 1), "{}", error);
            }
        }
    }

    #[test]
    fn an_example_cut_short_gets_an_answer(at: proptest::sample::Index) {
        let text = Config::default_text();
        let mut at = at.index(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        if let Err(errors) = parse(&text[..at], FILE) {
            prop_assert!(errors.iter().all(|error| error.line.is_some()), "{}", errors);
        }
    }
}
