//! The protection of the management plane: valid values, errors and notes.

use std::path::PathBuf;

use super::super::*;
use super::{accept, refuse_at};

const FILES: &str = "certificate: /a.pem, key: /a.key";

#[test]
fn tls_has_files_and_a_rule_for_clients() {
    let text = format!(
        "admin: {{ listen: '[::]:1', tls: {{ {FILES}, client_ca: /c.pem, client_auth: required }} }}"
    );
    let config = accept(&text);
    let expected = Tls {
        certificate: PathBuf::from("/a.pem"),
        key: PathBuf::from("/a.key"),
        client_ca: Some(PathBuf::from("/c.pem")),
        client_auth: ClientAuth::Required,
    };
    assert_eq!(config.admin.tls, Some(expected));
    assert_eq!(config.admin.plain_http, PlainHttp::Loopback);
    assert_eq!(accept(&to_yaml(&config)), config);
    let config = accept(&format!("admin: {{ tls: {{ {FILES} }} }}"));
    assert_eq!(
        config.admin.tls.map(|tls| tls.client_auth),
        Some(ClientAuth::None)
    );
}

#[test]
fn plain_http_beyond_this_host_has_to_be_asked_for() {
    for (listen, column) in [
        ("0.0.0.0:9620", 11),
        ("192.0.2.1:1", 11),
        ("'[::]:9620'", 11),
    ] {
        let text = format!("admin:\n  listen: {listen}\n");
        refuse_at(
            &text,
            2,
            column,
            "admin.listen",
            &["admin.tls", "127.0.0.1:", "plain_http: anywhere"],
        );
        accept(&format!("{text}  plain_http: anywhere\n"));
        accept(&format!("{text}  tls: {{ {FILES} }}\n"));
    }
    for listen in [
        "127.0.0.1:1",
        "127.8.9.1:1",
        "'[::1]:1'",
        "'[::ffff:127.0.0.1]:1'",
    ] {
        accept(&format!("admin:\n  listen: {listen}\n"));
    }
    refuse_at(
        "admin:\n  plain_http: nowhere\n",
        2,
        15,
        "admin.plain_http",
        &["`loopback`", "`anywhere`"],
    );
}

#[test]
fn tls_rules() {
    for (text, column, key, words) in [
        (
            "{ certificate: a.pem, key: /a }",
            23,
            ".certificate",
            "relative",
        ),
        ("{ certificate: /a, key: a.key }", 32, ".key", "relative"),
        (
            "{ certificate: /a, key: /b, client_ca: c, client_auth: optional }",
            47,
            ".client_ca",
            "relative",
        ),
        (
            "{ certificate: /a, key: /b, client_auth: required }",
            49,
            ".client_auth",
            "client_ca is missing",
        ),
        (
            "{ certificate: /a, key: /b, client_ca: /c }",
            47,
            ".client_ca",
            "client_auth: required",
        ),
        (
            "{ certificate: /a, key: /b, client_auth: on }",
            49,
            ".client_auth",
            "`optional`",
        ),
        ("{ certificate: /a }", 8, "", "missing key `key`"),
        (
            "{ certificate: /a, key: /b, ca: /c }",
            36,
            ".ca",
            "`client_ca`",
        ),
        ("on", 8, "", "wrong kind of value"),
    ] {
        let text = format!("admin:\n  tls: {text}\n");
        refuse_at(&text, 2, column, &format!("admin.tls{key}"), &[words]);
    }
}

#[test]
fn notes_tell_who_can_read_from_elsewhere() {
    let notes = |admin: &str| {
        let text = format!(
            "exports: [{{ path: /s, store: {{ kind: memory, size: 1GiB }} }}]\n\
             state_directory: /var/lib/millrace\nadmin: {{ {admin} }}\n"
        );
        accept(&text).notes().join("\n")
    };
    assert_eq!(notes("listen: '127.0.0.1:1'"), "");
    assert!(notes("listen: '0.0.0.0:1', plain_http: anywhere").starts_with("admin.plain_http: "));
    let open = notes(&format!("listen: '0.0.0.0:1', tls: {{ {FILES} }}"));
    assert!(open.starts_with("admin.listen: "), "{open}");
    let closed = format!("{FILES}, client_ca: /c, client_auth: required");
    assert_eq!(
        notes(&format!("listen: '0.0.0.0:1', tls: {{ {closed} }}")),
        ""
    );
}
