//! Keys that the server invalidates with its replies (RFC 8797 section 3 for version one; version
//! two draft sections 3 and 5.2.3).
//!
//! Every key that a call offers is made for this call and dies with it, so each of them may be
//! nominated; there are no lasting registrations in chunk lists.
//!
//! The reply to a call that was given up may still name its key, though the key has died with the
//! caller's interest. The provider then ends the connection, as for any key that is not there; but
//! had the same number been given out again, the memory of another call would be gone from under
//! it. So such numbers are kept back until the reply has come or the connection has ended.

use millrace_reactor::fabric::{Key, Provider};
use millrace_wire::rpcrdma::Version;

use super::connection::Connection;
use super::slot::CallSlot;

impl CallSlot {
    /// The key that the reply may invalidate, zero for none. Zero is no key that could be named.
    pub(super) fn nominate(&mut self) -> u32 {
        let keys = self.offers.iter().map(|offer| offer.key.0);
        self.nominated = keys.into_iter().find(|&key| key != 0).unwrap_or(0);
        self.nominated
    }

    fn offers_key(&self, key: Key) -> bool {
        self.offers.iter().any(|offer| offer.key == key)
    }
}

impl Connection {
    /// Nominates a key of a call about to be sent, where settings, version and provider allow it.
    pub(super) fn nominate(&mut self, provider: &dyn Provider, index: u32) -> u32 {
        let slot = &mut self.slots[index as usize];
        slot.nominated = 0;
        if self.version == Version::Two
            && self.settings.remote_invalidation
            && provider.remote_invalidation().receives
        {
            slot.nominate()
        } else {
            0
        }
    }

    /// Whether a message may have invalidated this key: in version two the one nominated in the
    /// call that it answers; in version one any key of that call, if private data said so.
    pub(super) fn may_invalidate(&self, answered: Option<u32>, key: Key) -> bool {
        let Some(slot) = answered.and_then(|index| self.slots.get(index as usize)) else {
            return false;
        };
        match self.version {
            Version::Two => slot.nominated == key.0 && key.0 != 0,
            Version::One => {
                let told = self.settings.private_data;
                told.is_some_and(|told| told.remote_invalidation) && slot.offers_key(key)
            }
        }
    }

    /// A call was given up: its nominated key must not be given out again for now.
    pub(super) fn forsake(&mut self, index: u32) {
        let key = self.slots[index as usize].nominated;
        if key != 0 {
            self.forsaken.push(key);
        }
    }

    /// The reply of a call that was given up has come.
    pub(super) fn forget_key(&mut self, key: u32) {
        self.forsaken.retain(|&forsaken| forsaken != key);
    }

    /// Whether a call is about to offer a key that a late reply may still invalidate.
    pub(super) fn clashes(&self, index: u32) -> bool {
        let mut offers = self.slots[index as usize].offers.iter();
        !self.forsaken.is_empty() && offers.any(|offer| self.forsaken.contains(&offer.key.0))
    }

    /// A key was invalidated that the server was not allowed to invalidate: another call may have
    /// lost its memory, so the connection ends.
    pub(super) fn on_surprise(&mut self, provider: &mut dyn Provider) {
        self.counters.surprises += 1;
        provider.abort(self.queue_pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requester::slot::{Offered, Purpose};

    fn nominated(keys: &[u32]) -> u32 {
        let offers = keys.iter().map(|&key| Offered {
            key: Key(key),
            length: 4,
            purpose: Purpose::Read,
            asked: false,
            revoked: false,
        });
        let mut slot = CallSlot {
            offers: offers.collect(),
            ..CallSlot::default()
        };
        slot.nominate()
    }

    #[test]
    fn rr2_inv_02_a_key_of_number_zero_is_never_nominated() {
        assert_eq!(nominated(&[]), 0);
        assert_eq!(nominated(&[0]), 0, "none, as zero names none");
        assert_eq!(nominated(&[0, 7]), 7);
        assert_eq!(nominated(&[9, 0]), 9);
    }
}
