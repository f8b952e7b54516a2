//! The ends of YAML values, and their form on one line.

use serde_yaml::Value;

/// The start of a line, by its number from one.
pub fn line_start(text: &str, line: usize) -> Option<usize> {
    let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(breaks).nth(line.checked_sub(1)?)
}

/// The start of the line with this position.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |found| found + 1)
}

/// The end of a value that begins with a bracket or a quotation mark.
pub fn flow_end(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = start;
    let mut depth = 0_usize;
    loop {
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        let begins = before.is_ascii_whitespace() || b"[{,:".contains(&before);
        match *bytes.get(at)? {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.checked_sub(1)?,
            quote @ (b'"' | b'\'') if begins || at == start => at = quote_end(bytes, at, quote)?,
            b'#' if before.is_ascii_whitespace() => {
                at += text[at..].find('\n')?;
            }
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The position of the closing quotation mark.
fn quote_end(bytes: &[u8], start: usize, quote: u8) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match *bytes.get(at)? {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote => match bytes.get(at + 1) {
                Some(b'\'') if quote == b'\'' => at += 1,
                _ => return Some(at),
            },
            _ => {}
        }
        at += 1;
    }
}

/// The end of a plain value on one line.
pub fn plain_end(text: &str, start: usize, in_flow: bool) -> usize {
    let line = text[start..].lines().next().unwrap_or_default();
    let comment = line.find(" #").unwrap_or(line.len());
    let mut word = &line[..comment];
    if in_flow {
        word = word.split([',', ']', '}']).next().unwrap_or_default();
    }
    start + word.trim_end().len()
}

/// The end of a block entry: of the last line indented further than its beginning, with the line
/// break. Comments after it belong to the next entry.
pub fn entry_end(text: &str, start: usize) -> usize {
    let line = line_of(text, start);
    let column = text[line..start].chars().count();
    let is_key = !text[start..].starts_with("- ");
    let mut end = None;
    let mut at = line;
    for (number, one) in text[line..].split_inclusive('\n').enumerate() {
        at += one.len();
        let content = one.trim_start_matches(' ');
        let indent = one.len() - content.len();
        let content = content.trim_end();
        let is_blank = content.is_empty() || content.starts_with('#');
        // The list of a key may be below it without more indentation.
        let dashed = is_key && indent == column && (content.starts_with("- ") || content == "-");
        if number > 0 && !is_blank && indent <= column && !dashed {
            break;
        }
        if number == 0 || !is_blank {
            end = Some(at);
        }
    }
    end.unwrap_or(text.len())
}

/// A value on one line. `None` if that is not possible.
pub fn inline(value: &Value, in_flow: bool) -> Option<String> {
    Some(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(text) => word(text, in_flow)?,
        Value::Sequence(list) => {
            let items: Option<Vec<String>> = list.iter().map(|item| inline(item, true)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Mapping(map) if map.is_empty() => "{}".to_owned(),
        Value::Mapping(map) => {
            let entry = |(key, value): (&Value, &Value)| {
                Some(format!("{}: {}", key.as_str()?, inline(value, true)?))
            };
            let entries: Option<Vec<String>> = map.iter().map(entry).collect();
            format!("{{ {} }}", entries?.join(", "))
        }
        Value::Tagged(_) => return None,
    })
}

/// A text without quotation marks, if it is then read as the same text.
fn word(text: &str, in_flow: bool) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_.:=-".contains(c) || c == ',' && !in_flow;
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    let same = || serde_yaml::from_str::<Value>(text).is_ok_and(|read| read == *text);
    if begins && text.chars().all(plain) && !text.ends_with(':') && same() {
        return Some(text.to_owned());
    }
    serde_json::to_string(text).ok()
}
