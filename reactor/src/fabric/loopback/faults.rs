//! Fault injection.

use std::ops::Range;
use std::time::{Duration, Instant};

use rand_chacha::rand_core::RngCore;

use super::end::Frame;
use super::log::Record;
use super::network::NetworkState;
use crate::fabric::Ended;

/// The chance of a certain event.
pub const CERTAIN: u32 = 1_000_000;

/// Faults of a [`super::Network`]. All are off by default, and all events follow from the network's
/// seed.
///
/// Chances are in a million, and are drawn at each opportunity. With any setting, the guarantees of
/// the [`super::super::Provider`] trait hold; faults only use the freedom that it leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The longest delay of any frame, in virtual time; each frame has its own. Zero disables
    /// delays.
    pub delay: Duration,
    /// That a frame is delayed fifty times as much, and with it all that must follow: an end may
    /// not learn for long that its connection has ended.
    pub stalls: u32,
    /// Whether unordered events are reordered: the bytes of Writes arrive in pieces, in any order,
    /// before the next Send; Reads are served after later Sends and Writes have arrived, also in
    /// pieces; completions and arrivals of one queue pair, and the events of different ones, are
    /// reported in any order.
    pub reorder: bool,
    /// That a Send or Write completes when it is sent, as TCP permits, although it may still be
    /// lost, or may arrive after its sender has ended.
    pub early_completions: u32,
    /// That the connection is reset for a frame. Each end learns of it separately, and frames in
    /// flight to an end that has learned of it are lost.
    pub resets: u32,
    /// That a connection request is refused.
    pub refused_connections: u32,
    /// That a Read is refused, as if its key were revoked, which ends the connection.
    pub refused_reads: u32,
    /// That a Send finds no receive although there is one, which ends the connection.
    pub missing_receives: u32,
    /// That an entry of the send queue, or an exposure, becomes free only some time after its
    /// completion or revocation.
    pub late_slots: u32,
    /// That a revocation takes effect later.
    pub late_revocations: u32,
    /// That a connection reports no more completions until it ends. Drawn at each completion.
    pub withheld_completions: u32,
}

impl NetworkState {
    /// Whether an event of this chance occurs now.
    pub fn happens(&mut self, chance: u32) -> bool {
        chance > 0 && self.chaos.next_u32() % CERTAIN < chance
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.chaos.next_u64() % bound.max(1) as u64) as usize
    }

    /// A time between now and the longest delay.
    pub fn later(&mut self) -> Instant {
        let longest = self.faults.delay.as_nanos() as u64;
        let delay = match longest {
            0 => 0,
            longest => {
                let stalled = self.happens(self.faults.stalls);
                self.chaos.next_u64() % (longest + 1) * if stalled { 50 } else { 1 }
            }
        };
        self.due() + Duration::from_nanos(delay)
    }

    /// Resets the connection of an end.
    pub fn cut(&mut self, index: usize) {
        let id = self.id(index);
        self.note(Record::Reset { queue_pair: id });
        let peer = self.ends[index].peer.and_then(|peer| self.locate(peer));
        for end in [Some(index), peer].into_iter().flatten() {
            let due = self.later();
            let reset = Ended::Network(std::io::ErrorKind::ConnectionReset);
            self.ends[end].loose.push((due, Frame::End(reset)));
        }
    }

    /// Cuts a range into pieces, in any order.
    pub fn pieces(&mut self, length: usize) -> Vec<(Instant, Range<usize>)> {
        let mut cuts = vec![0, length];
        for _ in 0..self.below(3) {
            cuts.push(self.below(length));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let ranges = cuts.windows(2).map(|cut| cut[0]..cut[1]);
        let mut pieces: Vec<_> = ranges.map(|range| (self.later(), range)).collect();
        for at in (1..pieces.len()).rev() {
            let other = self.below(at + 1);
            pieces.swap(at, other);
        }
        pieces
    }

    /// Removes one of the events that a provider may report next. Without reordering that is the
    /// oldest; else the oldest completion or the oldest other event of any queue pair.
    pub fn next_event(&mut self, provider: usize) -> Option<crate::fabric::Event> {
        use crate::fabric::Event;
        if !self.faults.reorder {
            return self.providers[provider].events.pop_front();
        }
        let mut seen: Vec<(u32, bool)> = Vec::new();
        let mut candidates: Vec<usize> = Vec::new();
        for (at, event) in self.providers[provider].events.iter().enumerate() {
            let (id, completion) = match event {
                Event::Completed { queue_pair, .. } => (queue_pair, true),
                Event::ConnectRequest { queue_pair, .. }
                | Event::Established { queue_pair, .. }
                | Event::Rejected { queue_pair, .. }
                | Event::Received { queue_pair, .. }
                | Event::Revoked { queue_pair, .. }
                | Event::Disconnected { queue_pair, .. } => (queue_pair, false),
                Event::Incoming(_) => unreachable!("never handed over"),
            };
            let last = matches!(event, Event::Disconnected { .. });
            let waits =
                |other: &(u32, bool)| other.0 == id.index && (last || other.1 == completion);
            if !seen.iter().any(waits) {
                candidates.push(at);
            }
            // No event of the queue pair, nor of the next user of its slot, precedes its end.
            let both = if last { [false, true] } else { [completion; 2] };
            seen.extend(both.map(|completion| (id.index, completion)));
        }
        let chosen = *candidates.get(self.below(candidates.len()))?;
        self.providers[provider].events.remove(chosen)
    }
}
