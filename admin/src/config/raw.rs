//! Values in the form of the file, where the model's type differs.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::de::SeqAccess;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    ByteSize, CallerIdentity, Ceph, CephLimits, Cores, CrcPolicy, DirectIo, Fabric, GroupSource,
    MountView, Posix, Provider, Store, StoreLimits, Switch, SyncMode, ceph, scalar,
};

/// [`Cores`] as written.
pub(super) struct CoresRaw(Cores);

impl<'de> Deserialize<'de> for CoresRaw {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = CoresRaw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of core numbers such as [0, 1], or auto")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<CoresRaw, E> {
                match text {
                    "auto" => Ok(CoresRaw(Cores::Auto)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<CoresRaw, A::Error> {
                let mut cores = Vec::new();
                while let Some(Core(core)) = items.next_element()? {
                    cores.push(core);
                }
                Ok(CoresRaw(Cores::List(cores)))
            }
        }
        input.deserialize_any(Visitor)
    }
}

impl Serialize for CoresRaw {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Cores::Auto => out.serialize_str("auto"),
            Cores::List(cores) => cores.serialize(out),
        }
    }
}

impl From<CoresRaw> for Cores {
    fn from(raw: CoresRaw) -> Self {
        raw.0
    }
}

impl From<Cores> for CoresRaw {
    fn from(cores: Cores) -> Self {
        Self(cores)
    }
}

struct Core(usize);

impl<'de> Deserialize<'de> for Core {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        scalar::whole(input).map(|core| Self(core as usize))
    }
}

/// A fabric entry as written: the provider determines the valid keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FabricRaw {
    provider: Provider,
    #[serde(with = "scalar::socket")]
    listen: SocketAddr,
    crc: Option<CrcPolicy>,
    shared_receives: Option<Switch>,
    read_chunk_replies: Option<Switch>,
}

impl TryFrom<FabricRaw> for Fabric {
    type Error = &'static str;

    fn try_from(raw: FabricRaw) -> Result<Self, &'static str> {
        let crc = match (raw.provider, raw.crc) {
            (Provider::Iwarp, crc) => Some(crc.unwrap_or(CrcPolicy::Auto)),
            (Provider::Verbs, None) => None,
            (Provider::Verbs, Some(_)) => {
                return Err(
                    "`crc` is a key of provider iwarp; RDMA devices of provider verbs decide it \
                     themselves",
                );
            }
        };
        let shared_receives = match (raw.provider, raw.shared_receives) {
            (Provider::Verbs, shared) => Some(shared.unwrap_or(Switch::Off)),
            (Provider::Iwarp, None) => None,
            (Provider::Iwarp, Some(_)) => {
                return Err(
                    "`shared_receives` is a key of provider verbs; software iWARP has a queue of \
                     receives for each connection",
                );
            }
        };
        Ok(Self {
            provider: raw.provider,
            listen: raw.listen,
            crc,
            shared_receives,
            read_chunk_replies: raw.read_chunk_replies,
        })
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoreKind {
    Memory,
    Posix,
    Ceph,
}

/// A store as written: its kind determines the valid keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreRaw {
    kind: StoreKind,
    size: Option<ByteSize>,
    inodes: Option<Whole>,
    root: Option<PathBuf>,
    direct: Option<DirectIo>,
    sync: Option<SyncMode>,
    groups: Option<GroupSource>,
    identity: Option<CallerIdentity>,
    mounts: Option<MountView>,
    exclusive: Option<bool>,
    conf: Option<PathBuf>,
    user: Option<String>,
    keyring: Option<PathBuf>,
    file_system: Option<String>,
    read_only: Option<bool>,
    delegations: Option<bool>,
    limits: Option<LimitsRaw>,
}

/// Limits of a store as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsRaw {
    open_files: Option<Whole>,
    threads: Option<Whole>,
    queue: Option<Whole>,
    operations: Option<Whole>,
    dirty: Option<ByteSize>,
    cache: Option<ByteSize>,
}

#[derive(Clone, Copy)]
struct Whole(u32);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        scalar::whole(input).map(Self)
    }
}

impl StoreRaw {
    /// Whether keys of exports in memory, of folders and clusters, of folders only, and of clusters
    /// only are there.
    fn keys(&self) -> [bool; 4] {
        let of_memory = self.size.is_some() || self.inodes.is_some();
        let limits = self.limits.as_ref();
        let of_folders = self.direct.is_some()
            || self.groups.is_some()
            || self.identity.is_some()
            || self.mounts.is_some()
            || self.exclusive.is_some()
            || limits.is_some_and(|limits| limits.operations.is_some() || limits.dirty.is_some());
        let of_clusters = self.conf.is_some()
            || self.user.is_some()
            || self.keyring.is_some()
            || self.file_system.is_some()
            || self.read_only.is_some()
            || self.delegations.is_some()
            || limits.is_some_and(|limits| limits.cache.is_some());
        let of_both = self.root.is_some() || self.sync.is_some() || self.limits.is_some();
        [of_memory, of_both, of_folders, of_clusters]
    }

    fn posix(self) -> Result<Posix, &'static str> {
        let root = self
            .root
            .ok_or("a store of kind posix needs the key `root`, the folder to serve")?;
        let mut limits = StoreLimits::default();
        if let Some(raw) = self.limits {
            set(&mut limits.open_files, raw.open_files);
            set(&mut limits.threads, raw.threads);
            set(&mut limits.queue, raw.queue);
            set(&mut limits.operations, raw.operations);
            limits.dirty = raw.dirty.unwrap_or(limits.dirty);
        }
        Ok(Posix {
            root,
            direct: self.direct.unwrap_or_default(),
            sync: self.sync.unwrap_or_default(),
            groups: self.groups.unwrap_or_default(),
            identity: self.identity.unwrap_or_default(),
            mounts: self.mounts.unwrap_or_default(),
            exclusive: self.exclusive.unwrap_or_default(),
            limits,
        })
    }

    fn ceph(self) -> Result<Ceph, &'static str> {
        let user = self
            .user
            .ok_or("a store of kind ceph needs the key `user`, the cluster's user to act as")?;
        let mut limits = CephLimits::default();
        if let Some(raw) = self.limits {
            set(&mut limits.open_files, raw.open_files);
            set(&mut limits.threads, raw.threads);
            set(&mut limits.queue, raw.queue);
            limits.cache = raw.cache.unwrap_or(limits.cache);
        }
        Ok(Ceph {
            conf: self.conf.unwrap_or_else(ceph::conf),
            user,
            keyring: self.keyring,
            file_system: self.file_system,
            root: self.root.unwrap_or_else(ceph::root),
            sync: self.sync.unwrap_or_default(),
            read_only: self.read_only.unwrap_or_default(),
            delegations: self.delegations.unwrap_or_default(),
            limits,
        })
    }
}

fn set(limit: &mut u32, given: Option<Whole>) {
    if let Some(Whole(given)) = given {
        *limit = given;
    }
}

impl TryFrom<StoreRaw> for Store {
    type Error = &'static str;

    fn try_from(raw: StoreRaw) -> Result<Self, &'static str> {
        let [of_memory, of_both, of_folders, of_clusters] = raw.keys();
        match raw.kind {
            StoreKind::Memory => match raw.size {
                Some(size) if !of_both && !of_folders && !of_clusters => Ok(Self::Memory {
                    size,
                    inodes: raw.inodes.map(|Whole(inodes)| inodes),
                }),
                Some(_) => Err(
                    "a store of kind memory has the keys `size` and `inodes`; `root`, `direct`, \
                     `sync`, `groups`, `identity`, `mounts`, `exclusive` and `limits` are keys of \
                     kind posix, and `conf`, `user`, `keyring`, `file_system`, `read_only` and \
                     `delegations` of kind ceph",
                ),
                None => Err("a store of kind memory needs the key `size`, such as 1GiB"),
            },
            StoreKind::Posix if of_memory || of_clusters => Err(
                "a store of kind posix has the keys `root`, `direct`, `sync`, `groups`, \
                 `identity`, `mounts`, `exclusive` and `limits`; `size` and `inodes` are keys of \
                 kind memory, and `conf`, `user`, `keyring`, `file_system`, `read_only`, \
                 `delegations` and `limits.cache` of kind ceph",
            ),
            StoreKind::Posix => raw.posix().map(Self::Posix),
            StoreKind::Ceph if of_memory || of_folders => Err(
                "a store of kind ceph has the keys `conf`, `user`, `keyring`, `file_system`, \
                 `root`, `sync`, `read_only`, `delegations` and `limits` (`open_files`, `threads`, \
                 `queue`, `cache`); `size` and `inodes` are keys of kind memory, and the others \
                 of kind posix",
            ),
            StoreKind::Ceph => raw.ceph().map(Self::Ceph),
        }
    }
}
