//! Roles of named tokens, of users and groups of the Unix socket, and of client certificates: the file
//! `admin.roles_file`.
//!
//! Each line is `token NAME ROLE HASH`, `user NAME ROLE`, `group NAME ROLE` or `certificate KIND:NAME
//! ROLE`; `#` begins a comment.
//! The hash is plain SHA-256. Tokens are 256 random bits made by `millracectl token new`, which cannot
//! be found by trying; a slow hash would protect words that people choose, and let a flood of wrong
//! tokens keep the server busy.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use utoipa::ToSchema;

use crate::config::{ClientAuth, Config};
use crate::token::{self, TokenError};

/// The beginning of a hash.
const SCHEME: &str = "sha256:";

/// What a client may do; each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read the state.
    Read,
    /// Also drain, ban, evict, end and revoke.
    Operate,
    /// Also change the configuration, and capture messages.
    Admin,
}

impl FromStr for Role {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "read" => Ok(Self::Read),
            "operate" => Ok(Self::Operate),
            "admin" => Ok(Self::Admin),
            _ => Err("a role is read, operate or admin"),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        })
    }
}

/// The names of certificates that can have a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateKind {
    /// A common name of the subject.
    Common,
    /// A DNS name among the subject's alternative names.
    Dns,
    /// A URI among the subject's alternative names.
    Uri,
}

impl CertificateKind {
    const ALL: [Self; 3] = [Self::Common, Self::Dns, Self::Uri];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Common => "cn:",
            Self::Dns => "dns:",
            Self::Uri => "uri:",
        }
    }

    /// A name of this kind, as the file has it.
    pub fn entry(self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }

    /// Whether this is a name of a kind, as the file has it.
    fn is_entry(text: &str) -> bool {
        let of = |kind: Self| text.strip_prefix(kind.prefix());
        let name = Self::ALL.into_iter().find_map(of).unwrap_or_default();
        !name.is_empty() && name.trim() == name && !name.contains(char::is_control)
    }
}

/// The content of the file.
#[derive(Debug, Default)]
pub struct Roles {
    tokens: Vec<NamedToken>,
    users: Vec<(u32, Role)>,
    /// Groups by number, with the users that the host's file adds to them.
    groups: Vec<(u32, Vec<u32>, Role)>,
    /// Certificates by the name of an entry.
    certificates: Vec<(String, Role)>,
}

struct NamedToken {
    name: String,
    role: Role,
    hash: [u8; 32],
}

impl fmt::Debug for NamedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.role)
    }
}

/// Reads the file, and the host's users and groups that it names.
///
/// # Errors
///
/// It cannot be read, or has a line that is not valid; no line of it holds then.
pub fn read(file: &Path) -> Result<Roles, TokenError> {
    let text = token::text(file)?;
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let group = fs::read_to_string("/etc/group").unwrap_or_default();
    parse(&text, &passwd, &group).map_err(|(line, reason)| TokenError::Line {
        file: file.to_owned(),
        line,
        reason,
    })
}

/// The problem with the file of a configuration; `None` without a file or a problem. Reads the file.
pub fn note(config: &Config) -> Option<String> {
    let roles = match read(config.admin.roles_file.as_deref()?) {
        Ok(roles) => roles,
        Err(error) => {
            return Some(format!(
                "admin.roles_file: {error}; it gives no role to anyone until then"
            ));
        }
    };
    let tls = config.admin.tls.as_ref();
    let asks = tls.is_some_and(|tls| tls.client_auth != ClientAuth::None);
    let unused = !asks && !roles.certificates.is_empty();
    unused.then(|| {
        "admin.roles_file: its certificates have no role, as admin.tls.client_auth asks for none"
            .to_owned()
    })
}

/// The hash of a token, as the file has it.
pub fn hash(token: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{SCHEME}{digits}")
}

/// Whether a token may have this name: it stands in records and in lines of the file.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

impl Roles {
    /// Name and role of a token. Takes the same time for all wrong ones of the same length.
    pub fn token(&self, said: &[u8]) -> Option<(&str, Role)> {
        let said: [u8; 32] = Sha256::digest(said).into();
        let mut found = None;
        for one in &self.tokens {
            let same: Choice = one.hash.ct_eq(&said);
            if bool::from(same) {
                found = Some((one.name.as_str(), one.role));
            }
        }
        found
    }

    /// The role of a user: the highest of its own and those of its groups.
    pub fn user(&self, uid: u32, gid: u32) -> Option<Role> {
        let own = self.users.iter().filter(|(user, _)| *user == uid);
        let groups = self.groups.iter();
        let groups = groups.filter(|(group, users, _)| *group == gid || users.contains(&uid));
        let groups = groups.map(|(.., role)| *role);
        own.map(|(_, role)| *role).chain(groups).max()
    }

    /// The entry and role of a certificate with these names: of several entries, the one with the
    /// highest role.
    pub fn certificate(&self, names: &BTreeSet<String>) -> Option<(&str, Role)> {
        let own = self.certificates.iter();
        let own = own.filter(|(name, _)| names.contains(name));
        own.map(|(name, role)| (name.as_str(), *role))
            .max_by_key(|(_, role)| *role)
    }
}

fn parse(text: &str, passwd: &str, group: &str) -> Result<Roles, (usize, &'static str)> {
    let mut roles = Roles::default();
    for (index, line) in text.lines().enumerate() {
        let refused = |reason| (index + 1, reason);
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match *words.as_slice() {
            [] => {}
            ["token", name, role, hash] => {
                if !is_name(name) {
                    return Err(refused("a name has letters, digits, and - . _ @"));
                }
                if roles.tokens.iter().any(|one| one.name == name) {
                    return Err(refused("the name stands twice"));
                }
                let form = "a hash is sha256: and 64 hexadecimal digits, as `millracectl token new` \
                            prints it";
                roles.tokens.push(NamedToken {
                    name: name.to_owned(),
                    role: role.parse().map_err(refused)?,
                    hash: bytes(hash).ok_or(refused(form))?,
                });
            }
            ["user", name, role] => {
                let unknown = "/etc/passwd has no such user; write the number of others";
                let uid = number(passwd, name).ok_or(refused(unknown))?;
                roles.users.push((uid, role.parse().map_err(refused)?));
            }
            ["group", name, role] => {
                let unknown = "/etc/group has no such group; write the number of others";
                let gid = number(group, name).ok_or(refused(unknown))?;
                let role = role.parse().map_err(refused)?;
                roles.groups.push((gid, members(group, passwd, gid), role));
            }
            // A common name may have spaces.
            ["certificate", _, .., role] if words.len() > 2 => {
                let rest = line.trim().strip_prefix("certificate");
                let name = rest.and_then(|rest| rest.strip_suffix(role));
                let name = name.unwrap_or_default().trim();
                if !CertificateKind::is_entry(name) {
                    return Err(refused(
                        "a certificate is named by cn:NAME, dns:NAME or uri:NAME",
                    ));
                }
                if roles.certificates.iter().any(|(known, _)| known == name) {
                    return Err(refused("the name stands twice"));
                }
                let role = role.parse().map_err(refused)?;
                roles.certificates.push((name.to_owned(), role));
            }
            _ => {
                let forms = "a line is `token NAME ROLE HASH`, `user NAME ROLE`, `group NAME ROLE` \
                             or `certificate KIND:NAME ROLE`";
                return Err(refused(forms));
            }
        }
    }
    Ok(roles)
}

fn bytes(hash: &str) -> Option<[u8; 32]> {
    let digits = hash.strip_prefix(SCHEME)?;
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

/// The number of a user or group: given as such, or by its name in a file of the host (passwd(5),
/// group(5)).
fn number(table: &str, name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let mut entries = table.lines().map(|line| line.split(':'));
    let mut found = entries.find_map(|mut fields| (fields.next()? == name).then_some(fields))?;
    found.nth(1)?.parse().ok()
}

/// The users that a group lists.
fn members(group: &str, passwd: &str, gid: u32) -> Vec<u32> {
    let of_line = |line: &str| -> Option<Vec<u32>> {
        let mut fields = line.split(':').skip(2);
        let is_it = fields.next()?.parse() == Ok(gid);
        let names = fields.next()?.split(',');
        let users = names.filter_map(|name| number(passwd, name.trim()));
        is_it.then(|| users.collect())
    };
    group.lines().find_map(of_line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Tls;

    const PASSWD: &str =
        "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:100::/:\n";
    const GROUP: &str = "root:x:0:\nstorage:x:500:bob\nusers:x:100:alice,bob\n";

    #[test]
    fn tokens_users_and_groups_have_their_roles() {
        let text = format!(
            "# who may what\n\ntoken ci operate {} # nightly\ntoken boss admin {}\n\
             user alice read\ngroup storage operate\nuser 4242 admin\n",
            hash("first-token-of-many"),
            hash("second-token")
        );
        let roles = parse(&text, PASSWD, GROUP).unwrap();
        assert_eq!(
            roles.token(b"first-token-of-many"),
            Some(("ci", Role::Operate))
        );
        assert_eq!(roles.token(b"second-token"), Some(("boss", Role::Admin)));
        assert_eq!(roles.token(b"first-token-of-man"), None);
        assert_eq!(roles.token(hash("second-token").as_bytes()), None);
        assert_eq!(roles.user(1000, 1000), Some(Role::Read));
        // By the list of the group, and as the primary group.
        assert_eq!(roles.user(1001, 100), Some(Role::Operate));
        assert_eq!(roles.user(7, 500), Some(Role::Operate));
        assert_eq!(roles.user(1000, 500), Some(Role::Operate));
        assert_eq!(roles.user(4242, 1), Some(Role::Admin));
        assert_eq!(roles.user(7, 100), None);
        assert!(!format!("{roles:?}").contains("sha256"));
    }

    #[test]
    fn certificates_have_the_highest_role_of_the_entries_that_are_exactly_their_names() {
        let text = "certificate cn:Storage  Operations operate # by name\n\
                    certificate dns:ops.example.org read\n\
                    certificate uri:spiffe://example.org/ops admin\n";
        let roles = parse(text, PASSWD, GROUP).unwrap();
        let of = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            let found = roles.certificate(&names);
            found.map(|(name, role)| (name.to_owned(), role))
        };
        let one = |name: &str, role| Some((name.to_owned(), role));
        let (common, dns) = ("cn:Storage  Operations", "dns:ops.example.org");
        let uri = "uri:spiffe://example.org/ops";
        assert_eq!(of(&[common]), one(common, Role::Operate));
        assert_eq!(of(&[dns]), one(dns, Role::Read));
        assert_eq!(of(&[common, dns]), one(common, Role::Operate));
        assert_eq!(of(&[common, dns, uri]), one(uri, Role::Admin));
        for other in [
            "cn:Storage Operations",
            "cn:ops.example.org",
            "dns:OPS.example.org",
            "dns:a.ops.example.org",
            "dns:*.example.org",
            "uri:spiffe://example.org/ops/1",
            "dns:",
        ] {
            assert_eq!(of(&[other]), None, "{other}");
        }
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_file_that_does_not_hold_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roles");
        let mut config = Config::default();
        assert_eq!(note(&config), None);
        config.admin.roles_file = Some(file.clone());
        assert!(note(&config).unwrap().contains("cannot be read"));
        fs::write(&file, "user 1 read\nuser 2\n").unwrap();
        let told = note(&config).unwrap();
        assert!(told.contains("line 2: a line is"), "{told}");
        fs::write(&file, "user 1 read\n").unwrap();
        assert_eq!(note(&config), None);
        fs::write(&file, "certificate cn:ops read\n").unwrap();
        assert!(note(&config).unwrap().contains("admin.tls.client_auth"));
        config.admin.tls = Some(Tls {
            certificate: "/cert".into(),
            key: "/key".into(),
            client_ca: Some("/ca".into()),
            client_auth: ClientAuth::Optional,
        });
        assert_eq!(note(&config), None);
    }

    #[test]
    fn a_file_with_a_line_that_is_not_valid_gives_nobody_a_role() {
        let good = format!("token ci read {}\n", hash("x"));
        let good = format!("certificate cn:there read\n{good}");
        for (bad, words) in [
            ("token cj admin sha256:00", "sha256: and 64"),
            ("token ci read sha256:00", "stands twice"),
            ("user nobody-here read", "/etc/passwd has no such"),
            ("group nobody-here read", "/etc/group has no such"),
            ("user alice root", "read, operate or admin"),
            ("user alice", "a line is"),
            ("a-token-by-mistake", "a line is"),
            ("certificate cn:ops", "a line is"),
            ("certificate ops read", "cn:NAME, dns:NAME or uri:NAME"),
            ("certificate CN:ops read", "cn:NAME, dns:NAME or uri:NAME"),
            ("certificate dns: read", "cn:NAME, dns:NAME or uri:NAME"),
            ("certificate cn: ops read", "cn:NAME, dns:NAME or uri:NAME"),
            (
                "certificate cn:a\u{7}b read",
                "cn:NAME, dns:NAME or uri:NAME",
            ),
            ("certificate cn:ops root", "read, operate or admin"),
            ("certificate uri:https://ops/#a admin", "a line is"),
            ("certificate cn:there admin", "stands twice"),
        ] {
            let (line, reason) = parse(&format!("{good}{bad}\n"), PASSWD, GROUP).unwrap_err();
            assert_eq!(line, 3, "{bad}");
            assert!(reason.contains(words), "{bad}: {reason}");
        }
        let long = "x".repeat(65);
        for name in ["", "a b", "a/b", "\u{e9}", &long] {
            assert!(!is_name(name), "{name}");
        }
    }
}
