//! The mechanism: MIT's library with the keys of a file.

mod explanation;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::keytab::Keytab;
use crate::sys::{AcceptedToken, AcceptorCredential, GssLibrary, MemoryFile};
use crate::{
    Accepted, ContextKeys, Enctype, Established, Failure, FailureReason, Mechanism, Settings,
    initial_token, status,
};
use explanation::explain;

/// Why Kerberos cannot be served.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The library is not installed.
    #[error("libgssapi_krb5.so.2 cannot be loaded, install libgssapi-krb5-2: {0}")]
    Library(String),
    /// The keytab cannot be used.
    #[error("gss.keytab {0}: {1}")]
    Keytab(PathBuf, String),
}

/// The system's library with the keys of a keytab. The keytab is copied into memory: whatever
/// becomes of its file, contexts are accepted with the version that was taken up last.
pub struct Kerberos {
    library: Arc<GssLibrary>,
    path: PathBuf,
    principal: String,
    loaded: ArcSwap<LoadedKeytab>,
    /// The file as it was looked at last.
    looked_at: Mutex<FileVersion>,
}

/// A version of the keytab in use.
struct LoadedKeytab {
    credential: AcceptorCredential,
    keytab: Keytab,
    since: Instant,
    /// What the credential reads for each token.
    _file: MemoryFile,
}

/// What changes when a file is written or replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    length: u64,
    changed: Option<SystemTime>,
}

impl Kerberos {
    /// Loads the library and the keytab.
    ///
    /// # Errors
    ///
    /// One of them cannot be used.
    pub fn load(settings: &Settings) -> Result<Self, LoadError> {
        let library = GssLibrary::load().map_err(LoadError::Library)?;
        let library = Arc::new(library);
        let path = settings.keytab.clone();
        let version = version_of(&path).unwrap_or_default();
        let loaded = LoadedKeytab::load(&library, &path, &settings.principal);
        let loaded = loaded.map_err(|error| LoadError::Keytab(path.clone(), error))?;
        Ok(Self {
            library,
            path,
            principal: settings.principal.clone(),
            loaded: ArcSwap::from_pointee(loaded),
            looked_at: Mutex::new(version),
        })
    }
}

impl LoadedKeytab {
    fn load(library: &Arc<GssLibrary>, path: &PathBuf, principal: &str) -> Result<Self, String> {
        let content = fs::read(path).map(Zeroizing::new).map_err(|error| {
            format!("{error}; it must be readable for the user that millraced runs as")
        })?;
        let keytab = Keytab::parse(&content).ok_or("it is not a keytab")?;
        if !keytab.has_service(principal) {
            return Err(format!(
                "it has no key of {principal}, only of: {}",
                keytab.principals()
            ));
        }
        let file = MemoryFile::new(&content).map_err(|error| error.to_string())?;
        let credential = AcceptorCredential::acquire(library, principal, &file.path());
        let credential = credential.map_err(|failure| failure.text)?;
        Ok(Self {
            credential,
            keytab,
            since: Instant::now(),
            _file: file,
        })
    }
}

impl Mechanism for Kerberos {
    fn accept(&self, token: &[u8]) -> Accepted {
        if let Err(failure) = initial_token::check(token) {
            return Accepted::Failed(failure);
        }
        let loaded = self.loaded.load_full();
        match loaded.credential.accept(token) {
            Err(failure) => Accepted::Failed(explain(failure, &loaded.keytab, SystemTime::now())),
            Ok(AcceptedToken::Unfinished) => Accepted::Failed(Failure {
                major: status::FAILURE,
                minor: 0,
                reason: FailureReason::Other,
                text: "the client asks for DCE style, which NFS does not have".to_owned(),
            }),
            Ok(AcceptedToken::Complete {
                principal,
                lifetime,
                token,
                key,
            }) => match Enctype::from_number(key.enctype) {
                None => Accepted::Failed(Failure::enctype(key.enctype)),
                Some(enctype) => Accepted::Complete(Box::new(Established {
                    keys: ContextKeys {
                        enctype,
                        key: key.key,
                        acceptor_subkey: key.acceptor_subkey,
                        send_sequence: key.send_sequence,
                    },
                    principal,
                    lifetime,
                    token,
                })),
            },
        }
    }

    fn refresh(&self) -> Result<(), String> {
        let version = version_of(&self.path).map_err(|error| error.to_string())?;
        let mut looked_at = self
            .looked_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *looked_at == version {
            return Ok(());
        }
        let loaded = LoadedKeytab::load(&self.library, &self.path, &self.principal)?;
        // Only now: a file that cannot be used is tried, and reported, again.
        *looked_at = version;
        tracing::info!("keytab taken up, keys of {}", loaded.keytab.principals());
        self.loaded.store(Arc::new(loaded));
        Ok(())
    }

    fn realms(&self) -> Vec<String> {
        self.loaded.load().keytab.realms()
    }

    fn keytab_age(&self) -> Duration {
        self.loaded.load().since.elapsed()
    }
}

fn version_of(path: &PathBuf) -> io::Result<FileVersion> {
    use std::os::unix::fs::MetadataExt;
    let about = fs::metadata(path)?;
    Ok(FileVersion {
        inode: about.ino(),
        length: about.len(),
        changed: about.modified().ok(),
    })
}
