//! The pages as a browser gets them.

use std::collections::BTreeSet;

use axum::body::to_bytes;
use axum::http::header::CONTENT_SECURITY_POLICY;

use super::*;
use crate::status::ProblemType;

/// The pages by name, with the page of contents.
fn pages() -> Vec<(&'static str, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let mut pages = vec![("./", text(contents().await).await)];
        for (name, ..) in SOURCES {
            pages.push((name, text(page(Path(name.to_owned())).await).await));
        }
        pages
    })
}

async fn text(response: Response) -> String {
    assert_eq!(response.status(), 200);
    let policy = response.headers()[CONTENT_SECURITY_POLICY]
        .to_str()
        .unwrap();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The values of an attribute of elements. The text between them has no `<`.
fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
    let start = format!(" {attribute}=\"");
    let tags = html.split('<').skip(1);
    let tags = tags.map(|rest| rest.split('>').next().unwrap());
    let parts = tags.filter_map(|tag| tag.split_once(start.as_str()));
    parts
        .map(|(_, rest)| rest.split('"').next().unwrap())
        .collect()
}

#[test]
fn every_type_of_problem_has_its_anchor_on_the_page() {
    let pages = pages();
    let (_, html) = pages
        .iter()
        .find(|(name, _)| *name == "operations")
        .unwrap();
    let anchors: BTreeSet<&str> = values(html, "id").into_iter().collect();
    for kind in ProblemType::ALL {
        let name = kind.uri().rsplit(':').next().unwrap();
        let anchor = format!("problem-{name}");
        assert!(anchors.contains(anchor.as_str()), "{anchor}");
    }
}

#[test]
fn links_lead_to_pages_and_anchors_that_are_there() {
    let pages = pages();
    let mut seen = 0;
    for (name, html) in &pages {
        let ids = values(html, "id");
        let own: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(own.len(), ids.len(), "{name} has an anchor twice");
        for link in values(html, "href") {
            seen += 1;
            if link.starts_with("../") {
                // The dashboard and its files, which have a test of their own.
                continue;
            }
            let (to, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if to.is_empty() { name } else { to };
            let found = pages.iter().find(|(known, _)| *known == to);
            let (_, target) = found.unwrap_or_else(|| panic!("{name}: {link}"));
            let there = anchor.is_empty() || values(target, "id").contains(&anchor);
            assert!(there, "{name}: {link}");
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn every_picture_is_shown_with_a_description() {
    let pages = pages();
    let shown = |attribute| {
        pages
            .iter()
            .flat_map(move |(_, html)| values(html, attribute))
    };
    let sources: Vec<_> = shown("src").collect();
    assert_eq!(sources, PICTURES.map(|(name, ..)| name));
    assert_eq!(
        shown("alt").filter(|alt| alt.len() > 10).count(),
        sources.len()
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        for name in sources {
            let response = page(Path(name.to_owned())).await;
            assert_eq!(response.headers()["content-type"], "image/png");
            let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
            assert!(body.starts_with(b"\x89PNG\r\n"), "{name}");
        }
    });
}

#[test]
fn the_texts_name_no_file_that_the_reader_cannot_follow() {
    for (_, file, text) in SOURCES {
        let links = text.split("](").skip(1);
        for link in links.map(|rest| rest.split(')').next().unwrap()) {
            let named = link.split('#').next().unwrap();
            let known = named.is_empty() || page_of(named).or(picture_of(named)).is_some();
            assert!(known, "{file}: {link}");
        }
    }
}

#[test]
fn pages_have_elements_of_the_renderer_only() {
    let known = [
        "a",
        "body",
        "code",
        "div",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "head",
        "header",
        "html",
        "li",
        "link",
        "main",
        "meta",
        "nav",
        "ol",
        "p",
        "pre",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "title",
        "tr",
        "ul",
        "hr",
        "img",
        "blockquote",
        "br",
    ];
    for (name, html) in pages() {
        let html = html.strip_prefix("<!doctype html>").unwrap();
        for tag in html.split('<').skip(1) {
            let tag = tag.trim_start_matches('/');
            let element = tag.split([' ', '>', '\n']).next().unwrap();
            assert!(known.contains(&element), "{name}: <{tag}");
        }
        // The policy forbids them.
        assert!(values(html, "style").is_empty(), "{name}");
    }
}

#[test]
fn markup_in_a_text_is_shown_as_text() {
    let text = "# T <b>\n\n<script>alert(1)</script>\n\n<div onclick=\"x()\">\n\n\
                a <img src=x onerror=y> <a id=\"good\"></a> <a id=\"b\" onclick=\"x()\">c</a>\n\n\
                <a href=\"javascript:z\">d</a> [e](javascript:z) [f](javascript&#58;z) \
                [g](other.md) [h](OPERATIONS.md#i) ![pic](https://elsewhere/x.png) `<i>`\n\n\
                ## A & \"B\" <i>\n\n| a |\n| --- |\n| <u>b</u> |\n";
    let rendered = render(text, page_of, picture_of);
    for bad in [
        "<script",
        "<div onclick",
        "<img",
        "<b>",
        "<i>",
        "<u>",
        "<a href=\"javascript",
        "elsewhere",
        "<a id=\"b\"",
        "other.md",
    ] {
        assert!(!rendered.html.contains(bad), "{bad}: {}", rendered.html);
    }
    for good in [
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "<a id=\"good\"></a>",
        "<a href=\"operations#i\">h</a>",
        "pic",
        "<code>&lt;i&gt;</code>",
        "&lt;u&gt;b&lt;/u&gt;",
    ] {
        assert!(rendered.html.contains(good), "{good}: {}", rendered.html);
    }
    assert_eq!(rendered.title, "T ");
    let names = rendered.headings.iter().map(|heading| &*heading.anchor);
    assert_eq!(names.collect::<Vec<_>>(), ["a--b"]);
}
