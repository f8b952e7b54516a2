//! Tests that need no server.

use std::io::Write;

use super::*;

#[test]
fn addresses_are_read_and_refused() {
    for (good, private) in [
        ("http://127.0.0.1:9620", true),
        ("localhost:1/", true),
        ("http://[::1]:9620/", true),
        ("http://[::ffff:127.0.0.1]:9620/", true),
        ("https://storage-1.example.net:9620", true),
        ("https://[fd00::1]:9620", true),
        ("http://storage-1.example.net:9620", false),
        ("10.0.0.1:9620", false),
    ] {
        let client = Client::new(good).unwrap();
        assert_eq!(client.is_private(), private, "{good}");
    }
    for bad in [
        "",
        "ftp://127.0.0.1:1",
        "127.0.0.1",
        "http://a:1/b",
        "http://a:99999",
        ":1",
        "a\r\n:1",
        "https://:1",
        "https://a_b..c:1",
        "https://x",
    ] {
        let refused = Client::new(bad).unwrap_err();
        assert!(matches!(refused, ClientError::Address(_)), "{bad}");
    }
}

#[test]
fn a_token_is_one_line_and_is_never_shown() {
    let read = |content: &[u8]| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        ClientToken::read(file.path())
    };
    let token = read(b"  s3cret-Token_1\n").unwrap();
    assert_eq!(token.header().to_str().unwrap(), "Bearer s3cret-Token_1");
    let client = Client::new("localhost:1").unwrap().with_token(token);
    assert!(!format!("{client:?}").contains("s3cret"), "{client:?}");
    for bad in [&b""[..], b" \n", b"a b", b"a\nb", b"\xff", &[b'x'; 5000]] {
        let refused = read(bad).unwrap_err().to_string();
        assert!(refused.contains("one line of visible"), "{refused}");
        assert!(!refused.contains("a b"), "{refused}");
    }
    let missing = ClientToken::read("/nonexistent/token".as_ref()).unwrap_err();
    assert!(
        missing.to_string().starts_with("/nonexistent/token: "),
        "{missing}"
    );
}

#[test]
fn files_without_what_tls_needs_are_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_owned();
    let files = |authority: &str| TlsFiles {
        authority: authority.into(),
        identity: None,
    };
    let error = files("/nonexistent/ca").load().unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/ca: "), "{error}");
    let error = files(path.to_str().unwrap())
        .load()
        .unwrap_err()
        .to_string();
    assert!(error.contains("no certificate"), "{error}");
}

#[test]
fn queries_are_put_together() {
    let order = Order::new(Method::Put, "/api/v1/config")
        .with_query("dry_run", "true")
        .with_query("persist", "true");
    assert_eq!(order.path, "/api/v1/config?dry_run=true&persist=true");
}
