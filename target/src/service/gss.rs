//! Kerberos, as the configuration has it.

use millrace_admin::config::{self, Config, ConfigProblem, GssEnctype, GssMachine, KeyPath};
use millrace_admin::control::GssControl;
use millrace_admin::status::{GssContext, GssContexts};
use millrace_gss::{Enctype, GssService, Kerberos, LoadError, MachinePolicy, Settings};

use crate::rpc::GssLimits;

/// Most contexts of a list.
const LISTED: usize = 1000;

/// The contexts of the process, and the limits of work for them.
#[derive(Clone)]
pub(super) struct SharedGss {
    pub contexts: GssService,
    pub limits: GssLimits,
}

/// The contexts, as the management plane sees them.
pub(super) struct ShownContexts(pub GssService);

impl GssControl for ShownContexts {
    fn contexts(&self) -> GssContexts {
        let mut contexts = self.0.list();
        contexts.sort_by_key(|context| context.idle);
        let total = contexts.len() as u64;
        contexts.truncate(LISTED);
        let shown = contexts.into_iter().map(|context| {
            let user = context.identity.user.as_ref();
            GssContext {
                principal: context.identity.principal.to_string(),
                uid: user.map(|user| user.uid),
                groups: user.map_or(0, |user| user.groups.len() as u64),
                client: context.client.to_string(),
                enctype: context.enctype.name().to_owned(),
                idle_seconds: context.idle.as_secs_f64(),
                left_seconds: context.remaining.as_secs_f64(),
            }
        });
        GssContexts {
            total,
            contexts: shown.collect(),
        }
    }

    fn flush(&self, principal: Option<&str>) -> u64 {
        self.0.flush(principal) as u64
    }
}

/// Loads the system's library and the keytab, and starts the threads that create contexts.
pub(super) fn start(gss: &config::Gss) -> Result<SharedGss, ConfigProblem> {
    let settings = settings(gss);
    let kerberos = Kerberos::load(&settings).map_err(|error| problem(&error))?;
    tracing::info!(
        keytab = %gss.keytab.display(),
        principal = gss.principal,
        "Kerberos (RPCSEC_GSS)"
    );
    let bytes = |size: config::ByteSize| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    Ok(SharedGss {
        contexts: GssService::new(settings, kerberos),
        limits: GssLimits {
            token: bytes(gss.token_max),
            slice: bytes(gss.slice),
        },
    })
}

/// Whether this machine can serve Kerberos: library, keytab, principal.
pub(super) fn problems(config: &Config) -> Vec<ConfigProblem> {
    let loaded = config
        .gss
        .as_ref()
        .map(|gss| Kerberos::load(&settings(gss)));
    let error = loaded.and_then(Result::err);
    error.iter().map(problem).collect()
}

fn problem(error: &LoadError) -> ConfigProblem {
    let path = KeyPath::root().key("gss");
    match error {
        LoadError::Library(_) => ConfigProblem::new(path, error.to_string()),
        LoadError::Keytab(file, text) => {
            let message = format!("{}: {text}", file.display());
            ConfigProblem::new(path.key("keytab"), message)
        }
    }
}

fn settings(gss: &config::Gss) -> Settings {
    let enctypes = gss.enctypes.iter().map(|enctype| match enctype {
        GssEnctype::Aes256Sha2 => Enctype::Aes256Sha384,
        GssEnctype::Aes128Sha2 => Enctype::Aes128Sha256,
        GssEnctype::Aes256Sha1 => Enctype::Aes256Sha1,
        GssEnctype::Aes128Sha1 => Enctype::Aes128Sha1,
    });
    Settings {
        keytab: gss.keytab.clone(),
        principal: gss.principal.clone(),
        realms: gss.realms.clone(),
        enctypes: enctypes.collect(),
        machine: match gss.machine {
            GssMachine::Anonymous => MachinePolicy::Anonymous,
            GssMachine::Root => MachinePolicy::Root,
        },
        map: gss.map.clone(),
        helpers: gss.helpers,
        contexts: gss.contexts,
        contexts_per_client: gss.contexts_per_client,
        pending: gss.pending,
        window: gss.window,
        lifetime: gss.lifetime,
        idle: gss.idle,
        groups_max: gss.groups_max,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use millrace_gss::{
        Accepted, ContextKeys, Directory, Failure, FailureReason, Identity, Mechanism, User,
    };

    use super::*;

    struct NoMechanism;

    impl Mechanism for NoMechanism {
        fn accept(&self, _: &[u8]) -> Accepted {
            Accepted::Failed(Failure {
                major: millrace_gss::status::FAILURE,
                minor: 0,
                reason: FailureReason::Other,
                text: String::new(),
            })
        }
    }

    impl Directory for NoMechanism {
        fn user(&self, _: &str, _: usize) -> io::Result<Option<User>> {
            Ok(None)
        }
    }

    #[test]
    fn gss_sec_13_contexts_are_listed_and_ended_by_principal() {
        let contexts = GssService::with_directory(Settings::default(), NoMechanism, NoMechanism);
        let shown = ShownContexts(contexts.clone());
        let keys = ContextKeys {
            enctype: Enctype::Aes256Sha1,
            key: vec![7; 32].into(),
            acceptor_subkey: true,
            send_sequence: 0,
        };
        for name in ["alice@A", "alice@A", "bob@A"] {
            let identity = Identity {
                principal: name.into(),
                user: (name == "bob@A").then(|| User {
                    uid: 7,
                    gid: 7,
                    groups: [1, 2].into(),
                }),
            };
            let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let hour = Duration::from_secs(3600);
            contexts.insert(&keys, identity, hour, client).unwrap();
        }
        let listed = shown.contexts();
        assert_eq!((listed.total, listed.contexts.len()), (3, 3));
        let bob = listed.contexts.iter().find(|one| one.principal == "bob@A");
        let bob = bob.unwrap();
        assert_eq!((bob.uid, bob.groups), (Some(7), 2));
        assert_eq!(bob.enctype, "aes256-sha1");
        assert_eq!(shown.flush(Some("alice")), 0);
        assert_eq!(shown.flush(Some("alice@A")), 2);
        assert_eq!(shown.contexts().total, 1);
        assert_eq!(shown.flush(None), 1);
        assert_eq!(shown.contexts(), GssContexts::default());
    }
}
