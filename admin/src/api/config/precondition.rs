//! The headers `If-Match` and `If-None-Match` (RFC 9110 section 13.1).

use axum::http::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use crate::api::problem::problem;
use crate::change::Tag;

/// Whether a request needs `If-Match`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Required {
    /// It must name the configuration that it changes.
    Yes,
    /// It changes any configuration.
    No,
}

/// The tags of `If-Match`, one of which must be the current one; `None` if any will do. Weak tags
/// and tags of other servers are dropped, as they match nothing.
///
/// # Errors
///
/// The response to send: the header is missing but required (428), or malformed (400).
pub fn expected(headers: &HeaderMap, required: Required) -> Result<Option<Vec<Tag>>, Response> {
    let Some(list) = List::read(headers, &IF_MATCH)? else {
        return match required {
            Required::No => Ok(None),
            Required::Yes => Err(problem(
                StatusCode::PRECONDITION_REQUIRED,
                "a change needs the header If-Match with the ETag of the configuration that it is \
                 based on, or `*` for any",
            )),
        };
    };
    Ok(match list {
        List::Any => None,
        List::Tags(tags) => {
            let strong = tags.into_iter().filter(|tag| !tag.weak);
            Some(strong.filter_map(|tag| tag.ours).collect())
        }
    })
}

/// Whether the client has this configuration according to `If-None-Match`.
///
/// # Errors
///
/// The response to send: the header is malformed (400).
pub fn is_known(headers: &HeaderMap, present: &Tag) -> Result<bool, Response> {
    Ok(match List::read(headers, &IF_NONE_MATCH)? {
        None => false,
        Some(List::Any) => true,
        Some(List::Tags(tags)) => tags.iter().any(|tag| tag.ours.as_ref() == Some(present)),
    })
}

#[derive(Debug, PartialEq)]
enum List {
    Any,
    Tags(Vec<EntityTag>),
}

#[derive(Debug, PartialEq)]
struct EntityTag {
    weak: bool,
    /// `None` for a tag that this service never issued.
    ours: Option<Tag>,
}

impl List {
    /// All headers of the name together; `None` if there are none.
    fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Response> {
        let mut values = headers.get_all(name).iter().peekable();
        if values.peek().is_none() {
            return Ok(None);
        }
        let values: Vec<&[u8]> = values.map(HeaderValue::as_bytes).collect();
        let list = Self::parse(&values.join(&b','));
        list.map(Some).ok_or_else(|| {
            let detail = format!(
                "{name}: write the ETag of the configuration as received, with its quotes, several \
                 separated by commas, or `*`"
            );
            problem(StatusCode::BAD_REQUEST, detail)
        })
    }

    fn parse(text: &[u8]) -> Option<Self> {
        if text.trim_ascii() == b"*" {
            return Some(Self::Any);
        }
        let mut tags = Vec::new();
        let mut rest = text.trim_ascii();
        loop {
            // A list may have empty elements (RFC 9110 section 5.6.1.2).
            while let Some(after) = rest.strip_prefix(b",") {
                rest = after.trim_ascii_start();
            }
            if rest.is_empty() {
                break;
            }
            let (tag, after) = EntityTag::parse(rest)?;
            tags.push(tag);
            rest = after.trim_ascii_start();
            if !rest.is_empty() && !rest.starts_with(b",") {
                return None;
            }
        }
        (!tags.is_empty()).then_some(Self::Tags(tags))
    }
}

impl EntityTag {
    /// Splits off the tag at the beginning.
    fn parse(text: &[u8]) -> Option<(Self, &[u8])> {
        let (weak, text) = match text.strip_prefix(b"W/") {
            Some(text) => (true, text),
            None => (false, text),
        };
        let text = text.strip_prefix(b"\"")?;
        let end = text.iter().position(|&byte| byte == b'"')?;
        let (opaque, after) = (&text[..end], &text[end + 1..]);
        let allowed = |byte: &u8| *byte == 0x21 || *byte >= 0x23 && *byte != 0x7f;
        if !opaque.iter().all(allowed) {
            return None;
        }
        let ours = std::str::from_utf8(opaque).ok().and_then(Tag::of_opaque);
        Some((Self { weak, ours }, after))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag(generation: u64) -> Tag {
        Tag {
            run: 0xabc,
            generation,
        }
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IF_MATCH, HeaderValue::from_str(value).unwrap());
            headers.append(IF_NONE_MATCH, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn lists_and_stars_are_read() {
        let (one, two) = (tag(1).to_string(), tag(2).to_string());
        let read = |values: &[&str]| expected(&headers(values), Required::Yes).unwrap();
        assert_eq!(read(&["*"]), None);
        assert_eq!(read(&[&one]), Some(vec![tag(1)]));
        assert_eq!(
            read(&[&format!(" {one} ,, \"a,b\",{two}")]),
            Some(vec![tag(1), tag(2)])
        );
        assert_eq!(read(&[&one, &two]), Some(vec![tag(1), tag(2)]));
        assert_eq!(read(&[&format!("W/{one}")]), Some(vec![]));
        for foreign in [
            "\"\"",
            "\"x\"",
            "\"0000000000000abc-1x\"",
            "\"abc-1\"",
            "\"0000000000000abc-+1\"",
        ] {
            assert_eq!(read(&[foreign]), Some(vec![]), "{foreign}");
        }
        let none = expected(&HeaderMap::new(), Required::Yes).unwrap_err();
        assert_eq!(none.status(), StatusCode::PRECONDITION_REQUIRED);
        assert_eq!(expected(&HeaderMap::new(), Required::No).unwrap(), None);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for wrong in [
            "",
            ",",
            "x",
            "\"x",
            "x\"",
            "\"a\" \"b\"",
            "w/\"a\"",
            "*, \"a\"",
            "\"a b\"",
        ] {
            let answer = expected(&headers(&[wrong]), Required::Yes).unwrap_err();
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{wrong}");
        }
    }

    #[test]
    fn readers_that_have_it_are_recognized_by_weak_tags_too() {
        let known = |value: &str| is_known(&headers(&[value]), &tag(3)).unwrap();
        for yes in [
            "*".to_owned(),
            tag(3).to_string(),
            format!("\"x\", W/{}", tag(3)),
        ] {
            assert!(known(&yes), "{yes}");
        }
        assert!(!known(&tag(2).to_string()));
        assert!(!is_known(&HeaderMap::new(), &tag(3)).unwrap());
    }

    proptest! {
        #[test]
        fn random_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            List::parse(&bytes);
        }

        #[test]
        fn tags_come_back_as_they_went(run: u64, generation: u64) {
            let tag = Tag { run, generation };
            let list = List::parse(tag.to_string().as_bytes());
            prop_assert_eq!(list, Some(List::Tags(vec![EntityTag { weak: false, ours: Some(tag) }])));
        }
    }
}
