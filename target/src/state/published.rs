//! What the stateids of clients allow, as all reactors read it without asking the home.
//!
//! The home publishes the access of a state once it has checked it, and withdraws it before it
//! changes anything. A reactor that finds nothing asks the home, which knows why. So the table only
//! has to be right about what it allows.
//!
//! A published state has two words. The home withdraws the grant before the index gets another
//! tag, and publishes the tag before the grant. A reader takes the grant before and after the tag:
//! if it is the same and the tag is that of its stateid, the grant is for this stateid. The table
//! is generic over its atomic integer, so that the model test explores all interleavings of this
//! code.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_store::Handle;
use siphasher::sip::SipHasher13;

use super::clients::ClientId;
use super::files::FileKey;
use super::share::ShareMode;
use super::stateid::Stateid;

/// Bytes of a stateid, a client and an export, as a tag depends on them.
const HASHED_HEAD: usize = 12 + 8 + 8;

/// States in a piece of the table, which grows by pieces.
const PIECE: usize = 4096;

/// A word that its home writes and other threads read.
pub(super) trait PublishedWord: Default {
    /// Reads it. What was published before its value is visible (acquire).
    fn read(&self) -> u64;
    /// Writes it, after all that was written before (release).
    fn publish(&self, value: u64);
}

impl PublishedWord for AtomicU64 {
    fn read(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn publish(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

/// A state as it is published.
#[derive(Debug, Default)]
pub(super) struct PublishedState<W> {
    tag: W,
    /// The sequence number in the low half and the access above it; 0 for nothing.
    grant: W,
}

impl<W: PublishedWord> PublishedState<W> {
    pub fn publish(&self, tag: u64, sequence: u32, access: ShareMode) {
        self.tag.publish(tag);
        self.grant.publish(grant(sequence, access));
    }

    pub fn withdraw(&self) {
        self.grant.publish(0);
    }

    /// The access of the state with this tag and sequence number, 0 standing for any.
    pub fn access(&self, tag: u64, sequence: u32) -> ShareMode {
        let seen = self.grant.read();
        #[allow(clippy::cast_possible_truncation)] // The sequence number is the low half.
        let is_present = sequence == 0 || sequence == seen as u32;
        if is_present && self.tag.read() == tag && self.grant.read() == seen {
            u32::try_from(seen >> 32)
                .ok()
                .and_then(ShareMode::from_bits)
                .unwrap_or_default()
        } else {
            ShareMode::NONE
        }
    }
}

fn grant(sequence: u32, access: ShareMode) -> u64 {
    u64::from(access.bits()) << 32 | u64::from(sequence)
}

/// A piece of the table, once there is state in it.
type PublishedPiece = OnceLock<Box<[PublishedState<AtomicU64>]>>;

/// What stateids allow, for all reactors. Written by the home only.
#[derive(Debug)]
pub struct PublishedStates {
    key: [u8; 16],
    pieces: Box<[PublishedPiece]>,
}

impl PublishedStates {
    /// A table for so many states, of which none is published.
    pub(super) fn new(key: [u8; 16], states: usize) -> Self {
        let pieces = (0..states.div_ceil(PIECE)).map(|_| OnceLock::new());
        Self {
            key,
            pieces: pieces.collect(),
        }
    }

    /// Whether a stateid of a client allows access to a file. If not, the home has to be asked.
    #[must_use]
    pub fn allows(
        &self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
        access: ShareMode,
    ) -> bool {
        let index = stateid.index() as usize;
        let piece = self.pieces.get(index / PIECE).and_then(OnceLock::get);
        piece.is_some_and(|piece| {
            let tag = self.tag(client, file, stateid);
            let published = &piece[index % PIECE];
            published.access(tag, stateid.sequence).includes(access)
        })
    }

    /// Publishes the access of a state.
    pub(super) fn publish(
        &self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
        access: ShareMode,
    ) {
        let index = stateid.index() as usize;
        let Some(piece) = self.pieces.get(index / PIECE) else {
            return;
        };
        let piece = piece.get_or_init(|| (0..PIECE).map(|_| PublishedState::default()).collect());
        let tag = self.tag(client, file, stateid);
        piece[index % PIECE].publish(tag, stateid.sequence, access);
    }

    /// Withdraws what is published of a state.
    pub(super) fn withdraw(&self, index: u32) {
        let index = index as usize;
        if let Some(piece) = self.pieces.get(index / PIECE).and_then(OnceLock::get) {
            piece[index % PIECE].withdraw();
        }
    }

    fn tag(&self, client: ClientId, file: &FileKey, stateid: &Stateid) -> u64 {
        // In one piece, which costs half as much.
        let mut hashed = [0; HASHED_HEAD + Handle::MAX];
        hashed[..12].copy_from_slice(&stateid.other);
        hashed[12..20].copy_from_slice(&client.0.to_ne_bytes());
        hashed[20..HASHED_HEAD].copy_from_slice(&file.export.to_ne_bytes());
        // The only part whose length varies is the last one.
        let object = file.object.as_bytes();
        let end = HASHED_HEAD + object.len();
        hashed[HASHED_HEAD..end].copy_from_slice(object);
        SipHasher13::new_with_key(&self.key).hash(&hashed[..end])
    }
}
