//! How many bytes a connection moves in one turn of the reactor.

use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Bytes read from a connection, and bytes sent to it. Half a MiB of data fits with the headers of
/// 128 READs; more is no faster.
const BYTES_TURN: usize = (512 + 32) << 10;
/// The same while another client is active that receives little, and waits for its turn. Sending so
/// much takes some 25 us. Clients that all receive much data have the longer turns, which cost less.
const BYTES_TURN_SHORT: usize = 128 << 10;
/// A client is expected to call for so long after it was served.
const ACTIVE: Duration = Duration::from_millis(10);

/// Decides the length of turns.
#[derive(Debug, Default)]
pub struct ConnectionTurns {
    /// The latest clients that receive little: two, so that one is another than the next.
    light: [Option<(IpAddr, Instant)>; 2],
}

impl ConnectionTurns {
    /// The number of bytes that a connection of a client may move in each direction.
    pub fn bytes(&self, client: IpAddr, now: Instant) -> usize {
        let waits = |(other, at): &(IpAddr, Instant)| *other != client && now < *at + ACTIVE;
        match self.light.iter().flatten().any(waits) {
            true => BYTES_TURN_SHORT,
            false => BYTES_TURN,
        }
    }

    /// A client was served that receives little.
    pub fn served_light(&mut self, client: IpAddr, now: Instant) {
        let [latest, before] = &mut self.light;
        if latest.is_some_and(|(other, _)| other != client) {
            *before = *latest;
        }
        *latest = Some((client, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_short_while_another_client_receives_little() {
        let [bulk, other] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut turns = ConnectionTurns::default();
        assert_eq!(turns.bytes(bulk, at(0)), BYTES_TURN);
        turns.served_light(other, at(1));
        assert_eq!(turns.bytes(bulk, at(2)), BYTES_TURN_SHORT);
        assert_eq!(turns.bytes(other, at(2)), BYTES_TURN, "no other one waits");
        turns.served_light(bulk, at(3));
        turns.served_light(bulk, at(4));
        assert_eq!(turns.bytes(bulk, at(10)), BYTES_TURN_SHORT);
        assert_eq!(turns.bytes(bulk, at(11)), BYTES_TURN, "not for 10 ms");
    }
}
