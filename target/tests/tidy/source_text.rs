//! Source text as tokens, as far as the paths in it go.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::str::Chars;

/// The tokens of a file without comments, literals and what is there for tests only: words, `::`
/// and single characters.
pub struct SourceTokens(VecDeque<String>);

impl SourceTokens {
    pub fn of(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(first) = rest.next() {
            match first {
                '/' if rest.peek() == Some(&'/') => drop(rest.find(|&one| one == '\n')),
                '"' => skip_string(&mut rest),
                '\'' => skip_quoted(&mut rest),
                ':' if rest.next_if_eq(&':').is_some() => tokens.push("::".to_owned()),
                _ if first.is_whitespace() => {}
                _ if is_word(first) => {
                    let mut word = String::from(first);
                    while let Some(next) = rest.next_if(|&next| is_word(next)) {
                        word.push(next);
                    }
                    match (word.as_str(), rest.peek()) {
                        ("r" | "br", Some('"' | '#')) => skip_raw(&mut rest),
                        _ => tokens.push(word),
                    }
                }
                _ => tokens.push(first.to_string()),
            }
        }
        Self(without_tests(tokens.into()))
    }

    pub fn next(&mut self) -> Option<String> {
        self.0.pop_front()
    }

    pub fn peek(&self) -> Option<&str> {
        self.0.front().map(String::as_str)
    }

    /// Whether this word begins an item, whose name is next.
    pub fn is_item(&self, word: &str) -> bool {
        let begins = [
            "fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod",
        ];
        begins.contains(&word) && self.peek().is_some_and(|next| next.chars().all(is_word))
    }

    /// The rest of a path that begins with this word.
    pub fn path(&mut self, first: &str) -> Vec<String> {
        let mut path = vec![first.to_owned()];
        while self.peek() == Some("::")
            && self.0.get(1).is_some_and(|next| next.chars().all(is_word))
        {
            self.next();
            path.extend(self.next());
        }
        path
    }

    /// The names that a `use` brings in from below `prefix`, and the path of each.
    pub fn use_tree(&mut self, prefix: &mut Vec<String>, brought: &mut Vec<(String, Vec<String>)>) {
        let length = prefix.len();
        loop {
            match self.next().as_deref() {
                Some("::") => continue,
                Some("{") => {
                    while self.peek() != Some("}") {
                        self.use_tree(prefix, brought);
                        if self.peek() == Some(",") {
                            self.next();
                        }
                    }
                    self.next();
                    break prefix.truncate(length);
                }
                Some(word) => prefix.push(word.to_owned()),
                None => break,
            }
            if self.peek() == Some("::") {
                continue;
            }
            let mut name = prefix.last().cloned().unwrap_or_default();
            if name == "self" && prefix.len() > 1 || name == "*" {
                prefix.pop();
            }
            if name == "self" {
                name = prefix.last().cloned().unwrap_or_default();
            }
            if self.peek() == Some("as") {
                self.next();
                name = self.next().unwrap_or_default();
            }
            brought.push((name, prefix.clone()));
            break prefix.truncate(length);
        }
    }
}

fn is_word(one: char) -> bool {
    one.is_alphanumeric() || one == '_'
}

fn skip_string(rest: &mut Peekable<Chars<'_>>) {
    while let Some(one) = rest.next() {
        match one {
            '\\' => drop(rest.next()),
            '"' => return,
            _ => {}
        }
    }
}

fn skip_raw(rest: &mut Peekable<Chars<'_>>) {
    let mut fence = 0;
    while rest.next_if_eq(&'#').is_some() {
        fence += 1;
    }
    rest.next();
    while let Some(one) = rest.next() {
        let mut marks = 0;
        while one == '"' && marks < fence && rest.next_if_eq(&'#').is_some() {
            marks += 1;
        }
        if one == '"' && marks == fence {
            return;
        }
    }
}

/// A character, but not the name of a lifetime.
fn skip_quoted(rest: &mut Peekable<Chars<'_>>) {
    let mut ahead = rest.clone();
    let first = ahead.next();
    if first == Some('\\') || ahead.next() == Some('\'') {
        rest.next();
        rest.next();
        if first == Some('\\') {
            rest.find(|&one| one == '\'');
        }
    }
}

/// Takes out each item that `#[cfg(test)]` stands before.
fn without_tests(mut tokens: VecDeque<String>) -> VecDeque<String> {
    let mut kept = VecDeque::new();
    let marker = ["#", "[", "cfg", "(", "test", ")", "]"];
    while !tokens.is_empty() {
        if tokens.iter().take(marker.len()).eq(&marker) {
            tokens.drain(..marker.len());
            skip_item(&mut tokens);
        } else {
            kept.extend(tokens.pop_front());
        }
    }
    kept
}

fn skip_item(tokens: &mut VecDeque<String>) {
    let mut depth = 0;
    while let Some(token) = tokens.pop_front() {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(token.as_str(), ";" | "," | "}") {
            return;
        }
    }
}
