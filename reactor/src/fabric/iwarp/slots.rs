//! The connections of a provider, found by index.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::connection::Connection;
use crate::fabric::QueuePairId;

/// A socket whose connection is over for the application, kept until the peer has read the last
/// words: closing at once could reset the connection and lose them.
pub(super) struct Lingering {
    pub(super) socket: OwnedFd,
    /// Last words not yet sent.
    pub(super) output: Vec<u8>,
    pub(super) deadline: Instant,
}

pub(super) enum State {
    Free,
    Live(Box<Connection>),
    Lingering(Lingering),
}

struct Slot {
    generation: u32,
    state: State,
}

#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    /// Fills a free slot with what `make` gives for its name.
    pub(super) fn insert_with<E>(
        &mut self,
        make: impl FnOnce(QueuePairId) -> Result<Box<Connection>, E>,
    ) -> Result<QueuePairId, E> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                state: State::Free,
            });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        let id = QueuePairId {
            index,
            generation: slot.generation,
        };
        match make(id) {
            Ok(connection) => {
                slot.state = State::Live(connection);
                Ok(id)
            }
            Err(error) => {
                self.free.push(index);
                Err(error)
            }
        }
    }

    /// The connection of this name, if it lives.
    pub(super) fn get(&self, id: QueuePairId) -> Option<&Connection> {
        match self.slots.get(id.index as usize) {
            Some(Slot {
                generation,
                state: State::Live(connection),
            }) if *generation == id.generation => Some(connection),
            _ => None,
        }
    }

    /// The connection of this name, if it lives.
    pub(super) fn get_mut(&mut self, id: QueuePairId) -> Option<&mut Connection> {
        match self.slots.get_mut(id.index as usize) {
            Some(Slot {
                generation,
                state: State::Live(connection),
            }) if *generation == id.generation => Some(connection),
            _ => None,
        }
    }

    /// Whatever is in a slot.
    pub(super) fn state(&mut self, index: u32) -> &mut State {
        &mut self.slots[index as usize].state
    }

    /// Ends the name of a live connection. The slot is free, or its socket lingers.
    pub(super) fn retire(
        &mut self,
        index: u32,
        lingering: Option<(Vec<u8>, Instant)>,
    ) -> Option<Box<Connection>> {
        let slot = &mut self.slots[index as usize];
        let State::Live(_) = slot.state else {
            return None;
        };
        slot.generation = slot.generation.wrapping_add(1);
        let State::Live(connection) = std::mem::replace(&mut slot.state, State::Free) else {
            return None;
        };
        let Some((output, deadline)) = lingering else {
            self.free.push(index);
            return Some(connection);
        };
        let Connection { socket, .. } = *connection;
        slot.state = State::Lingering(Lingering {
            socket,
            output,
            deadline,
        });
        None
    }

    /// Closes a lingering socket.
    pub(super) fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let State::Lingering(_) = slot.state {
            slot.state = State::Free;
            self.free.push(index);
        }
    }

    /// Number of slots, free ones too.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }
}
