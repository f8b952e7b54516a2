//! Keytabs (MIT's file format, version 2): whose keys they have. The keys are not looked at.

use std::collections::BTreeSet;

/// A file's entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Keytab {
    /// Principals, with the versions of their keys and encryption types.
    pub entries: BTreeSet<KeytabEntry>,
}

/// One key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeytabEntry {
    /// Components of the name, without realm, divided by `/`.
    pub name: String,
    pub realm: String,
    pub version: u32,
    pub enctype: u16,
}

/// What is left of a file or an entry.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn short(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Bytes behind their length.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let count = self.short()?;
        self.bytes(count.into())
    }

    fn text(&mut self) -> Option<String> {
        let text = self.counted()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

impl Keytab {
    /// `None`: not a keytab of version 2.
    pub fn parse(file: &[u8]) -> Option<Self> {
        let mut file = Fields(file.strip_prefix(&[5, 2])?);
        let mut entries = BTreeSet::new();
        while !file.0.is_empty() {
            let length = i32::from_be_bytes(file.array()?);
            if length == 0 {
                break;
            }
            let entry = file.bytes(length.unsigned_abs() as usize)?;
            // Of negative length: a hole.
            if length > 0 {
                entries.insert(KeytabEntry::parse(entry)?);
            }
        }
        Some(Self { entries })
    }

    /// The realms.
    pub fn realms(&self) -> Vec<String> {
        let realms = self.entries.iter().map(|entry| entry.realm.clone());
        realms.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The principals, for operators.
    pub fn principals(&self) -> String {
        let names = self.entries.iter();
        let names = names.map(|entry| format!("{}@{}", entry.name, entry.realm));
        let names: BTreeSet<_> = names.collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// Whether there is a key for a service, or for `SERVICE@HOST`.
    pub fn has_service(&self, service: &str) -> bool {
        let name = service.replace('@', "/");
        let is_whole = service.contains('@');
        self.entries.iter().any(|entry| {
            let first = entry.name.split('/').next();
            entry.name == name || (!is_whole && first == Some(service))
        })
    }
}

impl KeytabEntry {
    fn parse(entry: &[u8]) -> Option<Self> {
        let mut entry = Fields(entry);
        let components = entry.short()?;
        let realm = entry.text()?;
        let mut name = Vec::new();
        for _ in 0..components {
            name.push(entry.text()?);
        }
        // Type of the name and time.
        entry.bytes(8)?;
        let [short_version] = entry.array()?;
        let enctype = entry.short()?;
        entry.counted()?;
        // The whole version follows in files of later libraries.
        let version = entry.array().map(u32::from_be_bytes);
        Some(Self {
            name: name.join("/"),
            realm,
            version: version
                .filter(|&version| version != 0)
                .unwrap_or(short_version.into()),
            enctype,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[&str], version: u32, with_version: bool) -> Vec<u8> {
        let mut entry = Vec::new();
        let counted = |entry: &mut Vec<u8>, text: &[u8]| {
            entry.extend(u16::try_from(text.len()).expect("short").to_be_bytes());
            entry.extend(text);
        };
        entry.extend(u16::try_from(name.len()).expect("few").to_be_bytes());
        counted(&mut entry, b"MILLRACE.TEST");
        for component in name {
            counted(&mut entry, component.as_bytes());
        }
        entry.extend([0; 8]);
        entry.push(version.to_be_bytes()[3]);
        entry.extend(18_u16.to_be_bytes());
        counted(&mut entry, &[9; 32]);
        if with_version {
            entry.extend(version.to_be_bytes());
        }
        let mut framed = i32::try_from(entry.len())
            .expect("short")
            .to_be_bytes()
            .to_vec();
        framed.extend(entry);
        framed
    }

    #[test]
    fn gss_ctx_10_the_keys_of_a_keytab_are_known_by_name() {
        let mut file = vec![5, 2];
        file.extend(entry(&["nfs", "server.test"], 300, true));
        file.extend((-7_i32).to_be_bytes());
        file.extend([0xee; 7]);
        file.extend(entry(&["host", "server.test"], 2, false));
        let keytab = Keytab::parse(&file).expect("a keytab");
        let versions: Vec<_> = keytab.entries.iter().map(|entry| entry.version).collect();
        assert_eq!(versions, [2, 300]);
        assert_eq!(
            keytab.principals(),
            "host/server.test@MILLRACE.TEST, nfs/server.test@MILLRACE.TEST"
        );
        assert_eq!(keytab.realms(), ["MILLRACE.TEST"]);
        for (service, has) in [
            ("nfs", true),
            ("nfs@server.test", true),
            ("nfs@other.test", false),
            ("server.test", false),
            ("http", false),
        ] {
            assert_eq!(keytab.has_service(service), has, "{service}");
        }
        // Cut anywhere but between entries, it is damaged.
        let whole = file.len() - entry(&["host", "server.test"], 2, false).len();
        for length in 0..file.len() {
            let parsed = Keytab::parse(&file[..length]).is_some();
            let is_whole = [2, whole, whole - 11].contains(&length);
            assert_eq!(parsed, is_whole, "{length}");
        }
    }
}
