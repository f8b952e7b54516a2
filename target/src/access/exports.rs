//! The table of exports: the served folders, their clients, and the users that callers act as.
//!
//! A table is an immutable snapshot. A change of the configuration builds a new one on each
//! reactor; requests that already run finish with the one they began with.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::hash::Hasher;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ipnet::IpNet;
use millrace_primitives::CoreBlock;
use millrace_store::{Caller, CallerGroups, Time};
use siphasher::sip::SipHasher24;

use super::export_counters::ExportCounters;
use super::security::SecurityList;

/// Longest path of an export, and of a MOUNT request (RFC 1813 section 5.1.2).
pub const PATH_MAX: usize = 1024;

/// Names an export in file handles: a hash of its path, so that handles stay valid when other
/// exports change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportId(pub u64);

impl ExportId {
    /// The name of the export at a path.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let mut hasher = SipHasher24::new_with_key(b"millrace exports");
        hasher.write(path.as_bytes());
        Self(hasher.finish())
    }
}

/// Which users lose their identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// None: callers are who they say.
    None,
    /// User 0 and group 0.
    Root,
    /// Everybody.
    All,
}

/// What is served and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Absolute path that clients mount.
    pub path: String,
    /// Clients that may use it.
    pub clients: Vec<IpNet>,
    /// How calls that may use it are secured.
    pub security: SecurityList,
    /// Refuse every change.
    pub read_only: bool,
    /// Which users lose their identity.
    pub squash: Squash,
    /// The user that they become; callers without credentials too.
    pub anonymous_uid: u32,
    /// The group that they become.
    pub anonymous_gid: u32,
}

impl Rules {
    /// Whether a client may use the export.
    #[must_use]
    pub fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.clients.iter().any(|network| network.contains(&client))
    }

    /// Who a caller is to the store: `None` came without credentials.
    #[must_use]
    #[inline]
    pub fn squash<'c>(&self, caller: Option<&'c Caller>) -> Cow<'c, Caller> {
        let is_root = |caller: &Caller| caller.uid == 0 || caller.in_group(0);
        match caller {
            Some(caller) if self.squash == Squash::None => Cow::Borrowed(caller),
            Some(caller) if self.squash == Squash::Root && !is_root(caller) => {
                Cow::Borrowed(caller)
            }
            _ => Cow::Owned(self.squashed(caller)),
        }
    }

    fn squashed(&self, caller: Option<&Caller>) -> Caller {
        let anonymous = || Caller {
            uid: self.anonymous_uid,
            gid: self.anonymous_gid,
            groups: CallerGroups::NONE,
        };
        match (caller, self.squash) {
            (None, _) | (_, Squash::All) => anonymous(),
            (Some(caller), Squash::None) => caller.clone(),
            (Some(caller), Squash::Root) => {
                let group = |gid| if gid == 0 { self.anonymous_gid } else { gid };
                Caller {
                    uid: if caller.uid == 0 {
                        self.anonymous_uid
                    } else {
                        caller.uid
                    },
                    gid: group(caller.gid),
                    groups: caller.groups.iter().map(|&gid| group(gid)).collect(),
                }
            }
        }
    }
}

/// One export.
#[derive(Debug)]
pub struct Export<S> {
    /// Its name in handles.
    pub id: ExportId,
    /// What is served and to whom.
    pub rules: Rules,
    /// This reactor's clone of the store.
    pub store: S,
    /// What calls have done with it, where they are counted.
    pub counters: OnceCell<Arc<CoreBlock<ExportCounters>>>,
}

/// Why a table of exports cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportsError {
    /// A path is not absolute, not normal or too long.
    #[error(
        "export path `{0}` must be absolute, without empty, `.` or `..` components or a slash at \
         its end, and at most {PATH_MAX} bytes long"
    )]
    BadPath(String),
    /// Two exports cannot be told apart.
    #[error("export paths `{0}` and `{1}` are the same or have the same identifier")]
    Duplicate(String, String),
}

/// An immutable table of exports.
#[derive(Clone, Debug)]
pub struct Exports<S> {
    /// By ascending identifier.
    list: Rc<[Rc<Export<S>>]>,
    /// When the table was put together.
    made: Time,
}

impl<S> Exports<S> {
    /// A table of the given exports.
    ///
    /// # Errors
    /// [`ExportsError`] if a path is bad or given twice.
    pub fn new(exports: impl IntoIterator<Item = (Rules, S)>) -> Result<Self, ExportsError> {
        let mut list = Vec::new();
        for (rules, store) in exports {
            if !is_normal(&rules.path) {
                return Err(ExportsError::BadPath(rules.path));
            }
            let id = ExportId::of(&rules.path);
            list.push(Rc::new(Export {
                id,
                rules,
                store,
                counters: OnceCell::new(),
            }));
        }
        list.sort_by_key(|export| export.id);
        for pair in list.windows(2) {
            if pair[0].id == pair[1].id {
                let path = |export: &Export<S>| export.rules.path.clone();
                return Err(ExportsError::Duplicate(path(&pair[0]), path(&pair[1])));
            }
        }
        Ok(Self {
            list: list.into(),
            made: Time::now(),
        })
    }

    /// The same table with another time at which it was put together. The tables of all reactors
    /// have the same time, as clients see it ([`Exports::made`]).
    #[must_use]
    pub fn made_at(self, made: Time) -> Self {
        Self { made, ..self }
    }

    /// When the table was put together: the change attribute of folders above exports.
    #[must_use]
    pub fn made(&self) -> Time {
        self.made
    }

    /// Whether both are one and the same table.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.list, &other.list)
    }

    /// The export that a handle names.
    #[must_use]
    pub fn by_id(&self, id: ExportId) -> Option<&Rc<Export<S>>> {
        let index = self
            .list
            .binary_search_by_key(&id, |export| export.id)
            .ok()?;
        Some(&self.list[index])
    }

    /// The export with the longest path that is `path` or above it, and what of `path` is below
    /// (without a slash in front).
    #[must_use]
    pub fn by_path<'a>(&self, path: &'a str) -> Option<(&Rc<Export<S>>, &'a str)> {
        let covers = |root: &str| {
            let rest = path.strip_prefix(root)?;
            (root == "/" || rest.is_empty() || rest.starts_with('/'))
                .then(|| rest.trim_start_matches('/'))
        };
        self.list
            .iter()
            .filter_map(|export| covers(&export.rules.path).map(|rest| (export, rest)))
            .max_by_key(|(export, _)| export.rules.path.len())
    }

    /// All exports, in no order that matters.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<Export<S>>> {
        self.list.iter()
    }
}

fn is_normal(path: &str) -> bool {
    let mut components = path.split('/');
    path.starts_with('/')
        && path.len() <= PATH_MAX
        && components.next() == Some("")
        && (path == "/" || components.all(|name| !matches!(name, "" | "." | "..")))
}
