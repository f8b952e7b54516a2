//! Limits of connections, and eviction of idle ones.
//!
//! A connection is idle unless it has a request in progress: during the TLS handshake, while the
//! head of a request arrives, and between requests. When a client connects and its share is used
//! up, the connection that has been idle longest is closed. If none is idle, a few reserved
//! connections are available for requests with a valid token and for health checks, and for nothing
//! else.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time;

use super::neighbour::neighbourhood;

/// Connections beyond the usual limit, for operators and health checks.
const RESERVED: usize = 8;

/// The open connections and their limits; see [`ApiLimits`](super::limits::ApiLimits).
#[derive(Debug)]
pub struct ConnectionPlaces {
    connections: usize,
    table: Mutex<PlaceTable>,
    /// Notified when a response is complete, and when a connection has ended.
    changed: Notify,
}

#[derive(Debug, Default)]
struct PlaceTable {
    /// The next identifier, and the clock of idleness: it advances by one with each event.
    clock: u64,
    taken: BTreeMap<u64, TakenPlace>,
    /// Connections that have not ended yet, including evicted ones.
    open: usize,
}

#[derive(Debug)]
struct TakenPlace {
    address: IpAddr,
    reserved: bool,
    /// The start of idleness; `None` while a request is in progress.
    idle_since: Option<u64>,
    evicted: Arc<Notify>,
}

/// A connection's place, released on drop.
#[derive(Debug)]
pub struct ConnectionPlace {
    places: Arc<ConnectionPlaces>,
    number: u64,
    reserved: bool,
    evicted: Arc<Notify>,
}

/// A request is in progress until this is dropped; its connection is not evicted.
#[derive(Debug)]
pub struct RequestInService {
    places: Arc<ConnectionPlaces>,
    number: u64,
}

impl ConnectionPlaces {
    /// A table with this limit.
    pub fn new(connections: u32) -> Arc<Self> {
        Arc::new(Self {
            connections: connections as usize,
            table: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// A place for a new client. `None` if there is none, and no idle connection to evict.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPlace> {
        let address = neighbourhood(address);
        let mut table = self.lock();
        let reserved = !table.make_room(address, self.connections);
        if reserved && !table.make_reserved_room(address) {
            return None;
        }
        let number = table.tick();
        let evicted = Arc::new(Notify::new());
        let place = TakenPlace {
            address,
            reserved,
            idle_since: Some(number),
            evicted: Arc::clone(&evicted),
        };
        table.taken.insert(number, place);
        table.open += 1;
        drop(table);
        Some(ConnectionPlace {
            places: Arc::clone(self),
            number,
            reserved,
            evicted,
        })
    }

    /// Waits until all connections have ended. False at the timeout.
    pub async fn empty(&self, timeout: Duration) -> bool {
        let all = self.until(|| (self.lock().open == 0).then_some(()));
        time::timeout(timeout, all).await.is_ok()
    }

    /// As [`ConnectionPlaces::take`], waiting for a place.
    pub async fn take_soon(self: &Arc<Self>, address: IpAddr) -> ConnectionPlace {
        self.until(|| self.take(address)).await
    }

    /// Waits until `there` returns a value.
    async fn until<T>(&self, mut there: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut told = pin!(self.changed.notified());
            // Registered before the check, so that no notification is missed.
            told.as_mut().enable();
            if let Some(found) = there() {
                return found;
            }
            told.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, PlaceTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlaceTable {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Whether one of the usual places is free for this address, possibly after an eviction.
    fn make_room(&mut self, address: IpAddr, all: usize) -> bool {
        let usual = |place: &TakenPlace| !place.reserved;
        let count = |of: &dyn Fn(&TakenPlace) -> bool| {
            let places = self.taken.values();
            places.filter(|place| usual(place) && of(place)).count()
        };
        let share = match address.is_loopback() {
            true => all / 2,
            false => all / 4,
        };
        let own = |place: &TakenPlace| place.address == address;
        let elsewhere = |place: &TakenPlace| !place.address.is_loopback();
        if count(&own) >= share.max(1) {
            return self.evict(|place| usual(place) && own(place));
        }
        if !address.is_loopback() && count(&elsewhere) >= (all - all / 4).max(1) {
            return self.evict(|place| usual(place) && elsewhere(place));
        }
        count(&|_| true) < all || self.evict(usual)
    }

    /// Whether one of the reserved places is free, possibly after an eviction. Other hosts have
    /// half of them.
    fn make_reserved_room(&mut self, address: IpAddr) -> bool {
        let elsewhere = |place: &TakenPlace| place.reserved && !place.address.is_loopback();
        let reserved = |place: &TakenPlace| place.reserved;
        let taken = self.taken.values();
        if !address.is_loopback() && taken.filter(|one| elsewhere(one)).count() >= RESERVED / 2 {
            return self.evict(elsewhere);
        }
        let taken = self.taken.values();
        taken.filter(|one| reserved(one)).count() < RESERVED || self.evict(reserved)
    }

    /// Evicts the connection that has been idle longest. False if none of these is idle.
    fn evict(&mut self, of: impl Fn(&TakenPlace) -> bool) -> bool {
        let places = self.taken.iter().filter(|(_, place)| of(place));
        let idle = places.filter_map(|(number, place)| Some((place.idle_since?, *number)));
        let Some((_, number)) = idle.min() else {
            return false;
        };
        if let Some(place) = self.taken.remove(&number) {
            place.evicted.notify_one();
        }
        true
    }

    fn set_idle(&mut self, number: u64, idle: bool) {
        let now = self.tick();
        // It may have been evicted.
        if let Some(place) = self.taken.get_mut(&number) {
            place.idle_since = idle.then_some(now);
        }
    }
}

impl ConnectionPlace {
    /// Whether only requests with a valid token and health checks are answered here.
    pub fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// Waits for the eviction of the connection.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Marks the start of a request.
    pub fn serve(&self) -> RequestInService {
        self.places.lock().set_idle(self.number, false);
        RequestInService {
            places: Arc::clone(&self.places),
            number: self.number,
        }
    }
}

impl Drop for RequestInService {
    fn drop(&mut self) {
        self.places.lock().set_idle(self.number, true);
        self.places.changed.notify_waiters();
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut table = self.places.lock();
        table.taken.remove(&self.number);
        table.open -= 1;
        drop(table);
        self.places.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Arc<ConnectionPlaces>, address: &str) -> Option<ConnectionPlace> {
        places.take(address.parse().unwrap())
    }

    /// Takes places, each with a request in progress, while there are usual ones.
    fn take_all(
        places: &Arc<ConnectionPlaces>,
        address: &str,
    ) -> Vec<(ConnectionPlace, RequestInService)> {
        let one = || take(places, address).filter(|place| !place.is_reserved());
        std::iter::from_fn(|| {
            one().map(|place| {
                let busy = place.serve();
                (place, busy)
            })
        })
        .collect()
    }

    fn is_evicted(place: &ConnectionPlace) -> bool {
        !place.places.lock().taken.contains_key(&place.number)
    }

    #[test]
    fn no_address_has_more_than_its_share_and_this_host_finds_room() {
        let places = ConnectionPlaces::new(64);
        let mut elsewhere = Vec::new();
        for host in 0..10 {
            let mine = take_all(&places, &format!("192.0.2.{host}"));
            assert_eq!(mine.len(), if host < 3 { 16 } else { 0 });
            elsewhere.push(mine);
        }
        let here = take_all(&places, "127.0.0.1");
        assert_eq!(here.len(), 16);

        elsewhere.truncate(1);
        let more = take_all(&places, "127.0.0.2");
        assert_eq!(here.len() + more.len(), 32);
        assert_eq!(take_all(&places, "192.0.2.77").len(), 16);
    }

    #[test]
    fn the_connection_that_was_idle_longest_makes_room() {
        let places = ConnectionPlaces::new(8);
        let [first, second, third, fourth] = [(); 4].map(|()| take(&places, "127.0.0.1").unwrap());
        let other = take(&places, "192.0.2.1").unwrap();
        let busy = first.serve();
        drop(second.serve());
        let fifth = take(&places, "127.0.0.1").unwrap();
        assert!(!fifth.is_reserved() && is_evicted(&third));
        let sixth = take(&places, "127.0.0.1").unwrap();
        assert!(!sixth.is_reserved() && is_evicted(&fourth));
        let seventh = take(&places, "127.0.0.1").unwrap();
        assert!(!seventh.is_reserved() && is_evicted(&second));
        assert!(
            ![&first, &fifth, &sixth, &seventh, &other]
                .map(is_evicted)
                .contains(&true)
        );
        drop(busy);
    }

    #[test]
    fn with_all_places_at_work_there_are_some_for_operators() {
        let places = ConnectionPlaces::new(64);
        let here = take_all(&places, "127.0.0.1");
        assert_eq!(here.len(), 32);
        let mut reserved = Vec::new();
        for _ in 0..2 * RESERVED {
            let place = take(&places, "127.0.0.1").unwrap();
            assert!(place.is_reserved());
            reserved.push(place);
        }
        let gone = reserved.iter().filter(|place| is_evicted(place)).count();
        assert_eq!(gone, RESERVED);
        let kept: Vec<_> = reserved
            .iter()
            .skip(RESERVED)
            .map(ConnectionPlace::serve)
            .collect();
        assert!(take(&places, "127.0.0.1").is_none());
        drop(kept);
        assert!(take(&places, "127.0.0.1").is_some());
    }

    #[test]
    fn a_place_is_enough_for_anybody_and_is_given_back() {
        let places = ConnectionPlaces::new(1);
        for address in ["192.0.2.1", "127.0.0.1", "2001:db8::1"] {
            let place = take(&places, address).unwrap();
            let busy = place.serve();
            assert!(!place.is_reserved(), "{address}");
            assert!(take(&places, address).unwrap().is_reserved());
            drop((busy, place));
        }
        let table = places.lock();
        assert!(table.taken.is_empty() && table.open == 0, "{table:?}");
    }
}
