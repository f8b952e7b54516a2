//! A second try for a call whose reply had no room (version two draft section 5.2.4).
//!
//! The draft lets a "responder" give up or send again; as a responder has nothing to send again,
//! the requester is meant. Only the reply chunk is the connection's own to enlarge: the room of
//! results in write chunks is the caller's, who learns of the segment and the bytes from
//! [`CallError::CannotReply`](super::CallError::CannotReply).

use millrace_mempool::Class;

use super::slot::{CallSlot, Owner, Purpose};

impl CallSlot {
    /// Prepares the second try with larger room at the named segment, counted from one over write
    /// chunks and reply chunk. False if there has been one already, or none would help.
    pub(super) fn enlarge(&mut self, segment: u32, needed: u32) -> bool {
        if self.retried || self.owner != Owner::Waits || needed == 0 {
            return false;
        }
        let lengths = |wanted: fn(Purpose) -> bool| {
            let offers = self.offers.iter();
            offers
                .filter(move |offer| wanted(offer.purpose))
                .map(|offer| offer.length)
        };
        let writes = lengths(|purpose| matches!(purpose, Purpose::Write(_))).count();
        let mut room: Vec<u32> = lengths(|purpose| purpose == Purpose::Reply).collect();
        let total = |room: &[u32]| room.iter().map(|&length| length as usize).sum::<usize>();
        let Some(larger) = needed.checked_next_multiple_of(4) else {
            return false;
        };
        // Where no segment could be told, the reply as a whole needs so many bytes.
        let at = match segment.checked_sub(1) {
            None if total(&room) >= needed as usize => return false,
            None => {
                room.clear();
                Some(0)
            }
            Some(before) => (before as usize).checked_sub(writes),
        };
        match at {
            Some(at) if at < room.len() && room[at] < needed => room[at] = larger,
            Some(0) if room.is_empty() => room.push(larger),
            _ => return false,
        }
        if total(&room) > Class::Large.size() {
            return false;
        }
        self.shape.reply_room = total(&room);
        self.reply_room = room;
        self.retried = true;
        true
    }
}
