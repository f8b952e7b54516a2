//! NFS file handles: opaque to clients, stable over restarts, and impossible to make up.
//!
//! A handle names an export and an object of its store and carries a SipHash-2-4 tag under the
//! server's secret, so that a client cannot leave its export by guessing inode numbers. Servers
//! with the same secret that export the same objects by the same path make the same handles.
//!
//! RFC 1813 section 2.6 distinguishes `NFS3ERR_BADHANDLE` from `NFS3ERR_STALE`. Here the former
//! means that the bytes do not have the form of a handle. A handle whose tag is wrong may be one
//! from before a restart with another secret: it is stale, which clients know how to recover from.

use std::cell::Cell;
use std::hash::Hasher;
use std::sync::Arc;

use millrace_primitives::Counter;
use millrace_store::Handle;
use millrace_wire::nfs3::FileHandle;
use siphasher::sip::SipHasher24;

/// First byte of every handle: the version of its layout.
const VERSION: u8 = 1;

/// Where the object begins: behind version (1), zeros (3) and export (8).
const OBJECT: usize = 12;

/// Length of the tag, which comes behind the object.
const TAG: usize = 8;

// The longest handle of an object fits (RFC 1813 section 2.4).
const _: () = assert!(OBJECT + Handle::MAX + TAG <= FileHandle::MAX);

/// How many handles a key remembers: 32 KiB of them.
const REMEMBERED: usize = 512;

/// Why a handle does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Its length or layout differs from this server's handles.
    #[error("not a file handle of this server")]
    Malformed,
    /// It was made up, or made under another secret.
    #[error("a file handle that this server did not make")]
    Foreign,
}

/// The secrets of a server's file handles: one makes them. Handles of others are accepted while a
/// secret is replaced.
#[derive(Clone, PartialEq, Eq)]
pub struct HandleSecrets {
    /// Makes handles.
    pub present: [u8; 16],
    /// Accepted as well: older ones, and the next one before it is used.
    pub others: Vec<[u8; 16]>,
}

/// What stands for a secret where others may read it: its tag of this.
const MARKED: &[u8] = b"which secret";
// No handle begins so: the mark is the tag of none.
const _: () = assert!(MARKED[0] != VERSION);

impl HandleSecrets {
    /// A number for each, by which servers find out whether they have the same ones, first that of
    /// the present one.
    #[must_use]
    pub fn marks(&self) -> Vec<u64> {
        let all = std::iter::once(&self.present).chain(&self.others);
        let mark = |secret| tag_of(SipHasher24::new_with_key(secret), MARKED);
        all.map(mark).collect()
    }
}

impl std::fmt::Debug for HandleSecrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("HandleSecrets");
        shown.field("others", &self.others.len());
        shown.finish_non_exhaustive()
    }
}

/// Makes and checks file handles. The same secret has to be used after a restart, or clients
/// lose their mounts.
///
/// It remembers handles that were authentic under the present secret, so that the tags of those in
/// use are not computed for each call. Every reactor has a key of its own.
#[derive(Clone)]
pub struct HandleKey {
    hasher: SipHasher24,
    others: Vec<SipHasher24>,
    /// Uses of handles that others made.
    others_used: Arc<Counter>,
    /// By the last bits of their tags.
    authentic: Box<[Cell<AuthenticHandle>]>,
}

/// A handle that was authentic.
#[derive(Clone, Copy)]
struct AuthenticHandle {
    tag: u64,
    export: u64,
    object: Handle,
}

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("HandleKey")
    }
}

impl HandleKey {
    /// A key from the server's secret.
    #[must_use]
    pub fn new(secret: &[u8; 16]) -> Self {
        // Nothing is found before something is remembered: these tags belong to other indices.
        let nothing = |index: u64| AuthenticHandle {
            tag: !index,
            export: 0,
            object: Handle::new(&[]).expect("no longer than a handle"),
        };
        Self {
            hasher: SipHasher24::new_with_key(secret),
            others: Vec::new(),
            others_used: Arc::default(),
            authentic: (0..REMEMBERED as u64)
                .map(|index| Cell::new(nothing(index)))
                .collect(),
        }
    }

    /// A key that accepts handles of several secrets.
    #[must_use]
    pub fn of(secrets: &HandleSecrets) -> Self {
        let others = secrets.others.iter().map(SipHasher24::new_with_key);
        Self {
            others: others.collect(),
            ..Self::new(&secrets.present)
        }
    }

    /// Uses of handles that were not made under the present secret.
    #[must_use]
    pub fn others_used(&self) -> Arc<Counter> {
        Arc::clone(&self.others_used)
    }

    /// The handle of an object of an export.
    #[must_use]
    pub fn seal(&self, export: u64, object: Handle) -> FileHandle {
        let object = object.as_bytes();
        let tag = OBJECT + object.len();
        let mut handle = [0; OBJECT + Handle::MAX + TAG];
        handle[0] = VERSION;
        handle[4..OBJECT].copy_from_slice(&export.to_be_bytes());
        handle[OBJECT..tag].copy_from_slice(object);
        let sum = tag_of(self.hasher, &handle[..tag]);
        handle[tag..tag + TAG].copy_from_slice(&sum.to_be_bytes());
        FileHandle::new(&handle[..tag + TAG]).expect("shorter than the protocol's limit")
    }

    /// The export and the object that a handle names.
    ///
    /// # Errors
    /// [`HandleError`] if this server (or one with the same secret) did not make it.
    pub fn open(&self, handle: &[u8]) -> Result<(u64, Handle), HandleError> {
        let (sealed, tag) = handle
            .split_last_chunk::<TAG>()
            .filter(|(sealed, _)| sealed.len() >= OBJECT && sealed[..4] == [VERSION, 0, 0, 0])
            .ok_or(HandleError::Malformed)?;
        let tag = u64::from_be_bytes(*tag);
        let (front, object) = sealed.split_at(OBJECT);
        let export = front
            .last_chunk()
            .map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let remembered = &self.authentic[tag as usize % REMEMBERED];
        let known = remembered.get();
        // Tags are compared as one word, in a time that says nothing about where they differ.
        if known.tag ^ tag == 0 && known.export == export && known.object.as_bytes() == object {
            return Ok((export, known.object));
        }
        // The tag covers every other byte.
        let is_present = tag_of(self.hasher, sealed) ^ tag == 0;
        if !is_present && !self.is_of_others(sealed, tag) {
            return Err(HandleError::Foreign);
        }
        let object = Handle::new(object).ok_or(HandleError::Malformed)?;
        // Not those of others: each use of them is counted.
        if is_present {
            remembered.set(AuthenticHandle {
                tag,
                export,
                object,
            });
        }
        Ok((export, object))
    }

    #[cold]
    fn is_of_others(&self, sealed: &[u8], tag: u64) -> bool {
        let mut others = self.others.iter();
        let is_known = others.any(|&hasher| tag_of(hasher, sealed) ^ tag == 0);
        if is_known {
            self.others_used.increment();
        }
        is_known
    }
}

fn tag_of(mut hasher: SipHasher24, bytes: &[u8]) -> u64 {
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> impl Iterator<Item = Handle> {
        let bytes: Vec<u8> = (1..=44).collect();
        (0..=Handle::MAX).map(move |length| Handle::new(&bytes[..length]).unwrap())
    }

    #[test]
    fn round_trip() {
        for object in objects() {
            let key = HandleKey::new(&[7; 16]);
            let handle = key.seal(0xfeed, object);
            // Authenticated first, then remembered.
            for _ in 0..2 {
                assert_eq!(key.open(handle.as_bytes()), Ok((0xfeed, object)));
            }
            assert_eq!(handle, HandleKey::new(&[7; 16]).seal(0xfeed, object));
        }
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let key = HandleKey::new(&[7; 16]);
        for object in objects() {
            let handle = key.seal(1, object);
            // Those that resemble a remembered one are refused, too.
            assert!(key.open(handle.as_bytes()).is_ok());
            for bit in 0..handle.as_bytes().len() * 8 {
                let mut forged = handle.as_bytes().to_vec();
                forged[bit / 8] ^= 1 << (bit % 8);
                let error = if bit < 32 {
                    HandleError::Malformed
                } else {
                    HandleError::Foreign
                };
                assert_eq!(key.open(&forged), Err(error), "bit {bit}");
            }
        }
    }

    #[test]
    fn foreign_secrets_and_lengths_are_refused() {
        let object = Handle::new(&[3; 16]).unwrap();
        let handle = HandleKey::new(&[7; 16]).seal(1, object);
        let handle = handle.as_bytes();
        let other = HandleKey::new(&[8; 16]);
        assert_eq!(other.open(handle), Err(HandleError::Foreign));
        let key = HandleKey::new(&[7; 16]);
        assert_eq!(key.open(&handle[..35]), Err(HandleError::Foreign));
        assert_eq!(key.open(&handle[..19]), Err(HandleError::Malformed));
        assert_eq!(key.open(&[]), Err(HandleError::Malformed));
        let longer = [handle, &[0]].concat();
        assert_eq!(key.open(&longer), Err(HandleError::Foreign));
    }

    #[test]
    fn handles_of_other_secrets_are_accepted_and_counted() {
        let object = Handle::new(&[3; 16]).unwrap();
        let keys = [[7; 16], [8; 16], [9; 16]].map(|secret| HandleKey::new(&secret));
        let handles = keys.each_ref().map(|key| key.seal(1, object));
        let key = HandleKey::of(&HandleSecrets {
            present: [8; 16],
            others: vec![[7; 16], [9; 16]],
        });
        assert_eq!(key.seal(1, object), handles[1]);
        for _ in 0..2 {
            for handle in &handles {
                assert_eq!(key.open(handle.as_bytes()), Ok((1, object)));
            }
        }
        assert_eq!(key.others_used().get(), 4);
        for handle in [
            HandleKey::new(&[6; 16]).seal(1, object),
            FileHandle::new(&[handles[0].as_bytes(), &[0]].concat()).unwrap(),
        ] {
            assert_eq!(key.open(handle.as_bytes()), Err(HandleError::Foreign));
        }
        assert_eq!(key.others_used().get(), 4);
    }

    /// A secret is replaced on many gateways, each at its own time, in three steps: accept the new
    /// one, make handles with it, forget the old one. Returns whether every handle opened wherever
    /// its client went, if the gateways wait for each other before each of `waits`.
    fn roll_over(seed: u64, waits: [bool; 3]) -> bool {
        const GATEWAYS: usize = 64;
        let secrets = |present, others: &[u8]| HandleSecrets {
            present: [present; 16],
            others: others.iter().map(|&other| [other; 16]).collect(),
        };
        let steps = [
            secrets(7, &[]),
            secrets(7, &[8]),
            secrets(8, &[7]),
            secrets(8, &[]),
        ];
        let keys = steps.each_ref().map(HandleKey::of);
        let object = Handle::new(&[3; 16]).unwrap();
        let mut state = seed;
        let mut any = |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut reached = [0; GATEWAYS];
        let mut handles = vec![keys[0].seal(1, object)];
        while reached != [3; GATEWAYS] {
            let gateway = any(GATEWAYS);
            let next = (reached[gateway] + 1).min(3);
            let lowest = reached.iter().copied().min().unwrap_or(0);
            if lowest >= reached[gateway] || !waits[next - 1] {
                if next == 3 && reached[gateway] < 3 && lowest == 2 {
                    // No client uses them any more: the counters have not grown for long.
                    handles.retain(|handle| *handle == keys[3].seal(1, object));
                }
                reached[gateway] = next;
            }
            handles.push(keys[reached[any(GATEWAYS)]].seal(1, object));
            let handle = handles[any(handles.len())];
            let elsewhere = &keys[reached[any(GATEWAYS)]];
            if elsewhere.open(handle.as_bytes()) != Ok((1, object)) {
                return false;
            }
        }
        true
    }

    #[test]
    fn a_secret_is_replaced_without_a_stale_handle() {
        for seed in 0..20 {
            assert!(roll_over(seed, [true; 3]), "seed {seed}");
        }
        // Not if a gateway uses it, or forgets the old one, too early.
        for at in [1, 2] {
            let mut waits = [true; 3];
            waits[at] = false;
            assert!((0..20).any(|seed| !roll_over(seed, waits)), "step {at}");
        }
    }

    /// Handles that clients hold must stay good from one release to the next.
    #[test]
    fn layout_is_stable() {
        let object = Handle::new(&[2, 3, 4]).unwrap();
        let handle = HandleKey::new(&[0; 16]).seal(1, object);
        let expected = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        assert_eq!(handle.as_bytes()[..15], expected);
        assert_eq!(handle.as_bytes().len(), 23);
    }
}
