//! The memory that a load needs, by the rules of the running service.

use millrace_admin::config::{self, Config, Store};
use millrace_mempool::{Class, PoolConfig};
use millrace_store::memory::mapped_bytes;
use millrace_wire::rpcrdma::Versions;

use crate::flow::policy::{SHORT_PART, WEIGHT, receives_for};
use crate::flow::{RECEIVES_PART, TaskLimits};
use crate::rdma::{self, Settings};
use crate::replay::ReplayLimits;

/// The size of a huge page of the default size.
pub const HUGE_PAGE: u64 = 2 << 20;

/// The smallest pool that the configuration accepts, in bytes.
const POOL_MIN: u64 = 8 << 20;

/// The most connections computed for: far beyond one machine's load, and without overflow.
const CONNECTIONS_MAX: u32 = 1 << 24;
const DEPTH_MAX: u32 = 1 << 16;

/// The size of a cached call without its reply: its key, twice, and the table's overhead.
const REPLAY_ENTRY: u64 = 256;

/// The load by clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// RDMA connections at once.
    pub connections: u32,
    /// Calls that each has in flight at once.
    pub depth: u32,
    /// Their addresses.
    pub clients: u32,
    /// Concurrent calls, over all connections, with a long message or reply: mainly directory
    /// listings.
    pub long: u32,
    /// The reactors of the connections.
    pub reactors: u32,
}

/// The buffers that one reactor's pool must provide at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The number of its connections.
    pub connections: u64,
    /// Receives that all its connections have posted.
    pub receives: u64,
    /// Replies not sent yet, and the reserves of connections.
    pub replies: u64,
    /// Of each class, in the order of [`Class::ALL`], including the buffers that must be free for
    /// the shares of clients and below the limit of memory pressure.
    pub buffers: [u64; 3],
}

/// The memory that a load needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// That of one reactor, the one with most connections.
    pub need: Need,
    /// `mempool.size`, in bytes.
    pub pool_bytes: u64,
    /// `flow.credits`.
    pub credits: u32,
    /// Buffers of all reactors, in bytes.
    pub pools_bytes: u64,
    /// Exports in memory, in bytes.
    pub stores_bytes: u64,
    /// The most memory of the duplicate request cache, in bytes.
    pub replay_bytes: u64,
    /// Huge pages of [`HUGE_PAGE`] to reserve.
    pub huge_pages: u64,
}

/// Computes the memory for a load on a service of this configuration; its credits and the size of
/// its pools are results, everything else is input. `None` if no memory could hold it.
#[must_use]
pub fn size(config: &Config, load: Load) -> Option<Sizing> {
    let reactors = u64::from(load.reactors.max(1));
    let need = need(config, load);
    let buffers = need.buffers.map(usize::try_from);
    let [Ok(control), Ok(medium), Ok(large)] = buffers else {
        return None;
    };
    let pool = PoolConfig::for_buffers([control, medium, large])?;
    let pool_bytes = (pool.bytes as u64).max(POOL_MIN);
    let pools_bytes = pool_bytes.checked_mul(reactors)?;
    let mut stores_bytes = 0_u64;
    for export in &config.exports {
        if let Store::Memory { size, .. } = &export.store {
            // Each is a separate mapping, of whole huge pages.
            let bytes = mapped_bytes(size.bytes()).checked_next_multiple_of(HUGE_PAGE)?;
            stores_bytes = stores_bytes.checked_add(bytes)?;
        }
    }
    Some(Sizing {
        need,
        pool_bytes,
        credits: load.depth.max(1),
        pools_bytes,
        stores_bytes,
        replay_bytes: replay_bytes(),
        huge_pages: pools_bytes.checked_add(stores_bytes)? / HUGE_PAGE,
    })
}

/// The most memory of the duplicate request cache, in bytes.
pub(crate) fn replay_bytes() -> u64 {
    let limits = ReplayLimits::default();
    limits.bytes as u64 + limits.entries as u64 * REPLAY_ENTRY
}

fn need(config: &Config, load: Load) -> Need {
    let reactors = u64::from(load.reactors.max(1));
    let all = load.connections.clamp(1, CONNECTIONS_MAX);
    let connections = u64::from(all).div_ceil(reactors);
    let depth = load.depth.clamp(1, DEPTH_MAX);
    // In classic mode, an RDMA_DONE may arrive for each reply, in addition to calls.
    let classic =
        (config.fabric.iter()).any(|fabric| fabric.is_classic(config.rpcrdma.read_chunk_replies));
    let dones = match classic {
        true => rdma::dones_most(config.flow.max_exposures.min(depth)),
        false => 0,
    };
    let each = u64::from(receives_for(depth, dones));
    let receives = connections * each;
    // Besides the calls of tasks, replies may wait for a slow client.
    let replies = connections * (u64::from(depth) + 1);

    // One client's share is reserved for the next client. A client on several reactors has less
    // weight on each, so its receives need a higher level.
    let clients = u64::from(load.clients.clamp(1, all));
    let per_client = u64::from(all).div_ceil(clients);
    let spread = per_client.min(reactors).min(u64::from(WEIGHT));
    let level = per_client.div_ceil(spread) * each * spread;
    let shared = RECEIVES_PART * (receives + level);
    // Grants are reduced when less than a fraction of the memory is free, with everything else in
    // use.
    let free_of = |in_use: u64| (in_use * SHORT_PART).div_ceil(SHORT_PART - 1);

    let class = receive_class(config);
    let mut buffers = [0; 3];
    for (at, of) in Class::ALL.into_iter().zip(&mut buffers) {
        let replies = if at == Class::Control { replies } else { 0 };
        *of = match at == class {
            true => shared.max(free_of(receives + replies)),
            false => replies,
        };
    }
    // A long message is assembled in one buffer, and its reply may take the largest.
    let long = u64::from(load.long)
        .div_ceil(reactors)
        .min(TaskLimits::RDMA.capacity as u64);
    buffers[1] += long;
    buffers[2] += long;
    Need {
        connections,
        receives,
        replies,
        buffers,
    }
}

/// The buffer class of receives.
fn receive_class(config: &Config) -> Class {
    let inline = usize::try_from(config.rpcrdma.inline.bytes()).unwrap_or(usize::MAX);
    let settings = Settings::new(inline, 1, 0, false);
    let served = match config.rpcrdma.versions.iter().max() {
        Some(1) => settings.serving(Versions::ONE),
        _ => settings,
    };
    served.receive_class()
}

/// The shortages of the configuration for a load, as text; empty if it is large enough.
#[must_use]
pub fn shortages(config: &Config, sizing: &Sizing) -> Vec<String> {
    let mut found = Vec::new();
    let size = config.mempool.size;
    if size.bytes() < sizing.pool_bytes {
        let enough = config::ByteSize(sizing.pool_bytes);
        found.push(format!("mempool.size is {size}, and {enough} is needed"));
    }
    let (credits, enough) = (config.flow.credits, sizing.credits);
    if credits < enough {
        found.push(format!("flow.credits is {credits}, and {enough} is needed"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        config::parse(text, "test").unwrap()
    }

    const LOAD: Load = Load {
        connections: 100,
        depth: 32,
        clients: 100,
        long: 0,
        reactors: 4,
    };

    #[test]
    fn receives_have_half_of_their_class_and_room_for_one_more_client() {
        let sizing = size(&config("{}"), LOAD).unwrap();
        let need = sizing.need;
        assert_eq!((need.connections, need.receives), (25, 25 * 34));
        assert_eq!(need.replies, 25 * 33);
        // Here the eighth that must stay free exceeds the reserve for shares.
        let all = (25 * 34 + 25 * 33) * 8;
        assert_eq!(need.buffers, [(2 * (25 + 1) * 34).max(all / 7 + 1), 0, 0]);
        assert_eq!(sizing.pools_bytes, 4 * sizing.pool_bytes);
        assert_eq!(sizing.huge_pages, sizing.pools_bytes >> 21);
        assert_eq!(sizing.credits, 32);
    }

    #[test]
    fn few_clients_with_many_connections_leave_room_for_one_more_of_their_kind() {
        let load = Load { clients: 2, ..LOAD };
        let need = size(&config("{}"), load).unwrap().need;
        // Fifty connections of one client, over four reactors, at a quarter of the weight.
        assert_eq!(need.buffers[0], 2 * (25 * 34 + 13 * 34 * 4));
    }

    #[test]
    fn long_receives_come_from_larger_buffers() {
        let of = |inline| {
            let text = format!("rpcrdma: {{ inline: {inline}, versions: [1] }}");
            size(&config(&text), LOAD).unwrap()
        };
        let [control, medium, large] = of("8KiB").need.buffers;
        assert_eq!((control, large), (25 * 33, 0));
        assert_eq!(medium, 2 * (25 + 1) * 34);
        assert_eq!(of("128KiB").need.buffers[2], 2 * (25 + 1) * 34);
        assert_eq!(of("1KiB").need, of("4KiB").need);
        assert!(of("8KiB").pool_bytes > 8 * of("4KiB").pool_bytes);
    }

    #[test]
    fn clients_that_fetch_replies_have_receives_for_their_dones() {
        let classic = "rpcrdma: { read_chunk_replies: on }\nflow: { max_exposures: 16 }";
        let need = size(&config(classic), LOAD).unwrap().need;
        assert_eq!(need.receives, 25 * (34 + 32));
    }

    #[test]
    fn exports_and_long_calls_count() {
        let text = "exports: [{ path: /a, store: { kind: memory, size: 3MiB } },\
                    { path: /b, store: { kind: memory, size: 1GiB } }]";
        let sizing = size(&config(text), Load { long: 9, ..LOAD }).unwrap();
        // Each with its spare memory.
        assert_eq!(sizing.stores_bytes, (6 << 20) + (1 << 30) + (16 << 20));
        assert_eq!(sizing.need.buffers[1..], [3, 3]);
        let pages = (sizing.pools_bytes + sizing.stores_bytes) / HUGE_PAGE;
        assert_eq!(sizing.huge_pages, pages);
    }

    #[test]
    fn what_is_planned_is_accepted_and_what_is_short_is_told() {
        let small = config("mempool: { size: 8MiB }\nflow: { credits: 16 }");
        let sizing = size(&small, LOAD).unwrap();
        assert_eq!(shortages(&small, &sizing).len(), 2);
        let mut planned = small;
        planned.mempool.size = config::ByteSize(sizing.pool_bytes);
        planned.flow.credits = sizing.credits;
        assert_eq!(shortages(&planned, &sizing), [""; 0]);
        assert_eq!(config::validate(&planned), []);
    }

    #[test]
    fn absurd_loads_are_no_panic() {
        let most = u32::MAX;
        for reactors in [0, 1, most] {
            let load = Load {
                connections: most,
                depth: most,
                clients: most,
                long: most,
                reactors,
            };
            let _ = size(&config("{}"), load);
            let _ = size(&config("{}"), Load { clients: 0, ..load });
        }
        let least = Load {
            connections: 0,
            depth: 0,
            clients: 0,
            long: 0,
            reactors: 0,
        };
        assert_eq!(size(&config("{}"), least).unwrap().pool_bytes, POOL_MIN);
    }
}
