//! The guide for operators at `/docs/`, for hosts without a way to the project's files.
//!
//! The texts are those of `deploy/`, built into the program, and rendered when they are first asked
//! for. The pages have no scripts, and the policy and style of the dashboard.

use std::fmt::Write;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;

use self::render::{Rendered, escaped, render};
use crate::api::problem;
use crate::dashboard;

mod render;

/// The pages: name in the path, file, and text.
const SOURCES: [(&str, &str, &str); 3] = [
    (
        "operations",
        "OPERATIONS.md",
        include_str!("../../../deploy/OPERATIONS.md"),
    ),
    (
        "metrics",
        "METRICS.md",
        include_str!("../../../deploy/METRICS.md"),
    ),
    (
        "status",
        "STATUS.md",
        include_str!("../../../deploy/STATUS.md"),
    ),
];

/// The pictures of the pages: name in the path, file, and content (PNG).
const PICTURES: [(&str, &str, &[u8]); 2] = [
    (
        "dashboard.png",
        "screenshots/dashboard.png",
        include_bytes!("../../../deploy/screenshots/dashboard.png"),
    ),
    (
        "client.png",
        "screenshots/client.png",
        include_bytes!("../../../deploy/screenshots/client.png"),
    ),
];

static PAGES: LazyLock<Vec<Rendered>> = LazyLock::new(|| {
    let texts = SOURCES.iter();
    let texts = texts.map(|(.., text)| render(text, page_of, picture_of));
    texts.collect()
});

/// The name of the page of a file.
fn page_of(file: &str) -> Option<&'static str> {
    let mut sources = SOURCES.iter();
    sources.find_map(|(name, known, _)| (*known == file).then_some(*name))
}

/// The name of a picture's file in the path.
fn picture_of(file: &str) -> Option<&'static str> {
    let mut pictures = PICTURES.iter();
    pictures.find_map(|(name, known, _)| (*known == file).then_some(*name))
}

/// Shows the pages of the guide for operators.
#[utoipa::path(
    get, path = "/docs/", tag = "dashboard", operation_id = "get_guide",
    responses((status = 200, description = "A page.", body = String, content_type = "text/html")),
)]
pub async fn contents() -> Response {
    let mut body = String::from("<h1>The guide for operators</h1>\n");
    for ((name, ..), page) in SOURCES.iter().zip(PAGES.iter()) {
        let title = escaped(&page.title);
        // Writing to a string does not fail.
        let _ = write!(
            body,
            "<h2><a href=\"{name}\">{title}</a></h2>\n{}",
            list(name, page)
        );
    }
    dashboard::html(framed("The guide for operators", "", &body))
}

/// Shows a page or a picture of the guide for operators. Each type of problem has its entry, with
/// the anchor `problem-NAME`, on the page `operations`.
#[utoipa::path(
    get, path = "/docs/{page}", tag = "dashboard", operation_id = "get_guide_page",
    params(("page" = String, Path, description = "The page's name.", example = "operations")),
    responses(
        (status = 200, description = "The page or picture.", content(
            (String = "text/html"),
            (Vec<u8> = "image/png"),
        )),
        (status = 404),
    ),
)]
pub async fn page(Path(name): Path<String>) -> Response {
    let mut pictures = PICTURES.iter();
    if let Some((.., picture)) = pictures.find(|(known, ..)| *known == name) {
        return dashboard::answer("image/png", *picture);
    }
    let mut pages = SOURCES.iter().zip(PAGES.iter());
    match pages.find(|((known, ..), _)| *known == name) {
        Some((_, page)) => {
            let contents = format!("<h2>Contents</h2>\n{}", list("", page));
            dashboard::html(framed(&page.title, &contents, &page.html))
        }
        None => problem(
            StatusCode::NOT_FOUND,
            format!("nothing at /docs/{name}; /docs/ lists the pages of the guide"),
        ),
    }
}

/// The headings of a page, as links.
fn list(name: &str, page: &Rendered) -> String {
    let mut list = String::from("<ul>\n");
    for heading in &page.headings {
        let (anchor, text) = (escaped(&heading.anchor), escaped(&heading.text));
        let class = if heading.is_minor {
            " class=\"minor\""
        } else {
            ""
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            list,
            "<li{class}><a href=\"{name}#{anchor}\">{text}</a></li>"
        );
    }
    list.push_str("</ul>\n");
    list
}

/// A whole page. Its links are relative, so that a proxy may have it below a path.
fn framed(title: &str, contents: &str, body: &str) -> String {
    let mut pages = String::new();
    for ((name, ..), page) in SOURCES.iter().zip(PAGES.iter()) {
        let title = escaped(&page.title);
        // Writing to a string does not fail.
        let _ = writeln!(pages, "    <a href=\"{name}\">{title}</a>");
    }
    let title = escaped(title);
    let contents = match contents {
        "" => String::new(),
        contents => format!("<nav class=\"contents\" aria-label=\"Contents\">\n{contents}</nav>\n"),
    };
    format!(
        r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - Millrace</title>
<link rel="icon" href="../assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="../assets/style.css">
<link rel="stylesheet" href="../assets/guide.css">
</head>
<body class="guide">
<a class="skip" href="#guide-text">Skip to the text</a>
<header>
  <nav aria-label="Pages">
    <a href="../">Dashboard</a>
    <a href="./">Guide</a>
{pages}  </nav>
</header>
<div class="sheet">
{contents}<main id="guide-text" tabindex="-1">
{body}</main>
</div>
</body>
</html>
"##
    )
}

#[cfg(test)]
mod tests;
