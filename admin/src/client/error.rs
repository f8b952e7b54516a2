//! Why there is no answer.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};

/// There is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not one.
    #[error("`{0}` is no address; write http://HOST:PORT, https://HOST:PORT or unix:/PATH")]
    Address(String),
    /// The host name is unknown.
    #[error("cannot find {authority}: {source}")]
    Lookup {
        /// Host and port.
        authority: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// Nobody listens.
    #[error("cannot connect to {authority}: {source}")]
    Connect {
        /// Host and port.
        authority: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// TLS is asked for, and nothing says whom to trust.
    #[error("https://{authority} needs the certificate of the authority that the server's is from")]
    NoTrust {
        /// Host and port.
        authority: String,
    },
    /// TLS was not agreed upon.
    #[error("no TLS with {authority}: {failure}")]
    Tls {
        /// Host and port.
        authority: String,
        /// Why.
        failure: TlsFailure,
    },
    /// The server does not speak HTTP, or broke off.
    #[error("no proper answer from {authority}: {reason}")]
    Protocol {
        /// Host and port.
        authority: String,
        /// What was wrong.
        reason: String,
    },
    /// It took too long.
    #[error("no answer from {authority} within {timeout:?}")]
    Time {
        /// Host and port.
        authority: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// What was received cannot be written on.
    #[error("cannot write what {authority} sends: {source}")]
    Output {
        /// Host and port.
        authority: String,
        /// Why.
        source: io::Error,
    },
    /// No runtime for the request.
    #[error("cannot start a request: {0}")]
    Runtime(io::Error),
}

/// Why TLS was not agreed upon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    /// The server's certificate is from somebody else than the trusted authority.
    #[error("the server's certificate is not from the authority that is trusted")]
    UnknownAuthority,
    /// The server's certificate is for other names.
    #[error("the server's certificate is for other names than the one it is asked by")]
    OtherName,
    /// The server's certificate holds no more, or not yet.
    #[error("the server's certificate is out of its time; are the clocks right?")]
    OutOfTime,
    /// The server wants to see a certificate, and none was shown.
    #[error("the server asks for a client certificate")]
    CertificateWanted,
    /// The server does not accept the client's certificate.
    #[error("the server does not accept the client certificate: {0}")]
    CertificateRefused(String),
    /// The server speaks plainly.
    #[error("the server does not speak TLS")]
    Plain,
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl TlsFailure {
    /// What an error of a connection with TLS means, if it is one of TLS.
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
                other => Self::Other(format!("the server's certificate cannot be: {other}")),
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
