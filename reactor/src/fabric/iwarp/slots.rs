//! The connections of a provider, by index.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::connection::IwarpConnection;
use crate::fabric::QueuePairId;

/// A socket whose connection has ended for the application, kept until the peer has read the last
/// bytes: closing at once could reset the connection and lose them.
pub(super) struct Lingering {
    pub(super) socket: OwnedFd,
    /// Bytes not yet sent.
    pub(super) output: Vec<u8>,
    pub(super) deadline: Instant,
}

pub(super) enum SlotState {
    Free,
    Live(Box<IwarpConnection>),
    Lingering(Lingering),
}

struct IwarpSlot {
    generation: u32,
    state: SlotState,
}

#[derive(Default)]
pub(super) struct IwarpSlots {
    slots: Vec<IwarpSlot>,
    free: Vec<u32>,
}

impl IwarpSlots {
    /// Fills a free slot with the result of `make` for its identifier.
    pub(super) fn insert_with<E>(
        &mut self,
        make: impl FnOnce(QueuePairId) -> Result<Box<IwarpConnection>, E>,
    ) -> Result<QueuePairId, E> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(IwarpSlot {
                generation: 0,
                state: SlotState::Free,
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
                slot.state = SlotState::Live(connection);
                Ok(id)
            }
            Err(error) => {
                self.free.push(index);
                Err(error)
            }
        }
    }

    /// The connection with this identifier, if it exists.
    pub(super) fn get(&self, id: QueuePairId) -> Option<&IwarpConnection> {
        match self.slots.get(id.index as usize) {
            Some(IwarpSlot {
                generation,
                state: SlotState::Live(connection),
            }) if *generation == id.generation => Some(connection),
            _ => None,
        }
    }

    /// The connection with this identifier, if it exists.
    pub(super) fn get_mut(&mut self, id: QueuePairId) -> Option<&mut IwarpConnection> {
        match self.slots.get_mut(id.index as usize) {
            Some(IwarpSlot {
                generation,
                state: SlotState::Live(connection),
            }) if *generation == id.generation => Some(connection),
            _ => None,
        }
    }

    /// The content of a slot.
    pub(super) fn state(&mut self, index: u32) -> &mut SlotState {
        &mut self.slots[index as usize].state
    }

    /// Ends the identifier of a live connection. The slot becomes free, or its socket lingers.
    pub(super) fn retire(
        &mut self,
        index: u32,
        lingering: Option<(Vec<u8>, Instant)>,
    ) -> Option<Box<IwarpConnection>> {
        let slot = &mut self.slots[index as usize];
        let SlotState::Live(_) = slot.state else {
            return None;
        };
        slot.generation = slot.generation.wrapping_add(1);
        let SlotState::Live(connection) = std::mem::replace(&mut slot.state, SlotState::Free)
        else {
            return None;
        };
        let Some((output, deadline)) = lingering else {
            self.free.push(index);
            return Some(connection);
        };
        let IwarpConnection { socket, .. } = *connection;
        slot.state = SlotState::Lingering(Lingering {
            socket,
            output,
            deadline,
        });
        None
    }

    /// Closes a lingering socket.
    pub(super) fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let SlotState::Lingering(_) = slot.state {
            slot.state = SlotState::Free;
            self.free.push(index);
        }
    }

    /// The number of slots, including free ones.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }
}
