//! The connections of a provider, by index.

use super::completion::RequestName;
use super::connection::VerbsConnection;
use crate::fabric::QueuePairId;

struct VerbsSlot {
    generation: u32,
    connection: Option<Box<VerbsConnection>>,
}

#[derive(Default)]
pub(super) struct VerbsSlots {
    slots: Vec<VerbsSlot>,
    free: Vec<u32>,
}

impl VerbsSlots {
    /// Fills a free slot with the result of `make` for its identifier. `None` if all identifiers
    /// are in use.
    pub(super) fn insert_with<E>(
        &mut self,
        make: impl FnOnce(QueuePairId) -> Result<Box<VerbsConnection>, E>,
    ) -> Option<Result<QueuePairId, E>> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < RequestName::SLOTS_MAX => {
                self.slots.push(VerbsSlot {
                    generation: 0,
                    connection: None,
                });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        let id = QueuePairId {
            index,
            generation: slot.generation,
        };
        Some(match make(id) {
            Ok(connection) => {
                slot.connection = Some(connection);
                Ok(id)
            }
            Err(error) => {
                self.free.push(index);
                Err(error)
            }
        })
    }

    /// The connection with this identifier.
    pub(super) fn get(&self, id: QueuePairId) -> Option<&VerbsConnection> {
        let slot = self.slots.get(id.index as usize)?;
        let connection = slot.connection.as_deref()?;
        (slot.generation == id.generation).then_some(connection)
    }

    /// The connection with this identifier.
    pub(super) fn get_mut(&mut self, id: QueuePairId) -> Option<&mut VerbsConnection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        let connection = slot.connection.as_deref_mut()?;
        (slot.generation == id.generation).then_some(connection)
    }

    /// The connection of a request's name.
    pub(super) fn named(&mut self, name: RequestName) -> Option<&mut VerbsConnection> {
        let slot = self.slots.get_mut(name.slot as usize)?;
        let is_same = slot.generation & RequestName::GENERATION_MASK == name.generation;
        slot.connection.as_deref_mut().filter(|_| is_same)
    }

    /// The connection in a slot.
    pub(super) fn at(&mut self, index: u32) -> Option<&mut VerbsConnection> {
        self.slots
            .get_mut(index as usize)?
            .connection
            .as_deref_mut()
    }

    /// Ends the identifier of a connection.
    pub(super) fn remove(&mut self, index: u32) -> Option<Box<VerbsConnection>> {
        let slot = self.slots.get_mut(index as usize)?;
        let connection = slot.connection.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(connection)
    }

    /// The number of slots, including free ones.
    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }
}
