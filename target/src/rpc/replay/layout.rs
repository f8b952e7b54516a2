//! The bytes of the journal: a header, and slots of fixed size.
//!
//! A slot has two halves with a checksum each. The first is written before a call is executed, the
//! second before it is answered; both carry the slot's sequence number, so that a first half never
//! matches the second half of an earlier call in the slot. A half that is not complete counts as
//! not written: a torn first half belongs to a call that was not executed, and a torn second half
//! leaves a call that is only known to have begun. Checksums are 64 bits of SipHash under the
//! file's own key. They cover the index of the slot, so that data of another slot does not pass.
//!
//! All words are little-endian: the file never leaves the host.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};

use siphasher::sip::{SipHasher13, SipHasher24};

use super::CallKey;

/// The first bytes of the file.
const MAGIC: [u8; 8] = *b"MILLRPLY";

/// The layout below, and what checksums of calls are made of. Files of any other are not read.
const VERSION: u32 = 2;

/// Bytes of the header, and what regions are aligned to.
pub(super) const PAGE: usize = 4096;

/// Bytes of a slot.
pub(super) const SLOT: usize = 512;

/// Numbers of slots are multiples of this, so that regions are whole pages.
pub(super) const SLOTS_STEP: usize = PAGE / SLOT;

/// Bytes of a slot's first half.
const FIRST: usize = 128;

/// Bytes of the second half in front of the reply.
const FRONT: usize = 24;

/// Bytes of a checksum, at the end of each half.
const SUM: usize = 8;

/// Longest reply that a slot holds. Longer ones are kept in memory only; no reply of a procedure
/// that is recorded is longer today (CREATE's has 304 bytes).
pub const REPLY_MAX: usize = SLOT - FIRST - FRONT - SUM;

/// Most slots and regions of a file that is read.
const SLOTS_MAX: u32 = 1 << 20;
const REGIONS_MAX: u32 = 4096;
const LENGTH_MAX: u64 = 1 << 30;

/// States of a second half.
const DONE: u32 = 1;
const VOID: u32 = 2;

/// Set in the flags of a call if another call has used its names meanwhile.
const CONTESTED: u32 = 1;

/// Why a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is no journal, or its header is damaged.
    #[error("it is not a journal of replies, or its header is damaged")]
    Foreign,
    /// It was written by another version.
    #[error("its layout has version {0}, and this server reads version {VERSION}")]
    Version(u32),
    /// Its length is not what its header says.
    #[error("it has {found} bytes, and {expected} according to its header")]
    Length {
        /// Bytes found.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// The host was rebooted since: the effects of executed calls may have been lost.
    #[error("the host was rebooted since it was written")]
    OtherBoot,
}

/// How a file is divided: header, slots carried over from the file before, one region of slots for
/// each reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub carried: u32,
    pub regions: u32,
    pub slots: u32,
}

impl Shape {
    /// Bytes of the file.
    pub fn length(self) -> u64 {
        let slots = u64::from(self.carried) + u64::from(self.regions) * u64::from(self.slots);
        PAGE as u64 + slots * SLOT as u64
    }

    /// The number of a region's first slot.
    pub fn first(self, region: u32) -> u64 {
        u64::from(self.carried) + u64::from(region) * u64::from(self.slots)
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub shape: Shape,
    /// The identifier of the host's boot.
    pub boot: [u8; 16],
    /// Of all checksums, in the slots and in the keys of calls.
    pub key: [u8; 16],
}

/// A call that is about to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub key: CallKey,
    /// When it was first executed: nanoseconds of the host's life.
    pub began: u64,
    /// The same by the wall clock: nanoseconds since 1970.
    pub wall: u64,
    /// When the call ended that had this slot before.
    pub evicted: u64,
    /// Hashes of the names that it changes; zero for none.
    pub targets: [u64; 2],
    /// Whether other calls have used these names since it began.
    pub contested: bool,
}

/// The content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JournalSlot {
    /// No call, or one that was not executed.
    Empty,
    Begun(Begin),
    Done {
        begin: Begin,
        /// Nanoseconds of the host's life.
        ended: u64,
        reply: Box<[u8]>,
    },
}

impl Header {
    pub fn encode(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        let words = [
            VERSION,
            SLOT as u32,
            self.shape.carried,
            self.shape.regions,
            self.shape.slots,
        ];
        page[..8].copy_from_slice(&MAGIC);
        for (place, word) in page[8..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        page[32..48].copy_from_slice(&self.boot);
        page[48..64].copy_from_slice(&self.key);
        let sum = header_sum(&page[..64]);
        page[64..72].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// Reads the header of a file of so many bytes.
    pub fn decode(page: &[u8], length: u64) -> Result<Self, Fault> {
        if page.get(..8) != Some(&MAGIC) || page.len() < PAGE {
            return Err(Fault::Foreign);
        }
        let version = word(page, 8);
        if version != VERSION {
            return Err(Fault::Version(version));
        }
        let shape = Shape {
            carried: word(page, 16),
            regions: word(page, 20),
            slots: word(page, 24),
        };
        let sound = header_sum(&page[..64]) == long(page, 64)
            && word(page, 12) == SLOT as u32
            && shape.carried <= SLOTS_MAX
            && shape.slots <= SLOTS_MAX
            && shape.regions <= REGIONS_MAX
            && shape.length() <= LENGTH_MAX;
        if !sound {
            return Err(Fault::Foreign);
        }
        if length != shape.length() {
            return Err(Fault::Length {
                found: length,
                expected: shape.length(),
            });
        }
        Ok(Self {
            shape,
            boot: array(page, 32),
            key: array(page, 48),
        })
    }
}

fn header_sum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(b"millrace journal");
    hasher.write(bytes);
    hasher.finish()
}

/// Makes and checks the slots of one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealer(pub SipHasher13);

impl Sealer {
    pub fn new(key: &[u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(key))
    }

    fn sum(&self, place: u64, bytes: &[u8]) -> u64 {
        let mut hasher = self.0;
        hasher.write_u64(place);
        hasher.write(bytes);
        hasher.finish()
    }

    /// Writes the first half of a slot. `sequence` is not zero and grows with each call.
    pub fn begin(&self, slot: &mut [u8], place: u64, sequence: u64, begin: &Begin) {
        let key = &begin.key;
        let mut half = [0; FIRST];
        let (address, family) = match key.address {
            IpAddr::V4(address) => (address.to_ipv6_mapped(), 4),
            IpAddr::V6(address) => (address, 6),
        };
        let longs = [
            sequence,
            begin.began,
            begin.wall,
            begin.evicted,
            begin.targets[0],
            begin.targets[1],
        ];
        for (place, value) in half.chunks_exact_mut(8).zip(longs) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        half[48..64].copy_from_slice(&address.octets());
        let (program, version, procedure) = key.program;
        let flags = if begin.contested { CONTESTED } else { 0 };
        let words = [family, key.xid, program, version, procedure, flags];
        for (place, value) in half[64..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        half[88..96].copy_from_slice(&(key.length as u64).to_le_bytes());
        half[96..104].copy_from_slice(&key.checksum.to_le_bytes());
        let sum = self.sum(place, &half[..FIRST - SUM]);
        half[FIRST - SUM..].copy_from_slice(&sum.to_le_bytes());
        slot[..FIRST].copy_from_slice(&half);
    }

    /// Writes the second half of a slot: the call was executed and answered so. Says whether the
    /// reply is short enough.
    pub fn done(
        &self,
        slot: &mut [u8],
        place: u64,
        sequence: u64,
        ended: u64,
        reply: &[u8],
    ) -> bool {
        if reply.len() > REPLY_MAX {
            return false;
        }
        self.second(slot, place, (sequence, ended, DONE), reply);
        true
    }

    /// Writes the second half of a slot: the call was not executed, and is not going to be.
    pub fn void(&self, slot: &mut [u8], place: u64, sequence: u64) {
        self.second(slot, place, (sequence, 0, VOID), &[]);
    }

    fn second(&self, slot: &mut [u8], place: u64, front: (u64, u64, u32), reply: &[u8]) {
        let half = &mut slot[FIRST..SLOT];
        half[..8].copy_from_slice(&front.0.to_le_bytes());
        half[8..16].copy_from_slice(&front.1.to_le_bytes());
        half[16..20].copy_from_slice(&front.2.to_le_bytes());
        half[20..24].copy_from_slice(&(reply.len() as u32).to_le_bytes());
        half[FRONT..FRONT + reply.len()].copy_from_slice(reply);
        // The place is turned over, so that no half passes for the other.
        let sum = self.sum(!place, &half[..FRONT + reply.len()]);
        let end = half.len() - SUM;
        half[end..].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads a slot, and the sequence number that it was written under.
    pub fn read(&self, slot: &[u8], place: u64) -> (JournalSlot, u64) {
        let (first, second) = slot.split_at(FIRST);
        let sequence = long(first, 0);
        let family = word(first, 64);
        let whole = self.sum(place, &first[..FIRST - SUM]) == long(first, FIRST - SUM);
        let length = usize::try_from(long(first, 88));
        let (true, 1.., 4 | 6, Ok(length)) = (whole, sequence, family, length) else {
            return (JournalSlot::Empty, 0);
        };
        let address = Ipv6Addr::from(array(first, 48));
        let address = match (family, address.to_ipv4_mapped()) {
            (4, Some(address)) => IpAddr::V4(address),
            _ => IpAddr::V6(address),
        };
        let begin = Begin {
            key: CallKey {
                address,
                xid: word(first, 68),
                program: (word(first, 72), word(first, 76), word(first, 80)),
                length,
                checksum: long(first, 96),
            },
            began: long(first, 8),
            wall: long(first, 16),
            evicted: long(first, 24),
            targets: [long(first, 32), long(first, 40)],
            contested: word(first, 84) & CONTESTED != 0,
        };
        let reply = word(second, 20) as usize;
        let whole = long(second, 0) == sequence
            && reply <= REPLY_MAX
            && self.sum(!place, &second[..FRONT + reply]) == long(second, second.len() - SUM);
        let slot = match (whole, word(second, 16)) {
            (true, VOID) => JournalSlot::Empty,
            (true, DONE) => JournalSlot::Done {
                begin,
                ended: long(second, 8),
                reply: second[FRONT..FRONT + reply].into(),
            },
            _ => JournalSlot::Begun(begin),
        };
        (slot, sequence)
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}
