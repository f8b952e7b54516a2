//! The description of the API, compared with the router and checked for consistency.

use std::collections::BTreeSet;

use utoipa::openapi::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};

use super::super::{document, routes};
use super::*;

fn description() -> OpenApi {
    document::complete(routes::table().split_for_parts().1)
}

/// Every operation: method, path and description.
fn operations(api: &OpenApi) -> Vec<(&str, &str, &Operation)> {
    let mut operations = Vec::new();
    for (path, item) in &api.paths.paths {
        let PathItem {
            get,
            put,
            post,
            patch,
            delete,
            ..
        } = item;
        for (method, operation) in [
            ("GET", get),
            ("PUT", put),
            ("POST", post),
            ("PATCH", patch),
            ("DELETE", delete),
        ] {
            operations.extend(operation.as_ref().map(|it| (method, path.as_str(), it)));
        }
    }
    operations
}

/// A path with an invalid name in place of its parameters.
fn filled(path: &str) -> String {
    path.split('/')
        .map(|part| if part.starts_with('{') { "-" } else { part })
        .collect::<Vec<_>>()
        .join("/")
}

#[test]
fn every_operation_is_described_whole() {
    let mut names = BTreeSet::new();
    let api = description();
    let operations = operations(&api);
    assert!(operations.len() > 10, "{}", operations.len());
    for (method, path, operation) in operations {
        let whole = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > 3);
        assert!(whole(&operation.summary), "{method} {path}: summary");
        let name = operation.operation_id.as_ref().unwrap();
        assert!(names.insert(name), "{method} {path}: {name} twice");
        let known = api.tags.as_ref().unwrap();
        let tags = operation.tags.as_ref().unwrap();
        assert_eq!(tags.len(), 1, "{method} {path}");
        assert!(known.iter().any(|tag| tag.name == tags[0]), "{tags:?}");
        let answers: BTreeSet<&str> = operation
            .responses
            .responses
            .keys()
            .map(String::as_str)
            .collect();
        let mut expected = vec!["429", "500", "503"];
        if method == "GET" {
            assert!(operation.security.is_none(), "{method} {path}");
        } else {
            expected.extend(["401", "403"]);
            assert!(operation.security.is_some(), "{method} {path}");
        }
        if operation.request_body.is_some() {
            expected.extend(["400", "413", "415", "422"]);
        }
        if path.contains('{') {
            expected.push("404");
            let parameters = operation.parameters.as_ref().unwrap();
            assert!(!parameters.is_empty(), "{method} {path}");
        }
        for status in expected {
            assert!(answers.contains(status), "{method} {path}: {status}");
        }
        assert!(
            answers.iter().any(|status| status.starts_with('2')),
            "{method} {path}"
        );
    }
}

/// Routes are added to the router through their descriptions only; this shows that they arrive, and
/// that there are no undescribed ones.
#[test]
fn the_router_has_what_is_described_and_nothing_else() {
    let routes = include_str!("../routes.rs");
    for other in [".route(", ".nest(", ".merge("] {
        assert!(!routes.contains(other), "{other} goes past the description");
    }
    let (handle, ..) = usual();
    let api = description();
    let operations = operations(&api);
    for path in api.paths.paths.keys() {
        for method in ["GET", "PUT", "POST", "PATCH", "DELETE", "TRACE"] {
            let described = operations
                .iter()
                .any(|&(known, at, _)| (known, at) == (method, path));
            let target = filled(path);
            let request = format!(
                "{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            );
            let answer = head(&handle, &request);
            let refused = answer.starts_with("HTTP/1.1 405 ");
            assert_eq!(refused, !described, "{method} {path}: {answer}");
            if refused {
                assert!(answer.contains("\r\nallow: "), "{answer}");
            }
        }
    }
}

#[test]
fn what_the_description_refers_to_is_in_it() {
    let (_handle, client, _) = usual();
    let answer = client.get("/api/v1/openapi.json").unwrap();
    let whole: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(whole["openapi"], "3.1.0");
    let mut references = BTreeSet::new();
    collect(&whole, &mut references);
    assert!(references.len() > 20, "{references:?}");
    for reference in references {
        let place = reference.strip_prefix('#').unwrap();
        assert!(whole.pointer(place).is_some(), "{reference}");
    }
    // Types of one name would replace each other.
    let settings = &whole["components"]["schemas"]["ReactorSettings"]["properties"];
    assert!(settings["cores"].is_object(), "{settings}");
    for path in description().paths.paths.keys() {
        assert!(whole["paths"][path].is_object(), "{path}");
    }
}

fn collect(value: &serde_json::Value, references: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Array(items) => {
            for item in items {
                collect(item, references);
            }
        }
        serde_json::Value::Object(items) => {
            for (key, item) in items {
                match item {
                    serde_json::Value::String(text) if key == "$ref" => {
                        references.insert(text.clone());
                    }
                    _ => collect(item, references),
                }
            }
        }
        _ => {}
    }
}

/// A path with names of what there may be in place of its parameters.
fn named(path: &str) -> String {
    path.replace("{address}", "192.0.2.1")
        .replace("{stateid}", "000000000000000000000000")
        .replace("{id}", "7")
        .replace("{generation}", "1")
        .replace("{name}", "main.js")
        .replace("{page}", "status")
}

#[test]
fn a_query_with_an_unknown_key_is_refused_where_programs_of_the_api_ask() {
    let (handle, ..) = usual();
    let api = description();
    let operations = operations(&api);
    let heads = operations.iter().filter(|(method, ..)| *method == "GET");
    let heads = heads.map(|&(_, path, _)| ("HEAD", path));
    let all = operations.iter().map(|&(method, path, _)| (method, path));
    for (method, path) in all.chain(heads) {
        let target = named(path);
        assert!(!target.contains('{'), "{target}");
        for query in ["unheard-of=1", "%66orce%20=true", "unheard-of"] {
            let request = format!(
                "{method} {target}?{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            );
            let answer = raw(&handle, &request);
            if !path.starts_with("/api/") {
                assert!(!answer.starts_with("HTTP/1.1 4"), "{target}: {answer}");
                continue;
            }
            assert!(
                answer.starts_with("HTTP/1.1 400 "),
                "{method} {target}?{query}: {answer}"
            );
            let named = answer.contains("urn:millrace:problem:query");
            assert_eq!(named, method != "HEAD", "{method} {path}: {answer}");
        }
    }
}

#[test]
fn head_is_get_without_a_body_and_options_names_the_methods_of_every_path() {
    let (handle, ..) = usual();
    let api = description();
    let operations = operations(&api);
    let ask = |method: &str, target: &str| {
        let request =
            format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        raw(&handle, &request)
    };
    for path in api.paths.paths.keys() {
        let of_path = operations.iter().filter(|&&(_, known, _)| known == path);
        let mut expected: BTreeSet<&str> = of_path.map(|&(method, ..)| method).collect();
        let target = named(path);
        if expected.contains("GET") {
            expected.insert("HEAD");
            let of_head = ask("HEAD", &target);
            let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            let of_get = head(&handle, &request);
            assert_eq!(of_get.lines().next(), of_head.lines().next(), "{path}");
            assert!(of_head.ends_with("\r\n\r\n"), "{path}: {of_head}");
        }
        let options = ask("OPTIONS", &target);
        assert!(options.starts_with("HTTP/1.1 204 "), "{path}: {options}");
        let allow = options
            .lines()
            .find_map(|line| line.strip_prefix("allow: "));
        let allowed: BTreeSet<&str> = allow.unwrap().split(',').collect();
        assert_eq!(allowed, expected, "{path}");
    }
}
