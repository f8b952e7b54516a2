//! Trusted authorities and client certificates, from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, crypto};

/// The files of a TLS connection, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the trusted authorities. A self-signed server certificate is its own
    /// authority.
    pub authority: PathBuf,
    /// The client's certificate with its intermediate certificates, and its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A file without the required content.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// It cannot be read, or is no PEM.
    #[error("{}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        error: pem::Error,
    },
    /// There is no certificate in it.
    #[error("{}: there is no certificate in it; PEM with BEGIN CERTIFICATE is accepted", .0.display())]
    NoCertificate(PathBuf),
    /// There is no private key in it.
    #[error("{}: there is no private key in it; PEM with BEGIN PRIVATE KEY is accepted", .0.display())]
    NoKey(PathBuf),
    /// A certificate or key cannot be used.
    #[error("{}: {error}", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// Why.
        error: rustls::Error,
    },
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// See [`TlsFileError`].
    pub fn load(&self) -> Result<Arc<ClientConfig>, TlsFileError> {
        let unusable = |file: &Path, error: rustls::Error| TlsFileError::Unusable {
            file: file.to_owned(),
            error,
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authority)? {
            roots
                .add(certificate)
                .map_err(|error| unusable(&self.authority, error))?;
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.authority, error))?
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(|error| unusable(certificate, error))?,
        };
        Ok(Arc::new(config))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let unreadable = |error: pem::Error| TlsFileError::Read {
        file: file.to_owned(),
        error,
    };
    let found = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable)?;
    match found.is_empty() {
        true => Err(TlsFileError::NoCertificate(file.to_owned())),
        false => Ok(found),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsFileError::NoKey(file.to_owned()),
        error => TlsFileError::Read {
            file: file.to_owned(),
            error,
        },
    })
}
