//! The comparisons of loads with raw exchanges, and their goals.

use std::time::Duration;

use super::raw::{Exchange, Trip};
use crate::load::{Operation, Workload};

/// Bytes of a call or reply around the data: transport header, RPC header, arguments or results,
/// as they are for READ and WRITE.
const AROUND: usize = 180;
/// The same for GETATTR.
const AROUND_GETATTR: usize = 140;
/// Bytes of an RDMA Read Request on the stream (RFC 5040 section 4.4, RFC 5044 section 4).
const READ_REQUEST: usize = 52;
/// Bytes of the file that READs and WRITEs go through.
pub const FILE: usize = 64 << 20;
/// Inline limit with which WRITEs of 4 KiB need no chunk.
pub const LONG_INLINE: usize = 8 << 10;

/// How calls travel. Each has a target and connections of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum NfsTransport {
    /// RDMA as configured on the command line.
    #[serde(rename = "NFS/RDMA")]
    Rdma,
    /// The same with check values on both sides.
    #[serde(rename = "NFS/RDMA, CRC")]
    RdmaCrc,
    /// The same with inline limits of [`LONG_INLINE`].
    #[serde(rename = "NFS/RDMA, inline")]
    RdmaInline,
    /// A TCP connection.
    #[serde(rename = "NFS/TCP")]
    Tcp,
}

impl NfsTransport {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rdma, Self::RdmaCrc, Self::RdmaInline, Self::Tcp];

    /// For tables.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Rdma => "NFS/RDMA",
            Self::RdmaCrc => "NFS/RDMA, CRC",
            Self::RdmaInline => "NFS/RDMA, inline",
            Self::Tcp => "NFS/TCP",
        }
    }
}

/// A figure that has a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Operations per second, as a share of the raw exchange's.
    Rate,
    /// Median latency, in multiples of the raw exchange's.
    Latency,
    /// The server's busy time per operation, in multiples of the raw server's.
    ServerBusy,
    /// The requester's busy time per operation, in multiples of the server's.
    RequesterBusy,
}

impl Figure {
    /// In a few words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Rate => "rate by raw rate",
            Self::Latency => "median latency by raw latency",
            Self::ServerBusy => "server busy time by raw server's",
            Self::RequesterBusy => "requester busy time by server's",
        }
    }

    /// Whether more is better.
    #[must_use]
    pub const fn is_floor(self) -> bool {
        matches!(self, Self::Rate)
    }
}

/// A figure and what it should be.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Goal {
    /// Which figure.
    pub figure: Figure,
    /// At least, or at most, this on a quiet machine.
    pub target: f64,
    /// With --strict at least this, on busy machines as well.
    pub bar: Option<f64>,
}

/// A load and a raw exchange of the same bytes.
pub struct Contest {
    /// The transport of the calls.
    pub transport: NfsTransport,
    /// The load.
    pub workload: Workload,
    /// The raw exchange.
    pub exchange: Exchange,
    /// The goals.
    pub goals: Vec<Goal>,
}

impl Contest {
    /// All contests. Large data is moved with so many calls in flight.
    #[must_use]
    pub fn all(time: Duration, bulk_depth: usize) -> Vec<Self> {
        use Operation::{Getattr, Read, Write};
        let contest = |transport, operation, size, depth, goals: &[Goal]| {
            let trips = trips(transport, operation, size);
            Self {
                transport,
                workload: Workload::new(operation, size, depth, time),
                exchange: Exchange {
                    trips,
                    depth,
                    footprint: if size == 0 { 0 } else { FILE },
                    crc: transport == NfsTransport::RdmaCrc,
                },
                goals: goals.to_vec(),
            }
        };
        let (small, middle, large) = (4 << 10, 64 << 10, 1 << 20);
        let requester = at_most(Figure::RequesterBusy, 0.8);
        let server = at_most(Figure::ServerBusy, 1.25);
        let latency = at_most(Figure::Latency, 1.25);
        let rdma = NfsTransport::Rdma;
        vec![
            contest(
                rdma,
                Read,
                small,
                32,
                &[rate(0.80, 0.05), server, requester],
            ),
            contest(rdma, Write, small, 32, &[rate(0.75, 0.05)]),
            contest(rdma, Read, middle, bulk_depth, &[rate(0.95, 0.1)]),
            contest(rdma, Write, middle, bulk_depth, &[rate(0.95, 0.1)]),
            contest(rdma, Read, large, bulk_depth, &[rate(0.95, 0.1)]),
            contest(rdma, Write, large, bulk_depth, &[rate(0.95, 0.1)]),
            contest(rdma, Getattr, 0, 32, &[rate(0.60, 0.02), server, requester]),
            contest(rdma, Read, small, 1, &[latency]),
            contest(NfsTransport::RdmaCrc, Read, small, 32, &[rate(0.80, 0.05)]),
            contest(
                NfsTransport::RdmaInline,
                Write,
                small,
                32,
                &[rate(0.75, 0.05)],
            ),
            contest(NfsTransport::Tcp, Read, small, 32, &[rate(0.60, 0.02)]),
            contest(NfsTransport::Tcp, Write, small, 32, &[rate(0.60, 0.02)]),
            contest(
                NfsTransport::Tcp,
                Read,
                large,
                bulk_depth,
                &[rate(0.90, 0.1)],
            ),
        ]
    }

    /// The name of the load and of its transport.
    #[must_use]
    pub fn name(&self) -> String {
        match self.transport {
            NfsTransport::Rdma => self.workload.name(),
            transport => format!("{}, {}", self.workload.name(), transport.text()),
        }
    }
}

const fn rate(target: f64, bar: f64) -> Goal {
    Goal {
        figure: Figure::Rate,
        target,
        bar: Some(bar),
    }
}

const fn at_most(figure: Figure, target: f64) -> Goal {
    Goal {
        figure,
        target,
        bar: None,
    }
}

/// The messages of one operation. A small WRITE with its data in a read chunk takes two trips: the
/// server fetches the data. Large data is compared with one trip, which is faster.
fn trips(transport: NfsTransport, operation: Operation, size: usize) -> Vec<Trip> {
    let one = |request, reply| vec![Trip { request, reply }];
    let fetched = matches!(transport, NfsTransport::Rdma | NfsTransport::RdmaCrc);
    match operation {
        operation if !operation.moves_data() => one(AROUND_GETATTR, AROUND_GETATTR),
        Operation::Write if fetched && size <= LONG_INLINE => vec![
            Trip {
                request: AROUND,
                reply: READ_REQUEST,
            },
            Trip {
                request: size,
                reply: AROUND,
            },
        ],
        Operation::Write => one(AROUND + size, AROUND),
        _ => one(AROUND, AROUND + size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contest_has_a_target_and_no_bar_is_zero() {
        for contest in Contest::all(Duration::from_secs(1), 8) {
            assert!(!contest.goals.is_empty(), "{}", contest.name());
            for goal in &contest.goals {
                assert!(goal.bar.is_none_or(|bar| bar > 0.0 && bar < goal.target));
            }
        }
    }

    #[test]
    fn only_small_writes_by_read_chunk_take_two_trips() {
        for contest in Contest::all(Duration::from_secs(1), 8) {
            let two = contest.name() == "WRITE 4 KiB x32";
            assert_eq!(contest.exchange.trips.len() == 2, two, "{}", contest.name());
        }
    }
}
