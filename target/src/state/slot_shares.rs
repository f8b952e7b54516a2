//! How many slots sessions have: clients share the memory for cached replies, and what one client
//! has is divided among its sessions. If memory is short, all have fewer (RFC 8881 sections
//! 2.10.6.1 and 20.8).

use std::time::Duration;

use super::SessionId;
use super::callbacks::{CALLBACK_TIME, CallbackSubject};
use super::clients::{ClientId, LeasedClient};
use super::home::StateHome;

/// What a slot needs beside the reply that it keeps.
const SLOT_BYTES: usize = 256;

/// What the slots of all sessions depend on.
#[derive(Debug)]
pub(super) struct SlotShares {
    /// Clients that have sessions.
    pub clients: usize,
    /// Most slots of a session, as memory is short.
    most: u32,
    /// Whether nothing has changed since the slots were divided.
    is_divided: bool,
}

impl Default for SlotShares {
    fn default() -> Self {
        Self {
            clients: 0,
            most: u32::MAX,
            is_divided: false,
        }
    }
}

impl SlotShares {
    /// Whether memory is short.
    pub fn is_short(&self) -> bool {
        self.most < u32::MAX
    }

    /// Notes that a client has another number of sessions.
    pub fn count(&mut self, before: usize, after: usize) {
        match (before, after) {
            (0, 1..) => self.clients += 1,
            (1.., 0) => self.clients -= 1,
            _ => {}
        }
        self.is_divided = false;
    }
}

impl StateHome {
    /// The slots of each of a client's sessions that keep replies of this size.
    pub(super) fn slots_for(&self, clients: usize, sessions: usize, cached_size: u32) -> u32 {
        let of_client = self.config.reply_cache / clients.max(1);
        let slots = of_client / sessions.max(1) / (cached_size as usize + SLOT_BYTES);
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        slots.min(self.slot_shares.most).max(1)
    }

    /// Limits the slots of each session, as memory is short.
    pub fn limit_slots(&mut self, most: u32) {
        if self.slot_shares.most != most {
            self.slot_shares.most = most;
            self.slot_shares.is_divided = false;
        }
    }

    /// Divides the slots anew, if anything has changed that they depend on. Clients are told with
    /// their next requests, and at once if they lose slots and can be called. To be called about
    /// once a second.
    pub fn divide_slots(&mut self, now: Duration) {
        if std::mem::replace(&mut self.slot_shares.is_divided, true) {
            return;
        }
        let clients = self.slot_shares.clients;
        let mut losing = Vec::new();
        for (_, client) in self.clients.iter() {
            self.divide_among(client, clients, &mut losing);
        }
        for (client, session, highest_slot) in losing {
            let subject = CallbackSubject::RecallSlots {
                session,
                highest_slot,
            };
            self.call_client(client, subject, (now, now + CALLBACK_TIME));
        }
    }

    fn divide_among(
        &self,
        client: &LeasedClient,
        clients: usize,
        losing: &mut Vec<(ClientId, SessionId, u32)>,
    ) {
        for known in &client.sessions {
            let Ok(session) = self.sessions.find(known.id) else {
                continue;
            };
            let cached_size = session.fore().cached_size;
            let slots = self.slots_for(clients, client.sessions.len(), cached_size);
            let highest = slots.min(session.slots_most()) - 1;
            let before = session.highest_slots().target;
            let is_changed = session.set_target_slot(highest);
            if is_changed && highest < before && known.back.path().is_some() {
                losing.push((client.id, known.id, highest));
            }
        }
    }
}
