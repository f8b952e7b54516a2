//! Errors of requests.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};

/// The reason for a missing answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is invalid.
    #[error("`{0}` is no address; write http://HOST:PORT, https://HOST:PORT or unix:/PATH")]
    Address(String),
    /// The host name is unknown.
    #[error("cannot find {authority}: {source}")]
    Lookup {
        /// Host and port.
        authority: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// There is no listener.
    #[error("cannot connect to {authority}: {source}")]
    Connect {
        /// Host and port.
        authority: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// TLS is requested, without a trusted authority.
    #[error("https://{authority} needs the certificate of the authority that issued the server's")]
    NoTrust {
        /// Host and port.
        authority: String,
    },
    /// The TLS handshake failed.
    #[error("no TLS with {authority}: {failure}")]
    Tls {
        /// Host and port.
        authority: String,
        /// Why.
        failure: TlsFailure,
    },
    /// The server does not speak HTTP, or closed the connection.
    #[error("no valid answer from {authority}: {reason}")]
    Protocol {
        /// Host and port.
        authority: String,
        /// What was wrong.
        reason: String,
    },
    /// Timeout.
    #[error("no answer from {authority} within {timeout:?}")]
    Time {
        /// Host and port.
        authority: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The answer cannot be written to the output.
    #[error("cannot write the answer of {authority}: {source}")]
    Output {
        /// Host and port.
        authority: String,
        /// Why.
        source: io::Error,
    },
    /// There is no runtime for the request.
    #[error("cannot start a request: {0}")]
    Runtime(io::Error),
}

/// The reason for a failed TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    /// The server's certificate is issued by another authority than the trusted one.
    #[error("the server's certificate is not issued by the trusted authority")]
    UnknownAuthority,
    /// The server's certificate is for other names.
    #[error("the server's certificate does not have the name of the address used")]
    OtherName,
    /// The server's certificate has expired, or is not valid yet.
    #[error("the server's certificate is not valid yet or has expired; are the clocks right?")]
    OutOfTime,
    /// The server requires a client certificate, and none was presented.
    #[error("the server asks for a client certificate")]
    CertificateWanted,
    /// The server does not accept the client's certificate.
    #[error("the server does not accept the client certificate: {0}")]
    CertificateRefused(String),
    /// The server does not speak TLS.
    #[error("the server does not speak TLS")]
    Plain,
    /// Another error.
    #[error("{0}")]
    Other(String),
}

impl TlsFailure {
    /// The TLS error of a connection error, if it is one.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(Self::from(inner))
    }
}

impl From<&rustls::Error> for TlsFailure {
    fn from(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(reason) => match reason {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    Self::UnknownAuthority
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => Self::OtherName,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::OutOfTime,
                other => Self::Other(format!("the server's certificate is not valid: {other}")),
            },
            rustls::Error::AlertReceived(alert) => match alert {
                AlertDescription::CertificateRequired => Self::CertificateWanted,
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::DecryptError
                | AlertDescription::AccessDenied => Self::CertificateRefused(format!("{alert:?}")),
                other => Self::Other(format!("the server says {other:?}")),
            },
            rustls::Error::InvalidMessage(_) => Self::Plain,
            other => Self::Other(other.to_string()),
        }
    }
}
