//! Two software iWARP providers over 127.0.0.1, in one thread.

mod ending;
#[path = "../pair/mod.rs"]
mod pair;
mod soak;
mod transfer;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use millrace_reactor::fabric::QueuePairLimits;
use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};

use pair::{LIMITS, Pair, Side};

const LOOPBACK: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

fn side(config: IwarpConfig) -> Side<Iwarp> {
    Side::new(|_| Iwarp::new(config).expect("a provider"))
}

fn with_limits(client: IwarpConfig, server: IwarpConfig, limits: QueuePairLimits) -> Pair<Iwarp> {
    Pair::connected(side(client), side(server), LOOPBACK, limits)
}

fn connected(client: IwarpConfig, server: IwarpConfig) -> Pair<Iwarp> {
    with_limits(client, server, LIMITS)
}

fn plain() -> Pair<Iwarp> {
    connected(IwarpConfig::default(), IwarpConfig::default())
}
