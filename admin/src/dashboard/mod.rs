//! The page at `/`: live figures in a browser, and limits and drains for holders of the token.
//!
//! It consists of plain HTML, CSS and JavaScript modules, built into the program, and uses the same
//! API as other clients. Its policy forbids loading anything from elsewhere.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::problem;

/// Permissions of the page: its own scripts, styles and pictures, requests to its own server, and
/// nothing else. No other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page: name, type and content.
const ASSETS: &[(&str, &str, &str)] = &[
    ("chart.js", SCRIPT, include_str!("page/chart.js")),
    ("detail.js", SCRIPT, include_str!("page/detail.js")),
    ("dialogs.js", SCRIPT, include_str!("page/dialogs.js")),
    ("exposition.js", SCRIPT, include_str!("page/exposition.js")),
    ("format.js", SCRIPT, include_str!("page/format.js")),
    ("history.js", SCRIPT, include_str!("page/history.js")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("service.js", SCRIPT, include_str!("page/service.js")),
    ("states.js", SCRIPT, include_str!("page/states.js")),
    ("table.js", SCRIPT, include_str!("page/table.js")),
    (
        "style.css",
        "text/css; charset=utf-8",
        include_str!("page/style.css"),
    ),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    (
        "guide.css",
        "text/css; charset=utf-8",
        include_str!("../guide/guide.css"),
    ),
];

/// Shows the dashboard.
#[utoipa::path(
    get, path = "/", tag = "dashboard", operation_id = "get_dashboard",
    responses((status = 200, description = "A page.", body = String, content_type = "text/html")),
)]
pub async fn page() -> Response {
    let html = include_str!("page/index.html");
    answer("text/html; charset=utf-8", html)
}

/// Returns a file of the dashboard.
#[utoipa::path(
    get, path = "/assets/{name}", tag = "dashboard", operation_id = "get_asset",
    params(("name" = String, Path, description = "The part's name.", example = "style.css")),
    responses(
        (status = 200, description = "The part.", content(
            (String = "text/javascript"),
            (String = "text/css"),
            (String = "image/svg+xml"),
        )),
        (status = 404),
    ),
)]
pub async fn asset(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, content)) => answer(kind, *content),
        None => problem(
            StatusCode::NOT_FOUND,
            format!("nothing at /assets/{name}; the dashboard is at /"),
        ),
    }
}

/// A page with the dashboard's policy.
pub fn html(content: String) -> Response {
    answer("text/html; charset=utf-8", content)
}

/// Content of a type, with the dashboard's policy.
pub fn answer(kind: &'static str, content: impl IntoResponse) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_that_the_page_names_is_there_and_none_comes_from_elsewhere() {
        let page = include_str!("page/index.html");
        let named = page
            .split(['"', '\''])
            .filter_map(|word| word.strip_prefix("assets/"));
        let imported = ASSETS.iter().flat_map(|(_, _, content)| {
            content
                .split("from \"./")
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
        });
        let mut seen = 0;
        for name in named.chain(imported) {
            assert!(ASSETS.iter().any(|(known, ..)| *known == name), "{name}");
            seen += 1;
        }
        assert!(seen >= ASSETS.len(), "{seen}");
        for (name, _, content) in ASSETS {
            let content = content.replace("http://www.w3.org/2000/svg", "");
            assert!(!content.contains("://"), "{name} names another place");
            assert!(!content.contains("innerHTML"), "{name} writes markup");
        }
    }
}
