//! TLS: the server's certificate, those of clients, and reloading of files.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, server};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::{ClientAuth, ConfigProblem, KeyPath, Tls};

mod identity;

pub use identity::CertificateIdentity;

/// Bytes of a file with certificates or a key.
const FILE_MAX: u64 = 1 << 20;
/// Time between two checks whether the files have changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Certificates that expire within this time are reported.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// A file of [`Tls`] that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("admin.tls.{key}: {}: {reason}", file.display())]
pub struct TlsError {
    /// The key that names the file.
    pub key: &'static str,
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, or why it cannot be read.
    pub reason: String,
}

impl From<TlsError> for ConfigProblem {
    fn from(error: TlsError) -> Self {
        let path = KeyPath::root().key("admin").key("tls").key(error.key);
        Self::new(path, format!("{}: {}", error.file.display(), error.reason))
    }
}

/// The server's side of TLS (1.2 or 1.3, HTTP/1.1 by ALPN). When a client connects, at most once a
/// second, its files are reloaded if they have changed. If the new files cannot be used, the
/// previous ones stay in use.
#[derive(Debug)]
pub struct Certificates {
    files: Tls,
    state: Mutex<TlsState>,
}

#[derive(Debug)]
struct TlsState {
    config: Arc<ServerConfig>,
    notes: Vec<String>,
    /// The files' stamps when they were last read.
    stamps: Vec<Stamp>,
    checked: Instant,
}

/// The identity of a file, to detect a replacement; `None` if there is no file.
type Stamp = Option<(i64, i64, u64, u64)>;

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The first file that cannot be used.
    pub fn load(files: &Tls) -> Result<Self, TlsError> {
        // Before the files are read, so that no change is missed.
        let stamps = stamps(files);
        let (config, notes) = read(files)?;
        Ok(Self {
            files: files.clone(),
            state: Mutex::new(TlsState {
                config,
                notes,
                stamps,
                checked: Instant::now(),
            }),
        })
    }

    /// Warnings about the files in use, each with its key.
    pub fn notes(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.notes.clone()
    }

    /// Reloads the files, whether they have changed or not. Existing connections are not affected.
    ///
    /// # Errors
    ///
    /// The first file that cannot be used; the previous ones stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_again(&mut state, stamps(&self.files))
    }

    /// The current configuration for a handshake.
    pub(super) fn current(&self, now: Instant) -> Arc<ServerConfig> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.checked) >= CHECK_INTERVAL {
            state.checked = now;
            let stamps = stamps(&self.files);
            if stamps != state.stamps {
                match self.read_again(&mut state, stamps) {
                    Ok(()) => tracing::info!("new certificates of the management plane are in use"),
                    Err(error) => tracing::warn!(
                        "{error}; the previous certificates stay in use until the file changes"
                    ),
                }
            }
        }
        Arc::clone(&state.config)
    }

    fn read_again(&self, state: &mut TlsState, stamps: Vec<Stamp>) -> Result<(), TlsError> {
        // Also if they cannot be used: they are not read again until they change.
        state.stamps = stamps;
        let (config, notes) = read(&self.files)?;
        for note in &notes {
            tracing::warn!("{note}");
        }
        state.config = config;
        state.notes = notes;
        Ok(())
    }
}

fn stamps(files: &Tls) -> Vec<Stamp> {
    let paths = [Some(&files.certificate), Some(&files.key)];
    let paths = paths.into_iter().chain([files.client_ca.as_ref()]);
    let stamp = |file: &Metadata| (file.mtime(), file.mtime_nsec(), file.ino(), file.size());
    let of = |path: &PathBuf| fs::metadata(path).ok().as_ref().map(stamp);
    paths.flatten().map(of).collect()
}

fn read(files: &Tls) -> Result<(Arc<ServerConfig>, Vec<String>), TlsError> {
    let mut notes = Vec::new();
    let provider = Arc::new(ring::default_provider());
    let chain = certificates("certificate", &files.certificate)?;
    if let Some(note) = chain.first().and_then(age) {
        let file = files.certificate.display();
        notes.push(format!("admin.tls.certificate: {file} {note}"));
    }
    let key = key(&files.key, &provider, &mut notes)?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        // A key type without access to its public half is verified by clients only.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            let certificate = files.certificate.display();
            let reason = format!("is not the key of the certificate in {certificate}");
            return Err(refused("key", &files.key)(reason));
        }
        Err(error) => {
            let reason = format!("its first certificate cannot be used: {}", unusable(&error));
            return Err(refused("certificate", &files.certificate)(reason));
        }
    }
    let clients = clients(files, &provider)?;
    // Both versions are supported by the provider, so this does not fail.
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("certificate", &files.certificate)(error.to_string()))?;
    let config = match clients {
        Some(verifier) => config.with_client_cert_verifier(verifier),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session (RFC 8446 section 2.2) has a certificate that is not verified again, and may
    // have expired.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((Arc::new(config), notes))
}

/// Why a certificate cannot be used.
fn unusable(error: &rustls::Error) -> String {
    let text = error.to_string();
    // The library has it as text only.
    match text.contains("UnsupportedCertVersion") {
        true => "it is of X.509 version 1, and 3 is needed; `openssl x509 -req` makes one with \
                 -extfile"
            .to_owned(),
        false => text,
    }
}

/// The verifier of clients' certificates, if they are requested.
fn clients(
    files: &Tls,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn server::danger::ClientCertVerifier>>, TlsError> {
    let (Some(file), true) = (&files.client_ca, files.client_auth != ClientAuth::None) else {
        return Ok(None);
    };
    let refused = refused("client_ca", file);
    let mut authorities = RootCertStore::empty();
    for authority in certificates("client_ca", file)? {
        authorities
            .add(authority)
            .map_err(|error| refused(format!("a certificate cannot be used: {error}")))?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(provider));
    let builder = match files.client_auth {
        ClientAuth::Optional => builder.allow_unauthenticated(),
        ClientAuth::Required | ClientAuth::None => builder,
    };
    let verifier = builder.build();
    verifier
        .map(Some)
        .map_err(|error| refused(error.to_string()))
}

fn certificates(key: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refused = refused(key, file);
    let text = content(file).map_err(|error| refused(error.to_string()))?;
    let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let list = list.map_err(|error| refused(format!("is no proper PEM: {}", plain(&error))))?;
    if list.is_empty() {
        let reason = "has no certificate; PEM with `BEGIN CERTIFICATE` is accepted";
        return Err(refused(reason.to_owned()));
    }
    Ok(list)
}

fn key(
    file: &Path,
    provider: &CryptoProvider,
    notes: &mut Vec<String>,
) -> Result<Arc<dyn rustls::sign::SigningKey>, TlsError> {
    let refused = refused("key", file);
    let text = content(file).map_err(|error| refused(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        PemError::NoItemsFound => refused(
            "has no private key that can be read without a password; PEM with `BEGIN PRIVATE \
             KEY`, `BEGIN RSA PRIVATE KEY` or `BEGIN EC PRIVATE KEY` is accepted"
                .to_owned(),
        ),
        error => refused(format!("is no proper PEM: {}", plain(&error))),
    })?;
    if fs::metadata(file).is_ok_and(|file| file.mode() & 0o006 != 0) {
        let file = file.display();
        notes.push(format!(
            "admin.tls.key: every user of this host can read or write {file}; chmod o-rw it"
        ));
    }
    let loaded = provider.key_provider.load_private_key(key);
    loaded.map_err(|error| refused(format!("its key cannot be used: {error}")))
}

/// The current validity of a certificate.
fn age(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let [now, soon] = [now, now + SOON].map(|time| i64::try_from(time.as_secs()).unwrap_or(0));
    let validity = certificate.validity();
    if validity.not_before.timestamp() > now {
        return Some(format!("is not valid before {}", validity.not_before));
    }
    match validity.not_after.timestamp() {
        end if end < now => Some(format!("has expired: {}", validity.not_after)),
        end if end < soon => Some(format!("expires soon: {}", validity.not_after)),
        _ => None,
    }
}

fn refused(key: &'static str, file: &Path) -> impl Fn(String) -> TlsError {
    move |reason| TlsError {
        key,
        file: file.to_owned(),
        reason,
    }
}

fn content(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = File::open(file)?
        .take(FILE_MAX + 1)
        .read_to_end(&mut text)?;
    match read as u64 > FILE_MAX {
        true => Err(io::Error::other(format!("has more than {FILE_MAX} bytes"))),
        false => Ok(text),
    }
}

/// The fault of a PEM file, in words.
fn plain(error: &PemError) -> String {
    match error {
        PemError::MissingSectionEnd { .. } => "a section has no end".to_owned(),
        PemError::IllegalSectionStart { .. } => "a section has a malformed first line".to_owned(),
        PemError::Base64Decode(_) => "it has invalid characters".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
pub(super) mod tests;
