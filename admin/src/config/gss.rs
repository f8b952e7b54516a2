//! Kerberos (RPCSEC_GSS), and the security that exports ask for.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{self, Deserializer, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema::DurationText;
use super::units::duration;
use super::validate::Problems;
use super::{ByteSize, Config, KeyPath};

/// The port at which clients make contexts, whichever transport they use them over.
const NFS_PORT: u16 = 2049;
/// Connections of a client (`nconnect` of Linux has this limit) whose calls share a window.
const CONNECTIONS: u32 = 16;

/// How calls that may use an export are secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExportSecurity {
    /// AUTH_NONE; its callers are the anonymous user.
    None,
    /// AUTH_SYS.
    Sys,
    /// Kerberos; the header of calls is authenticated.
    Krb5,
    /// Kerberos with integrity.
    Krb5i,
    /// Kerberos with privacy.
    Krb5p,
}

impl ExportSecurity {
    /// What exports take if they do not say anything else.
    pub(super) fn weak() -> Vec<Self> {
        vec![Self::Sys, Self::None]
    }

    /// Whether it needs the section `gss`.
    pub fn is_kerberos(self) -> bool {
        matches!(self, Self::Krb5 | Self::Krb5i | Self::Krb5p)
    }

    /// The word for it in configuration and log.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }
}

/// Reads a list, or the value of `flavor`, the former name of the key: the weakest flavor.
pub(super) fn security<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Vec<ExportSecurity>, D::Error> {
    struct ListOrFlavor;

    impl<'de> Visitor<'de> for ListOrFlavor {
        type Value = Vec<ExportSecurity>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of `krb5p`, `krb5i`, `krb5`, `sys` and `none`, best first")
        }

        fn visit_str<E: de::Error>(self, flavor: &str) -> Result<Self::Value, E> {
            match flavor {
                "none" => Ok(ExportSecurity::weak()),
                "sys" => Ok(vec![ExportSecurity::Sys]),
                _ => Err(E::invalid_value(de::Unexpected::Str(flavor), &self)),
            }
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Deserialize::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    input.deserialize_any(ListOrFlavor)
}

/// Kerberos.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gss {
    /// The file with the keys of the service.
    #[schema(value_type = String)]
    pub keytab: PathBuf,
    /// The acceptor: a service, any of whose keys will do, or a service at a host.
    pub principal: String,
    /// Realms whose users have their short names here; those of the keytab if left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub realms: Vec<String>,
    /// Encryption types of contexts.
    pub enctypes: Vec<GssEnctype>,
    /// The user that principals of machines are.
    pub machine: GssMachine,
    /// A file with lines of principal and user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub map: Option<PathBuf>,
    /// Threads that create contexts.
    pub helpers: usize,
    /// Most contexts.
    pub contexts: usize,
    /// Most contexts made from one address.
    pub contexts_per_client: usize,
    /// Most creations that wait.
    pub pending: usize,
    /// Sequence numbers that calls may be apart.
    pub window: u32,
    /// Longest life of a context.
    #[serde(with = "duration")]
    #[schema(value_type = DurationText)]
    pub lifetime: Duration,
    /// How long an unused context is kept.
    #[serde(with = "duration")]
    #[schema(value_type = DurationText)]
    pub idle: Duration,
    /// Longest token.
    pub token_max: ByteSize,
    /// Bytes signed, verified or encrypted before other calls have their turn.
    pub slice: ByteSize,
    /// Most groups of a user.
    pub groups_max: usize,
}

impl Default for Gss {
    fn default() -> Self {
        Self {
            keytab: "/etc/millrace/nfs.keytab".into(),
            principal: "nfs".to_owned(),
            realms: Vec::new(),
            enctypes: GssEnctype::ALL.to_vec(),
            machine: GssMachine::Anonymous,
            map: None,
            helpers: 2,
            contexts: 16_384,
            contexts_per_client: 2_048,
            pending: 64,
            window: 2_048,
            lifetime: Duration::from_secs(24 * 3600),
            idle: Duration::from_secs(3600),
            token_max: ByteSize::kib(64),
            slice: ByteSize::kib(16),
            groups_max: 1_024,
        }
    }
}

/// An encryption type (RFC 3962, RFC 8009).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum GssEnctype {
    /// aes256-cts-hmac-sha384-192.
    #[serde(rename = "aes256-sha2")]
    Aes256Sha2,
    /// aes128-cts-hmac-sha256-128.
    #[serde(rename = "aes128-sha2")]
    Aes128Sha2,
    /// aes256-cts-hmac-sha1-96.
    #[serde(rename = "aes256-sha1")]
    Aes256Sha1,
    /// aes128-cts-hmac-sha1-96.
    #[serde(rename = "aes128-sha1")]
    Aes128Sha1,
}

impl GssEnctype {
    const ALL: [Self; 4] = [
        Self::Aes256Sha2,
        Self::Aes128Sha2,
        Self::Aes256Sha1,
        Self::Aes128Sha1,
    ];
}

/// The user that principals of machines are, such as `host/client.example.com`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GssMachine {
    /// The anonymous user.
    #[default]
    Anonymous,
    /// User 0, before the export squashes users.
    Root,
}

/// Adds what is wrong with the section, and with the security of exports.
pub(super) fn check(problems: &mut Problems, root: &KeyPath, config: &Config) {
    for (index, export) in config.exports.iter().enumerate() {
        let path = root.key("exports").index(index).key("security");
        let list = &export.security;
        if list.is_empty() {
            let message = "the list is empty, so no call could use the export";
            problems.add(&path, message);
        }
        for (at, security) in list.iter().enumerate() {
            let entry = path.clone().index(at);
            let name = security.name();
            if list[..at].contains(security) {
                problems.add(&entry, format!("{name} twice"));
            } else if security.is_kerberos() && config.gss.is_none() {
                let message = format!("{name} needs the section `gss`, which names the keytab");
                problems.add(&entry, message);
            }
        }
    }
    let Some(gss) = &config.gss else { return };
    let path = root.key("gss");
    problems.absolute(&path.key("keytab"), &gss.keytab);
    if let Some(map) = &gss.map {
        problems.absolute(&path.key("map"), map);
    }
    let is_name = |name: &str| !name.is_empty() && !name.contains(['/', ' ']);
    if !is_name(&gss.principal) {
        let message = format!(
            "`{}` is no service; write nfs, or nfs@HOST",
            gss.principal.escape_debug()
        );
        problems.add(&path.key("principal"), message);
    }
    if gss.enctypes.is_empty() {
        let message = "no encryption types, so there could be no contexts";
        problems.add(&path.key("enctypes"), message);
    }
    let bounds = [
        ("helpers", gss.helpers as u64, 1, 64),
        ("contexts", gss.contexts as u64, 16, 1 << 20),
        (
            "contexts_per_client",
            gss.contexts_per_client as u64,
            1,
            1 << 20,
        ),
        ("pending", gss.pending as u64, 4, 4096),
        ("window", u64::from(gss.window), 128, 1 << 16),
        ("token_max", gss.token_max.bytes(), 4 << 10, 512 << 10),
        ("slice", gss.slice.bytes(), 1 << 10, 1 << 20),
        ("groups_max", gss.groups_max as u64, 16, 1 << 16),
    ];
    for (key, value, least, most) in bounds {
        if !(least..=most).contains(&value) {
            let message = format!("{value} is out of range; accepted are {least} to {most}");
            problems.add(&path.key(key), message);
        }
    }
    let week = Duration::from_secs(7 * 24 * 3600);
    let minute = Duration::from_secs(60);
    problems.duration_within(&path.key("lifetime"), gss.lifetime, minute, week);
    problems.duration_within(&path.key("idle"), gss.idle, minute, week);
}

/// Effects of the section that an operator may not expect.
pub(super) fn notes(config: &Config) -> Vec<String> {
    let mut notes = Vec::new();
    let Some(gss) = &config.gss else {
        return notes;
    };
    let wanted = config.flow.credits.saturating_mul(CONNECTIONS);
    if gss.window < wanted {
        notes.push(format!(
            "gss.window: {} is less than {CONNECTIONS} times flow.credits, so calls of a user over \
             many connections may be dropped; {wanted} is enough",
            gss.window
        ));
    }
    let listen = config.rpc.listen;
    let is_elsewhere = |address: std::net::IpAddr| {
        !listen.ip().is_unspecified() && listen.ip() != address && !address.is_loopback()
    };
    let lost = (config.fabric.iter()).find(|fabric| is_elsewhere(fabric.listen.ip()));
    if !config.fabric.is_empty() && listen.port() != NFS_PORT {
        notes.push(format!(
            "rpc.listen: Linux clients make contexts for NFS over RDMA at port {NFS_PORT} over TCP \
             of the same address, but the port is {}",
            listen.port()
        ));
    } else if let Some(fabric) = lost {
        notes.push(format!(
            "rpc.listen: clients of {} make contexts over TCP at the same address, where {listen} \
             is not reached",
            fabric.listen
        ));
    }
    notes
}
