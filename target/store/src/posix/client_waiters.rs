//! Futures that wait for a scarce resource, served client by client in turn.

use std::task::Waker;

use super::client_queues::ClientQueues;
use crate::ClientKey;

/// The waiters, each with a `Demand` and waiting for a `Grant`, and the grants not yet consumed.
/// Numbers are reused, so a queue that is never empty does not grow.
pub(super) struct ClientWaiters<Demand, Grant> {
    queues: ClientQueues<usize>,
    waiters: Vec<Waiter<Demand, Grant>>,
    free: Vec<usize>,
}

enum Waiter<Demand, Grant> {
    Gone,
    Waiting {
        client: ClientKey,
        demand: Demand,
        waker: Waker,
    },
    Granted(Grant),
}

impl<Demand, Grant> Default for ClientWaiters<Demand, Grant> {
    fn default() -> Self {
        Self {
            queues: ClientQueues::default(),
            waiters: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<Demand, Grant> ClientWaiters<Demand, Grant> {
    /// Waiters without a grant.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Adds a waiter behind those of its client. The waiter calls [`ClientWaiters::poll`] with its
    /// number until it gets a grant, or [`ClientWaiters::leave`].
    pub fn join(&mut self, client: ClientKey, demand: Demand, waker: &Waker) -> usize {
        let waiter = Waiter::Waiting {
            client,
            demand,
            waker: waker.clone(),
        };
        let number = if let Some(number) = self.free.pop() {
            self.waiters[number] = waiter;
            number
        } else {
            self.waiters.push(waiter);
            self.waiters.len() - 1
        };
        self.queues.push(client, number);
        number
    }

    /// The demand of the waiter whose turn it is.
    pub fn demand(&self) -> Option<&Demand> {
        match &self.waiters[*self.queues.first()?] {
            Waiter::Waiting { demand, .. } => Some(demand),
            Waiter::Gone | Waiter::Granted(_) => unreachable!("only those who wait are queued"),
        }
    }

    /// Grants to the waiter whose turn it is. Returns the waker to call.
    pub fn serve(&mut self, grant: Grant) -> Option<Waker> {
        let number = self.queues.pop()?;
        Some(self.grant(number, grant))
    }

    /// Grants a refusal to the last waiter of the client with the most waiters, if that makes room
    /// for one of another client ([`ClientQueues::make_room`]).
    pub fn make_room(&mut self, newcomer: ClientKey, refusal: Grant) -> Option<Waker> {
        let number = self.queues.make_room(newcomer)?;
        Some(self.grant(number, refusal))
    }

    fn grant(&mut self, number: usize, grant: Grant) -> Waker {
        match std::mem::replace(&mut self.waiters[number], Waiter::Granted(grant)) {
            Waiter::Waiting { waker, .. } => waker,
            Waiter::Gone | Waiter::Granted(_) => unreachable!("only those who wait are queued"),
        }
    }

    /// The grant of a waiter, which removes the waiter; until then `waker` is registered.
    pub fn poll(&mut self, number: usize, waker: &Waker) -> Option<Grant> {
        if let Waiter::Waiting { waker: known, .. } = &mut self.waiters[number] {
            known.clone_from(waker);
            return None;
        }
        self.leave(number)
    }

    /// Removes a waiter. Returns its grant if it was not consumed.
    pub fn leave(&mut self, number: usize) -> Option<Grant> {
        self.free.push(number);
        match std::mem::replace(&mut self.waiters[number], Waiter::Gone) {
            Waiter::Waiting { client, .. } => {
                self.queues.remove(client, &number);
                None
            }
            Waiter::Granted(grant) => Some(grant),
            Waiter::Gone => unreachable!("a number is its waiter's alone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::ClientWaiters;
    use crate::ClientKey;

    const ONE: ClientKey = ClientKey::new(1);
    const OTHER: ClientKey = ClientKey::new(2);

    #[test]
    fn who_comes_and_goes_leaves_nothing() {
        let waker = Waker::noop();
        let mut waiters = ClientWaiters::default();
        let first = waiters.join(ONE, (), waker);
        for _ in 0..1000 {
            let numbers = [waiters.join(ONE, (), waker), waiters.join(OTHER, (), waker)];
            for number in numbers {
                assert_eq!(waiters.leave(number), None);
            }
        }
        assert_eq!((waiters.len(), waiters.waiters.len()), (1, 3));
        assert!(waiters.serve(3).is_some());
        assert_eq!(waiters.poll(first, waker), Some(3));
        assert!(waiters.serve(4).is_none());
    }

    #[test]
    fn clients_have_turns_and_who_left_has_none() {
        let waker = Waker::noop();
        let mut waiters = ClientWaiters::default();
        let ones: Vec<_> = (0..4).map(|n| waiters.join(ONE, n, waker)).collect();
        let other = waiters.join(OTHER, 10, waker);
        assert_eq!(waiters.leave(ones[0]), None);
        assert_eq!(waiters.demand(), Some(&1));
        assert!(waiters.serve("a").is_some());
        assert_eq!(waiters.demand(), Some(&10));
        assert!(waiters.serve("b").is_some());
        assert_eq!(waiters.poll(ones[2], waker), None);
        assert_eq!(waiters.poll(other, waker), Some("b"));
        assert_eq!(waiters.leave(ones[1]), Some("a"), "not taken up");
        assert_eq!(waiters.len(), 2);
    }

    #[test]
    fn the_last_of_the_longest_queue_is_refused() {
        let waker = Waker::noop();
        let mut waiters = ClientWaiters::default();
        let ones: Vec<_> = (0..3).map(|_| waiters.join(ONE, (), waker)).collect();
        assert!(waiters.make_room(ONE, "no").is_none());
        assert!(waiters.make_room(OTHER, "no").is_some());
        assert_eq!(waiters.poll(ones[2], waker), Some("no"));
        assert_eq!(waiters.len(), 2);
    }
}
