//! Names in the path of a request.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::problem::{problem, typed_problem};
use crate::status::ProblemType;

/// The one parameter of a path. As an argument of a handler it answers 404 if the text cannot be
/// such a name.
pub struct Named<T>(pub T);

/// The type of a path parameter.
pub trait Name: Sized {
    /// The named object, in words.
    const WHAT: &'static str;

    /// Parses it; `None` if it is not a valid name.
    fn read(text: &str) -> Option<Self>;
}

/// The identifier of a connection, or the number of a generation.
impl Name for u64 {
    const WHAT: &'static str = "number";

    fn read(text: &str) -> Option<Self> {
        // One name for each number: no signs and no leading zeros.
        text.parse::<Self>()
            .ok()
            .filter(|number| number.to_string() == text)
    }
}

/// The ID of a client of NFS version 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientIdName(pub u64);

impl Name for ClientIdName {
    const WHAT: &'static str = "client ID of 16 hexadecimal digits";

    fn read(text: &str) -> Option<Self> {
        let bytes = hexadecimal(text)?;
        Some(Self(u64::from_be_bytes(bytes)))
    }
}

/// A stateid of NFS version 4 without its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateidName(pub [u8; 12]);

impl Name for StateidName {
    const WHAT: &'static str = "stateid of 24 hexadecimal digits";

    fn read(text: &str) -> Option<Self> {
        hexadecimal(text).map(Self)
    }
}

/// Bytes as two digits each. There is one name for each: no capital letters.
fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text: &[u8] = text.as_bytes();
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// A client.
impl Name for IpAddr {
    const WHAT: &'static str = "address";

    fn read(text: &str) -> Option<Self> {
        Self::from_str(text)
            .ok()
            .map(|address| address.to_canonical())
    }
}

/// The client's address in a query.
///
/// # Errors
///
/// The response to send.
pub fn address(text: &str) -> Result<IpAddr, Response> {
    IpAddr::read(text).ok_or_else(|| {
        let text: String = text.escape_debug().take(64).collect();
        typed_problem(ProblemType::Invalid, format!("`{text}` is no address"))
    })
}

/// A listener.
impl Name for SocketAddr {
    const WHAT: &'static str = "address with a port";

    fn read(text: &str) -> Option<Self> {
        Self::from_str(text).ok()
    }
}

impl<T: Name, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let path = parts.uri.path().to_owned();
        let text = Path::<String>::from_request_parts(parts, state).await;
        let value = text.ok().and_then(|Path(text)| T::read(&text));
        value.map(Self).ok_or_else(|| {
            let what = T::WHAT;
            let detail = format!("nothing at {path}: the name in it is no {what}");
            problem(StatusCode::NOT_FOUND, detail)
        })
    }
}
