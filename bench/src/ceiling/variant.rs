//! Ways of making a raw exchange, and the search for the fastest.
//!
//! SO_BUSY_POLL and MSG_ZEROCOPY are not among them: over the loopback interface there is no device
//! queue to poll, and the kernel copies the data despite MSG_ZEROCOPY.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

use super::raw::{PART, RawExchange};

/// Each trial is of several measurements, of which the best counts: what else runs on the machine
/// takes from some of them.
const TRIAL: Duration = Duration::from_millis(12);
const MEASUREMENTS: usize = 3;
/// The best of the trials that are kept.
const FINALISTS: usize = 3;

/// A way of making a raw exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Variant {
    /// Most messages that the server reads at a time, zero for all that have arrived. Of longer
    /// messages each part of 64 KiB counts.
    pub server_receive: usize,
    /// The same of the client.
    pub client_receive: usize,
    /// Messages that the server reads before it writes its answers, if there are as many.
    pub server_hold: usize,
    /// The same of the client.
    pub client_hold: usize,
    /// Most parts of 64 KiB that either side writes at a time, zero for all that it owes.
    pub write: usize,
    /// Bytes of the socket's buffers; by default the kernel decides.
    pub socket_buffer: Option<usize>,
    /// Without work both sides spin; else they yield the processor.
    pub spin: bool,
}

type Axis = fn(&Variant, usize) -> Option<Variant>;

/// Messages read at a time.
const RECEIVES: [usize; 6] = [0, 1, 2, 4, 8, 16];
/// Parts written at a time.
const WRITES: [usize; 5] = [0, 1, 2, 4, 8];
/// Messages held back.
const HOLDS: [usize; 5] = [1, 2, 4, 8, 16];
/// Socket buffers.
const BUFFERS: [Option<usize>; 5] = [
    None,
    Some(128 << 10),
    Some(512 << 10),
    Some(1 << 20),
    Some(4 << 20),
];

/// The parameters to vary, one after the other.
const AXES: [Axis; 7] = [
    |one, at| {
        Some(Variant {
            server_receive: *RECEIVES.get(at)?,
            ..*one
        })
    },
    |one, at| {
        Some(Variant {
            client_receive: *RECEIVES.get(at)?,
            ..*one
        })
    },
    |one, at| {
        Some(Variant {
            write: *WRITES.get(at)?,
            ..*one
        })
    },
    |one, at| {
        Some(Variant {
            socket_buffer: *BUFFERS.get(at)?,
            ..*one
        })
    },
    |one, at| {
        Some(Variant {
            server_hold: *HOLDS.get(at)?,
            ..*one
        })
    },
    |one, at| {
        Some(Variant {
            client_hold: *HOLDS.get(at)?,
            ..*one
        })
    },
    |one, at| {
        let spin = *[false, true].get(at)?;
        Some(Variant { spin, ..*one })
    },
];

impl Variant {
    /// All that has arrived is read at once, and answered at once.
    pub const PLAIN: Self = Self {
        server_receive: 0,
        client_receive: 0,
        server_hold: 1,
        client_hold: 1,
        write: 0,
        socket_buffer: None,
        spin: false,
    };

    /// Most bytes of a write.
    #[must_use]
    pub const fn write_bytes(&self) -> usize {
        match self.write {
            0 => usize::MAX,
            parts => parts * PART,
        }
    }

    /// Whether it differs from others where so many messages of such a length are in flight.
    fn fits(&self, depth: usize, longest: usize) -> bool {
        let most = self.server_receive.max(self.client_receive).max(self.write);
        most * longest.min(PART) < depth * longest
            && (self.write == 0 || longest >= PART)
            && self.server_hold.max(self.client_hold) <= depth
    }

    /// The fastest few for an exchange, the best first: each property is varied in turn and kept
    /// at its best.
    ///
    /// # Errors
    /// As [`RawExchange::measure`].
    pub fn fastest(exchange: &mut RawExchange) -> Result<Vec<Self>> {
        let (depth, longest) = (exchange.depth(), exchange.longest());
        // A trial of large messages has to be of more than a few.
        let time = TRIAL * if longest > 256 << 10 { 3 } else { 1 };
        let mut trial = |variant: &Self| -> Result<f64> {
            let mut best: f64 = 0.0;
            for _ in 0..MEASUREMENTS {
                best = best.max(exchange.measure(variant, time)?.rate);
            }
            Ok(best)
        };
        let mut trials = vec![(trial(&Self::PLAIN)?, Self::PLAIN)];
        for axis in AXES {
            let best = trials[0].1;
            for variant in (0..).map_while(|at| axis(&best, at)) {
                let known = trials.iter().any(|(_, tried)| *tried == variant);
                if !known && variant.fits(depth, longest) {
                    trials.push((trial(&variant)?, variant));
                }
            }
            trials.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        }
        let finalists = trials.into_iter().take(FINALISTS);
        Ok(finalists.map(|(_, variant)| variant).collect())
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = |messages| match messages {
            0 => "all".to_owned(),
            messages => format!("{messages}"),
        };
        write!(
            out,
            "read {}/{} hold {}/{}",
            most(self.server_receive),
            most(self.client_receive),
            self.server_hold,
            self.client_hold
        )?;
        if self.write > 0 {
            write!(
                out,
                " write {}",
                crate::units::show_size(self.write_bytes())
            )?;
        }
        if let Some(bytes) = self.socket_buffer {
            write!(out, " buffers {}", crate::units::show_size(bytes))?;
        }
        write!(out, " {}", if self.spin { "spin" } else { "yield" })
    }
}
