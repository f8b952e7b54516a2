//! Stateids and the table of the states that they designate (RFC 8881 section 8.2).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::StateError;
use super::clients::ClientId;
use super::delegations::DelegationRecord;
use super::files::FileKey;
use super::published::PublishedStates;
use super::share::ShareMode;
use super::table::SegmentedVec;

/// A stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stateid {
    /// Grows with each change of the state.
    pub sequence: u32,
    /// Which state.
    pub other: [u8; 12],
}

impl Stateid {
    /// Access without open.
    pub const ANONYMOUS: Self = Self {
        sequence: 0,
        other: [0; 12],
    };
    /// READ that passes share reservations.
    pub const READ_BYPASS: Self = Self {
        sequence: u32::MAX,
        other: [0xff; 12],
    };
    /// What CLOSE returns, and no operation accepts.
    pub const INVALID: Self = Self {
        sequence: u32::MAX,
        other: [0; 12],
    };

    /// The index of the state in the table of its home.
    pub(super) fn index(&self) -> u32 {
        StateName::decode(self.other).index
    }

    /// Whether `other` is one of the two values that designate no state of a client.
    #[must_use]
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

/// Which state a stateid designates, read from `other`: {start of the process 16, kind 8, home 8,
/// index 32, generation 32} bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StateName {
    start: u16,
    kind: u8,
    /// The reactor that owns the state. There is one home for the present.
    home: u8,
    index: u32,
    generation: u32,
}

const OPEN_KIND: u8 = 1;
const LOCK_KIND: u8 = 2;
const DELEGATION_KIND: u8 = 3;

impl StateName {
    fn encode(self) -> [u8; 12] {
        let mut other = [0; 12];
        other[..2].copy_from_slice(&self.start.to_be_bytes());
        other[2] = self.kind;
        other[3] = self.home;
        other[4..8].copy_from_slice(&self.index.to_be_bytes());
        other[8..].copy_from_slice(&self.generation.to_be_bytes());
        other
    }

    fn decode([a, b, kind, home, rest @ ..]: [u8; 12]) -> Self {
        let rest = u64::from_be_bytes(rest);
        #[allow(clippy::cast_possible_truncation)] // The low half.
        let generation = rest as u32;
        Self {
            start: u16::from_be_bytes([a, b]),
            kind,
            home,
            #[allow(clippy::cast_possible_truncation)] // The high half.
            index: (rest >> 32) as u32,
            generation,
        }
    }
}

/// Why state was taken away from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// Its lease had expired, and the state blocked another client.
    LeaseExpired,
    /// An administrator wanted it.
    Administrative,
    /// It was a delegation, and not returned in time when it was recalled.
    NotReturned,
}

/// State that a stateid designates.
#[derive(Debug)]
pub(super) struct StateRecord {
    pub client: ClientId,
    pub client_index: u32,
    pub file: u32,
    /// When it was granted first.
    pub since: Duration,
    pub sequence: u32,
    pub detail: StateDetail,
}

/// State by its kind.
#[derive(Debug)]
pub(super) enum StateDetail {
    Open(OpenRecord),
    Lock(LockRecord),
    Delegation(DelegationRecord),
    Revoked(RevokedRecord),
}

/// An open of a file by one open owner.
#[derive(Debug)]
pub(super) struct OpenRecord {
    pub owner: u32,
    pub access: ShareMode,
    pub deny: ShareMode,
    /// A bit for each pair of access and deny that was opened and not downgraded since.
    pub joined: u16,
    /// What it was before the latest OPEN was joined with it; `None` if it began with that one.
    pub before: Option<EarlierOpen>,
    /// The lock states that began with this open.
    pub locks: BTreeSet<u32>,
}

/// An open as it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlierOpen {
    pub sequence: u32,
    pub access: ShareMode,
    pub deny: ShareMode,
    pub joined: u16,
}

/// Byte-range locks of one lock owner under one open.
#[derive(Debug)]
pub(super) struct LockRecord {
    pub owner: u32,
    pub open: u32,
}

/// State that was revoked, until its client frees it.
#[derive(Debug)]
pub(super) struct RevokedRecord {
    pub reason: Revocation,
    /// The open that it belonged to, if it was a lock state.
    pub open: Option<u32>,
    /// The lock states that were revoked with it, if it was an open.
    pub locks: BTreeSet<u32>,
}

impl StateRecord {
    /// Whether the state is in force.
    ///
    /// # Errors
    /// How it was revoked.
    pub fn check_in_force(&self) -> Result<(), StateError> {
        match &self.detail {
            StateDetail::Open(_) | StateDetail::Lock(_) | StateDetail::Delegation(_) => Ok(()),
            StateDetail::Revoked(revoked) => Err(match revoked.reason {
                Revocation::LeaseExpired => StateError::Expired,
                Revocation::Administrative => StateError::AdminRevoked,
                Revocation::NotReturned => StateError::DelegRevoked,
            }),
        }
    }

    /// The delegation that it is.
    pub fn delegation(&self) -> Option<&DelegationRecord> {
        match &self.detail {
            StateDetail::Delegation(delegation) => Some(delegation),
            _ => None,
        }
    }

    /// The delegation that it is.
    pub fn delegation_mut(&mut self) -> Option<&mut DelegationRecord> {
        match &mut self.detail {
            StateDetail::Delegation(delegation) => Some(delegation),
            _ => None,
        }
    }

    /// Compares the sequence number of a stateid; 0 stands for the present one.
    ///
    /// # Errors
    /// [`StateError::OldStateid`] or [`StateError::BadStateid`].
    pub fn check_sequence(&self, given: u32) -> Result<(), StateError> {
        match given.wrapping_sub(self.sequence) {
            _ if given == 0 => Ok(()),
            0 => Ok(()),
            ahead if ahead <= u32::MAX / 2 => Err(StateError::BadStateid),
            _ => Err(StateError::OldStateid),
        }
    }

    /// Counts a change of the state.
    pub fn advance(&mut self) {
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
    }
}

/// An index of the table. Each use of the index is another generation.
#[derive(Debug, Default)]
struct TableCell {
    generation: u32,
    kind: u8,
    record: Option<StateRecord>,
}

/// The state of all clients of a home.
#[derive(Debug)]
pub(super) struct StateTable {
    start: u16,
    cells: SegmentedVec<TableCell>,
    free: Vec<u32>,
    len: usize,
    published: Arc<PublishedStates>,
}

impl StateTable {
    /// An empty table for so many states. Stateids of different starts of the server, which these
    /// random bytes are of, differ.
    pub fn new(start: [u8; 16], states: usize) -> Self {
        let [a, b, ..] = start;
        Self {
            start: u16::from_be_bytes([a, b]),
            cells: SegmentedVec::default(),
            free: Vec::new(),
            len: 0,
            published: Arc::new(PublishedStates::new(start, states)),
        }
    }

    /// What all reactors may know of the states.
    pub fn published(&self) -> Arc<PublishedStates> {
        Arc::clone(&self.published)
    }

    /// Publishes the access to its file that a state gives, until the state changes.
    pub fn publish(&self, index: u32, file: &FileKey, access: ShareMode) {
        if let Some(record) = self.get(index) {
            let stateid = self.stateid(index);
            self.published
                .publish(record.client, file, &stateid, access);
        }
    }

    /// Withdraws what is published of a state.
    pub fn withdraw(&self, index: u32) {
        self.published.withdraw(index);
    }

    /// Pieces of state, revoked ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds state and returns its index.
    pub fn insert(&mut self, record: StateRecord) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.cells.push(TableCell::default());
            u32::try_from(self.cells.len() - 1).expect("tables are bounded")
        });
        let cell = self.cells.get_mut(index as usize);
        let cell = cell.expect("it is there or was added");
        cell.generation += 1;
        cell.kind = match record.detail {
            StateDetail::Lock(_) => LOCK_KIND,
            StateDetail::Delegation(_) => DELEGATION_KIND,
            StateDetail::Open(_) | StateDetail::Revoked(_) => OPEN_KIND,
        };
        cell.record = Some(record);
        self.len += 1;
        index
    }

    /// Removes state. Its index is used again while there are generations left, so that `other`
    /// never designates anything else.
    pub fn remove(&mut self, index: u32) -> Option<StateRecord> {
        self.withdraw(index);
        let cell = self.cells.get_mut(index as usize)?;
        let record = cell.record.take()?;
        if cell.generation < u32::MAX {
            self.free.push(index);
        }
        self.len -= 1;
        Some(record)
    }

    /// State from an index on, with unused indexes between.
    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, Option<&StateRecord>)> {
        let cells = (first..).zip(self.cells.iter_from(first as usize));
        cells.map(|(index, cell)| (index, cell.record.as_ref()))
    }

    /// The index of the state that the name of a stateid designates, whichever client has it.
    pub fn find_named(&self, other: [u8; 12]) -> Option<u32> {
        let index = StateName::decode(other).index;
        let client = self.get(index)?.client;
        self.find(client, &Stateid { sequence: 0, other }).ok()
    }

    /// State by its index.
    pub fn get(&self, index: u32) -> Option<&StateRecord> {
        self.cells.get(index as usize)?.record.as_ref()
    }

    /// State by its index, to change it. What is published of it is withdrawn.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut StateRecord> {
        self.withdraw(index);
        self.cells.get_mut(index as usize)?.record.as_mut()
    }

    /// An open by its index.
    pub fn open_mut(&mut self, index: u32) -> Option<&mut OpenRecord> {
        match &mut self.get_mut(index)?.detail {
            StateDetail::Open(open) => Some(open),
            _ => None,
        }
    }

    /// An open by its index.
    pub fn open(&self, index: u32) -> Option<&OpenRecord> {
        match &self.get(index)?.detail {
            StateDetail::Open(open) => Some(open),
            _ => None,
        }
    }

    /// A lock state by its index.
    pub fn lock(&self, index: u32) -> Option<&LockRecord> {
        match &self.get(index)?.detail {
            StateDetail::Lock(lock) => Some(lock),
            _ => None,
        }
    }

    /// The stateid of state now.
    pub fn stateid(&self, index: u32) -> Stateid {
        let cell = self.cells.get(index as usize);
        let named = cell.and_then(|cell| Some((cell, cell.record.as_ref()?)));
        named.map_or(Stateid::INVALID, |(cell, record)| Stateid {
            sequence: record.sequence,
            other: StateName {
                start: self.start,
                kind: cell.kind,
                home: 0,
                index,
                generation: cell.generation,
            }
            .encode(),
        })
    }

    /// The state of a client that a stateid designates, in force or revoked. The sequence number is
    /// not compared.
    ///
    /// # Errors
    /// [`StateError::BadStateid`] if there is none, or it is special, or of another client.
    pub fn find(&self, client: ClientId, stateid: &Stateid) -> Result<u32, StateError> {
        let name = StateName::decode(stateid.other);
        let cell = self.cells.get(name.index as usize);
        let cell = cell.ok_or(StateError::BadStateid)?;
        let is_same = (name.start, name.kind, name.home, name.generation)
            == (self.start, cell.kind, 0, cell.generation);
        let mut record = cell.record.iter();
        if is_same && record.any(|record| record.client == client) {
            Ok(name.index)
        } else {
            Err(StateError::BadStateid)
        }
    }
}

#[cfg(test)]
impl StateTable {
    /// Moves an index to a later generation.
    pub fn set_generation(&mut self, index: u32, generation: u32) {
        self.cells.get_mut(index as usize).unwrap().generation = generation;
    }
}
