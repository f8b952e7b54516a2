//! Checks that a request was meant for this server, and was not sent by a page of another site.
//!
//! A browser lets a page of any site send requests to any address. By DNS rebinding (the page's own
//! name resolves to this server) the page can even read the answers; but then the header `Host` has
//! that name. So a request is answered only if it names the server by one of its addresses, as
//! `localhost`, or by a name of `admin.hosts`; and only if a browser does not report that a page of
//! another site sent it.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Version};
use axum::response::Response;

use super::problem::problem;

/// The address at which a request arrived; an extension of every request of the server.
#[derive(Clone, Copy, Debug)]
pub enum ArrivalAddress {
    /// This address of the host.
    Tcp(SocketAddr),
    /// The Unix socket, which has no name in DNS.
    Unix,
}

/// Checks the server name in a request, and the page that sent it.
///
/// # Errors
///
/// The response to send, with the reason.
pub fn check(request: &Request, hosts: &[String]) -> Result<(), Response> {
    let headers = request.headers();
    let mut named = headers.get_all(HOST).iter();
    let host = match (named.next(), named.next()) {
        // No current browser uses it, and so no page; probes of load balancers do.
        (None, _) if request.version() <= Version::HTTP_10 => {
            return same_site(headers, request.method(), None);
        }
        (Some(host), None) => host.to_str().ok().and_then(authority),
        _ => None,
    };
    // RFC 9112 section 3.2: exactly one, and well-formed.
    let Some(host) = host else {
        let detail = "the request needs exactly one header Host, with the server's address or name";
        return Err(problem(StatusCode::BAD_REQUEST, detail));
    };
    // RFC 9112 section 3.2.2: a target with an authority replaces the header.
    let meant = request.uri().authority().unwrap_or(&host);
    match request.extensions().get() {
        Some(ArrivalAddress::Unix) => {}
        Some(ArrivalAddress::Tcp(local)) => {
            for name in [&host, meant] {
                if !is_ours(name.host(), local.ip(), hosts) {
                    return Err(misdirected(name.host()));
                }
            }
        }
        None => {
            let detail = "the request came from nowhere";
            return Err(problem(StatusCode::INTERNAL_SERVER_ERROR, detail));
        }
    }
    same_site(headers, request.method(), Some(&host))
}

/// Host and port, without the user part of a URL.
fn authority(text: &str) -> Option<Authority> {
    let found: Authority = text.parse().ok()?;
    (!text.contains('@') && !found.host().is_empty()).then_some(found)
}

fn is_ours(host: &str, local: IpAddr, hosts: &[String]) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let listed = |host: &str| hosts.iter().any(|one| one.eq_ignore_ascii_case(host));
    // A page of another site cannot be at an address of this server.
    if let Ok(address) = host.parse::<IpAddr>() {
        let address = address.to_canonical();
        let same = |one: &String| {
            one.parse()
                .is_ok_and(|one: IpAddr| one.to_canonical() == address)
        };
        return address.is_loopback() || address == local.to_canonical() || hosts.iter().any(same);
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || listed(host)
}

fn misdirected(host: &str) -> Response {
    let detail = format!(
        "`{}` is no name of this server; use its address or localhost, or list the name in \
         admin.hosts of the configuration",
        host.escape_debug()
    );
    problem(StatusCode::MISDIRECTED_REQUEST, detail)
}

/// The browser's headers about the page that sent the request (Fetch Metadata, RFC 6454).
fn same_site(
    headers: &HeaderMap,
    method: &Method,
    host: Option<&Authority>,
) -> Result<(), Response> {
    let refused = |whose: &str| {
        let detail = format!("a page of another site sent this request: {whose}");
        problem(StatusCode::FORBIDDEN, detail)
    };
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().unwrap_or("?");
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        let same = authority
            .zip(host)
            .is_some_and(|(one, host)| one.eq_ignore_ascii_case(host.as_str()));
        if !same {
            return Err(refused(&format!(
                "its Origin is `{}`",
                origin.escape_debug()
            )));
        }
    }
    let says = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    match says("sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        // A link that a user follows: the answer is displayed, and the other page cannot read it.
        Some(_)
            if is_safe
                && says("sec-fetch-mode") == Some("navigate")
                && says("sec-fetch-dest") == Some("document") =>
        {
            Ok(())
        }
        Some(site) => Err(refused(&format!(
            "Sec-Fetch-Site is `{}`",
            site.escape_debug()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    /// The status of the refusal of a request with these headers.
    fn refused(method: &str, target: &str, headers: &[(&str, &str)]) -> Option<u16> {
        refused_by(Version::HTTP_11, method, target, headers)
    }

    fn refused_by(
        version: Version,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Option<u16> {
        let request = axum::http::Request::builder().version(version);
        let mut request = request.method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        let local: SocketAddr = "[::ffff:192.0.2.1]:9620".parse().unwrap();
        request.extensions_mut().insert(ArrivalAddress::Tcp(local));
        let hosts = ["Storage.example.net".to_owned(), "198.51.100.7".to_owned()];
        check(&request, &hosts)
            .err()
            .map(|answer| answer.status().as_u16())
    }

    #[test]
    fn a_server_is_asked_by_its_addresses_and_its_names() {
        for host in [
            "localhost",
            "LOCALHOST:9620",
            "localhost.:1",
            "127.0.0.1:9620",
            "127.9.9.9",
            "[::1]:9620",
            "192.0.2.1:9620",
            "[::ffff:192.0.2.1]:9620",
            "storage.EXAMPLE.net:80",
            "storage.example.net.",
            "198.51.100.7",
        ] {
            assert_eq!(refused("GET", "/", &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9620",
            "localhost.evil.example",
            "storage.example.net.evil.example",
            "192.0.2.2",
            "x",
        ] {
            assert_eq!(refused("GET", "/", &[("host", host)]), Some(421), "{host}");
        }
        for host in [
            "",
            "localhost@evil.example",
            "user@localhost",
            "a b",
            ":9620",
        ] {
            assert_eq!(refused("GET", "/", &[("host", host)]), Some(400), "{host}");
        }
        assert_eq!(refused("GET", "/", &[]), Some(400));
        assert_eq!(refused_by(Version::HTTP_10, "GET", "/", &[]), None);
        let evil = [("host", "evil.example")];
        assert_eq!(refused_by(Version::HTTP_10, "GET", "/", &evil), Some(421));
        let page = [("origin", "http://evil.example")];
        assert_eq!(refused_by(Version::HTTP_10, "GET", "/", &page), Some(403));
        let two = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(refused("GET", "/", &two), Some(400));
        let ours = [("host", "localhost")];
        assert_eq!(refused("GET", "http://localhost/", &ours), None);
        assert_eq!(refused("GET", "http://evil.example/", &ours), Some(421));
    }

    #[test]
    fn requests_of_other_sites_pages_are_refused() {
        let site = |site: &'static str| {
            [
                ("host", "localhost:1"),
                ("sec-fetch-site", site),
                ("sec-fetch-mode", "cors"),
            ]
        };
        for good in ["same-origin", "none"] {
            assert_eq!(refused("POST", "/", &site(good)), None, "{good}");
        }
        for bad in ["cross-site", "same-site", "whatever"] {
            assert_eq!(refused("GET", "/metrics", &site(bad)), Some(403), "{bad}");
        }
        let link = |destination| {
            [
                ("host", "localhost:1"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", destination),
            ]
        };
        assert_eq!(refused("GET", "/", &link("document")), None);
        assert_eq!(refused("GET", "/", &link("iframe")), Some(403));
        assert_eq!(refused("POST", "/", &link("document")), Some(403));
        let origin = |origin| [("host", "localhost:1"), ("origin", origin)];
        assert_eq!(refused("PUT", "/", &origin("http://localhost:1")), None);
        for bad in [
            "http://localhost:2",
            "http://evil.example",
            "null",
            "",
            "localhost:1",
        ] {
            assert_eq!(refused("GET", "/", &origin(bad)), Some(403), "{bad}");
        }
    }
}
