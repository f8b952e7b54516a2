//! RDMA_MSGP: data of inline calls that arrives aligned (RFC 5666 section 3.9).
//!
//! The sentences of the standard differ on whether an item of exactly the threshold is aligned, so
//! such an item is avoided. Only data that is kept separate until it is sent is aligned: the
//! threshold is above the size of everything else in the message.

use millrace_mempool::Class;
use millrace_wire::rpcrdma::Version;
use millrace_wire::rpcrdma::version1::PADDING_LENGTH;
use millrace_wire::xdr::{Padding, round_up};

use super::connection::Connection;
use super::plan::{CallPlan, Form, HEADER_MAX};
use super::settings::Alignment;

impl Connection {
    /// Gets the zeros that stand before data.
    pub(super) fn prepare_padding(&mut self) {
        if self.settings.alignment == Alignment::Off || self.zeros.is_some() {
            return;
        }
        // Without them calls are sent as they are.
        self.zeros = self.pool.try_acquire(Class::Control).map(|mut buffer| {
            buffer.fill(0);
            let length = buffer.capacity();
            buffer.into_slice(0..length)
        });
    }

    /// The alignment in force: none if zero.
    fn alignment(&self) -> (u32, u32) {
        match self.settings.alignment {
            Alignment::Off => (0, 0),
            Alignment::Learnt { threshold } => {
                let told = self.configuration.limits;
                (told.map_or(0, |limits| limits.alignment), threshold)
            }
            Alignment::Fixed { align, threshold } => (align, threshold),
        }
    }

    /// The two words of the header if a call is to be sent as RDMA_MSGP: one that fits inline, also
    /// with its pads, and has data to align.
    pub(super) fn padding(&self, index: u32, plan: &CallPlan) -> Option<Padding> {
        let (align, threshold) = self.alignment();
        let zeros = self.zeros.as_ref()?;
        let limits = self.limits();
        let possible = self.version == Version::One && plan.form == Form::Inline && !limits.whole;
        if align < 2 || !possible {
            return None;
        }
        let slot = &self.slots[index as usize];
        // No other opaque is as long as all of the message around the data.
        let mut threshold = threshold.max(u32::try_from(slot.length).ok()?);
        while slot.items.iter().any(|item| item.length == threshold) {
            threshold += 1;
        }
        let padding = Padding { align, threshold };
        let (mut pads, mut aligned, mut bytes) = (0, false, slot.length);
        for item in &slot.items {
            let length = item.length as usize;
            let before = padding.before(length, item.position as usize + pads);
            if before > zeros.len() {
                return None;
            }
            pads += before;
            aligned |= item.length > threshold;
            bytes += round_up(u64::from(item.length)) as usize;
        }
        let header = plan.header + PADDING_LENGTH;
        let fits = header <= HEADER_MAX && header + bytes + pads <= limits.send;
        (aligned && fits).then_some(padding)
    }
}
