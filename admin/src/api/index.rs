//! `/`: a page for people who came with a browser.

use std::fmt::Write;

use axum::http::header;
use axum::response::{Html, IntoResponse, Response};

use super::document::document;
use crate::status::Version;

/// Every path that can be read without further words, and what it answers.
pub fn readable() -> impl Iterator<Item = (&'static str, &'static str)> {
    let paths = document().api.paths.paths.iter();
    paths.filter_map(|(path, item)| {
        let summary = item.get.as_ref()?.summary.as_deref()?;
        (path != "/" && !path.contains('{')).then_some((path.as_str(), summary))
    })
}

/// Lists what there is, for people.
#[utoipa::path(
    get, path = "/", tag = "api", operation_id = "get_index",
    responses((status = 200, description = "A page.", body = String, content_type = "text/html")),
)]
pub async fn index() -> Response {
    let version = Version::current().version;
    let mut rows = String::new();
    for (path, meaning) in readable() {
        // Writing into a string has no way to fail.
        let _ = writeln!(
            rows,
            "<tr><td><a href=\"{path}\">{path}</a></td><td>{meaning}</td></tr>"
        );
    }
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Millrace</title>\n\
         <style>body{{font-family:sans-serif;margin:2em}}td{{padding:.2em 1em .2em 0}}</style>\
         </head>\n<body><h1>Millrace {version}</h1>\n\
         <p>The management plane. <code>millracectl</code> shows the same in tables;\n\
         <a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a> describes everything, changes \
         too.</p>\n\
         <table>\n{rows}</table></body></html>\n"
    );
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(page)).into_response()
}
