//! `/`: a page for people who came with a browser.

use std::fmt::Write;

use axum::http::header;
use axum::response::{Html, IntoResponse, Response};

use crate::status::Version;

/// Every path and what it answers; the router's test reads it too.
pub const ENDPOINTS: &[(&str, &str)] = &[
    ("/metrics", "metrics for Prometheus"),
    (
        "/healthz",
        "200 when all reactors turn, else 503 and which are stalled",
    ),
    (
        "/readyz",
        "200 when clients are served, 503 while starting or draining",
    ),
    ("/api/v1/version", "which program answers"),
    ("/api/v1/config", "the configuration in force"),
    ("/api/v1/config?format=yaml", "the same as YAML"),
    ("/api/v1/connections", "connections of clients"),
    ("/api/v1/reactors", "the pinned loops"),
    ("/api/v1/pools", "buffers of each loop"),
    ("/api/v1/exports", "exported trees"),
];

pub async fn index() -> Response {
    let version = Version::current().version;
    let mut rows = String::new();
    for (path, meaning) in ENDPOINTS {
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
         <p>The management plane, read-only. <code>millracectl</code> shows the same in tables.</p>\n\
         <table>\n{rows}</table></body></html>\n"
    );
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(page)).into_response()
}
