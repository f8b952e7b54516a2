//! What the operator may set; the section `gss` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use crate::Enctype;

/// The user behind principals of machines, such as `host/client@REALM`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachinePolicy {
    /// Nobody known.
    #[default]
    Anonymous,
    /// User 0, before `squash` judges.
    Root,
}

/// Settings of the service. The sizes of tokens and of slices of work are the RPC layer's.
#[derive(Clone, Debug)]
pub struct Settings {
    /// File with the service's keys.
    pub keytab: PathBuf,
    /// Acceptor: a service (`nfs`: any of its keys) or `nfs@HOST`.
    pub principal: String,
    /// Realms whose users are known by their short names; empty: those of the keytab.
    pub realms: Vec<String>,
    /// Encryption types that contexts may have.
    pub enctypes: Vec<Enctype>,
    /// The user behind machines.
    pub machine: MachinePolicy,
    /// File with lines of principal and user.
    pub map: Option<PathBuf>,
    /// Threads that create contexts.
    pub helpers: usize,
    /// Most contexts.
    pub contexts: usize,
    /// Most contexts that clients of one address have made.
    pub contexts_per_client: usize,
    /// Most creations that wait for a helper; a quarter of them for clients of one address.
    pub pending: usize,
    /// Size of the sequence window.
    pub window: u32,
    /// Longest life of a context.
    pub lifetime: Duration,
    /// A context that was not used for this long is removed.
    pub idle: Duration,
    /// Most groups of a user.
    pub groups_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keytab: "/etc/millrace/nfs.keytab".into(),
            principal: "nfs".to_owned(),
            realms: Vec::new(),
            enctypes: Enctype::ALL.to_vec(),
            machine: MachinePolicy::default(),
            map: None,
            helpers: 2,
            contexts: 16_384,
            contexts_per_client: 2_048,
            pending: 64,
            window: 2_048,
            lifetime: Duration::from_hours(24),
            idle: Duration::from_hours(1),
            groups_max: 1_024,
        }
    }
}
