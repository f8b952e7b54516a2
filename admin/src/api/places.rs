//! Who has how many of the connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time;

use super::neighbour::neighbourhood;

/// The places for connections, and who has them; see
/// [`ApiLimits`](super::limits::ApiLimits).
#[derive(Debug)]
pub struct Places {
    connections: u32,
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    by_address: HashMap<IpAddr, u32>,
    elsewhere: u32,
}

/// A place that is taken, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    address: IpAddr,
    _free: OwnedSemaphorePermit,
}

impl Places {
    /// So many places.
    pub fn new(connections: u32) -> Arc<Self> {
        Arc::new(Self {
            connections,
            free: Arc::new(Semaphore::new(connections as usize)),
            taken: Mutex::default(),
        })
    }

    /// Waits until some place is free.
    pub async fn free(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Takes a free place for a client. `None` if it has its share already.
    pub fn take(self: &Arc<Self>, address: IpAddr, free: OwnedSemaphorePermit) -> Option<Place> {
        let address = neighbourhood(address);
        let all = self.connections;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let share = match address.is_loopback() {
            true => all / 2,
            false => all / 4,
        };
        let own = taken.by_address.get(&address).copied().unwrap_or(0);
        if own >= share.max(1) {
            return None;
        }
        if !address.is_loopback() {
            if taken.elsewhere >= (all - all / 4).max(1) {
                return None;
            }
            taken.elsewhere += 1;
        }
        taken.by_address.insert(address, own + 1);
        Some(Place {
            places: Arc::clone(self),
            address,
            _free: free,
        })
    }

    /// Waits until all places are free. False if that takes longer.
    pub async fn empty(&self, patience: Duration) -> bool {
        let all = self.free.acquire_many(self.connections);
        time::timeout(patience, all).await.is_ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let taken = self.places.taken.lock();
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        if !self.address.is_loopback() {
            taken.elsewhere = taken.elsewhere.saturating_sub(1);
        }
        if let Some(own) = taken.by_address.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Arc<Places>, address: &str) -> Option<Place> {
        let free = Arc::clone(&places.free).try_acquire_owned().ok()?;
        places.take(address.parse().unwrap(), free)
    }

    fn take_all(places: &Arc<Places>, address: &str) -> Vec<Place> {
        std::iter::from_fn(|| take(places, address)).collect()
    }

    #[test]
    fn no_address_has_more_than_its_share_and_this_host_finds_room() {
        let places = Places::new(64);
        let mut elsewhere = Vec::new();
        for host in 0..10 {
            let mine = take_all(&places, &format!("192.0.2.{host}"));
            assert_eq!(mine.len(), if host < 3 { 16 } else { 0 });
            elsewhere.push(mine);
        }
        let here = take_all(&places, "127.0.0.1");
        assert_eq!(here.len(), 16);
        assert!(take(&places, "::1").is_none());

        elsewhere.truncate(1);
        let more = take_all(&places, "127.0.0.2");
        assert_eq!(here.len() + more.len(), 32);
        assert_eq!(take_all(&places, "192.0.2.77").len(), 16);
    }

    #[test]
    fn one_place_is_enough_for_anybody() {
        let places = Places::new(1);
        for address in ["192.0.2.1", "127.0.0.1", "2001:db8::1"] {
            let place = take(&places, address);
            assert!(place.is_some(), "{address}");
            assert!(take(&places, address).is_none());
        }
        assert!(places.taken.lock().unwrap().by_address.is_empty());
        assert_eq!(places.taken.lock().unwrap().elsewhere, 0);
    }
}
