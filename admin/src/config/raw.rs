//! Values in the form of the file, where the model's type differs.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::de::SeqAccess;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    ByteSize, CallerIdentity, Cores, CrcPolicy, DirectIo, Fabric, GroupSource, MountView, Posix,
    Provider, Store, StoreLimits, Switch, SyncMode, scalar,
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
}

/// A store as written: its kind determines the valid keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreRaw {
    kind: StoreKind,
    size: Option<ByteSize>,
    root: Option<PathBuf>,
    direct: Option<DirectIo>,
    sync: Option<SyncMode>,
    groups: Option<GroupSource>,
    identity: Option<CallerIdentity>,
    mounts: Option<MountView>,
    limits: Option<StoreLimits>,
}

impl TryFrom<StoreRaw> for Store {
    type Error = &'static str;

    fn try_from(raw: StoreRaw) -> Result<Self, &'static str> {
        match raw.kind {
            StoreKind::Memory => {
                let posix = raw.root.is_some()
                    || raw.direct.is_some()
                    || raw.sync.is_some()
                    || raw.groups.is_some()
                    || raw.identity.is_some()
                    || raw.mounts.is_some()
                    || raw.limits.is_some();
                match raw.size {
                    Some(size) if !posix => Ok(Self::Memory { size }),
                    Some(_) => Err(
                        "a store of kind memory has the one key `size`; `root`, `direct`, `sync`, \
                         `groups`, `identity`, `mounts` and `limits` are keys of kind posix",
                    ),
                    None => Err("a store of kind memory needs the key `size`, such as 1GiB"),
                }
            }
            StoreKind::Posix => {
                if raw.size.is_some() {
                    return Err(
                        "a store of kind posix has the keys `root`, `direct`, `sync`, `groups`, \
                         `identity`, `mounts` and `limits`; `size` is a key of kind memory",
                    );
                }
                let root = raw
                    .root
                    .ok_or("a store of kind posix needs the key `root`, the folder to serve")?;
                Ok(Self::Posix(Posix {
                    root,
                    direct: raw.direct.unwrap_or_default(),
                    sync: raw.sync.unwrap_or_default(),
                    groups: raw.groups.unwrap_or_default(),
                    identity: raw.identity.unwrap_or_default(),
                    mounts: raw.mounts.unwrap_or_default(),
                    limits: raw.limits.unwrap_or_default(),
                }))
            }
        }
    }
}
