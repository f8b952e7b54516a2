//! Server addresses: `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`.

use std::net::IpAddr;
use std::path::PathBuf;

use rustls::pki_types::ServerName;

use super::ClientError;

/// A server's address, before name resolution.
#[derive(Clone, Debug)]
pub struct Address {
    /// Host and port, as in the header `Host`; for a Unix socket the address as given.
    pub authority: String,
    /// The name that the server's certificate must have; `None` for plain HTTP.
    pub secure: Option<ServerName<'static>>,
    /// The Unix socket; `None` for TCP.
    pub socket: Option<PathBuf>,
    host: String,
}

impl Address {
    /// Parses it; without a scheme it is plain HTTP.
    ///
    /// # Errors
    ///
    /// It has another scheme, a path, no port, or characters that are not valid in host names; or
    /// the path of a socket is relative.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let refused = || ClientError::Address(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self {
                    authority: text.to_owned(),
                    secure: None,
                    socket: Some(path.into()),
                    host: "localhost".to_owned(),
                }),
                false => Err(refused()),
            };
        }
        let (secure, rest) = match text.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("http://").unwrap_or(text)),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').ok_or_else(refused)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        if host.is_empty() || !host.chars().all(plain) || port.parse::<u16>().is_err() {
            return Err(refused());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = match secure {
            true => Some(ServerName::try_from(host.to_owned()).map_err(|_| refused())?),
            false => None,
        };
        Ok(Self {
            authority: authority.to_owned(),
            secure: name,
            socket: None,
            host: host.to_owned(),
        })
    }

    /// The value of the header `Host`.
    pub fn host_header(&self) -> &str {
        match self.socket {
            Some(_) => &self.host,
            None => &self.authority,
        }
    }

    /// Whether data sent there stays on this host.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }
}
