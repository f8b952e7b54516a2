//! Queues of waiting items, served client by client in turn.

use std::collections::{HashMap, VecDeque};

use crate::ClientKey;

/// The most empty queues that are kept.
const SPARE: usize = 64;

/// Queues of clients, served in turn: one for each client with waiting items, in order of arrival.
pub(super) struct ClientQueues<T> {
    /// Clients with waiting items, the next one first.
    turns: VecDeque<ClientKey>,
    /// The waiting items. No queue is empty.
    waiting: HashMap<ClientKey, VecDeque<T>>,
    /// Empty queues for reuse by later clients, without allocation.
    spare: Vec<VecDeque<T>>,
    length: usize,
}

impl<T> Default for ClientQueues<T> {
    fn default() -> Self {
        Self {
            turns: VecDeque::new(),
            waiting: HashMap::new(),
            spare: Vec::new(),
            length: 0,
        }
    }
}

impl<T> ClientQueues<T> {
    /// The number of waiting items of all clients.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The number of clients with waiting items.
    pub fn clients(&self) -> usize {
        self.turns.len()
    }

    /// Whether items of another client than this one wait.
    pub fn has_others(&self, client: ClientKey) -> bool {
        self.turns.iter().any(|one| *one != client)
    }

    pub fn push(&mut self, client: ClientKey, item: T) {
        let spare = &mut self.spare;
        let queue = self
            .waiting
            .entry(client)
            .or_insert_with(|| spare.pop().unwrap_or_default());
        if queue.is_empty() {
            self.turns.push_back(client);
        }
        queue.push_back(item);
        self.length += 1;
    }

    /// The item that [`ClientQueues::pop`] would return.
    pub fn first(&self) -> Option<&T> {
        self.waiting.get(self.turns.front()?)?.front()
    }

    /// Removes the first item of the client whose turn it is. Its next turn comes after those of
    /// all other clients.
    pub fn pop(&mut self) -> Option<T> {
        let client = self.turns.pop_front()?;
        let queue = self.waiting.get_mut(&client)?;
        let item = queue.pop_front()?;
        self.length -= 1;
        if queue.is_empty() {
            self.retire(client);
        } else {
            self.turns.push_back(client);
        }
        Some(item)
    }

    /// Removes the queue of a client without waiting items.
    fn retire(&mut self, client: ClientKey) {
        let queue = self.waiting.remove(&client);
        if self.spare.len() < SPARE {
            self.spare.extend(queue);
        }
    }

    /// Removes the last item of the longest queue, if that makes room for `newcomer` without making
    /// its own queue the longest. Items of the server itself are never removed, as no client would
    /// retry them.
    pub fn make_room(&mut self, newcomer: ClientKey) -> Option<T> {
        let own = self.waiting.get(&newcomer).map_or(0, VecDeque::len);
        let others = self.turns.iter().filter(|one| **one != ClientKey::OWN);
        let longest = others
            .copied()
            .max_by_key(|one| self.waiting.get(one).map_or(0, VecDeque::len))?;
        let queue = self.waiting.get_mut(&longest)?;
        // At least two, so that one remains.
        if queue.len() < own + 2 {
            return None;
        }
        self.length -= 1;
        queue.pop_back()
    }
}

impl<T: PartialEq> ClientQueues<T> {
    /// Removes a client's item that is cancelled. Returns whether it waited.
    pub fn remove(&mut self, client: ClientKey, item: &T) -> bool {
        let Some(queue) = self.waiting.get_mut(&client) else {
            return false;
        };
        let Some(index) = queue.iter().position(|one| one == item) else {
            return false;
        };
        queue.remove(index);
        self.length -= 1;
        if queue.is_empty() {
            self.turns.retain(|one| *one != client);
            self.retire(client);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u128) -> ClientKey {
        ClientKey::new(number)
    }

    fn all<T>(queues: &mut ClientQueues<T>) -> Vec<T> {
        std::iter::from_fn(|| queues.pop()).collect()
    }

    #[test]
    fn clients_have_turns_and_each_keeps_its_order() {
        let mut queues = ClientQueues::default();
        for number in 0..4 {
            queues.push(client(1), (1, number));
        }
        queues.push(client(2), (2, 0));
        queues.push(client(3), (3, 0));
        queues.push(client(2), (2, 1));
        assert_eq!((queues.len(), queues.clients()), (7, 3));
        let first: Vec<_> = (0..3).filter_map(|_| queues.pop()).collect();
        assert_eq!(first, [(1, 0), (2, 0), (3, 0)]);
        // A client without items loses its turn, and gets a new one with its next item.
        queues.push(client(3), (3, 1));
        let rest = all(&mut queues);
        assert_eq!(rest, [(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]);
        assert_eq!((queues.len(), queues.clients()), (0, 0));
        assert!(queues.waiting.is_empty());
    }

    #[test]
    fn who_leaves_gives_up_its_place_and_its_client_the_turn() {
        let mut queues = ClientQueues::default();
        queues.push(client(1), 10);
        queues.push(client(2), 20);
        queues.push(client(2), 21);
        assert!(!queues.remove(client(1), &20), "another client's");
        assert!(queues.remove(client(2), &20));
        assert_eq!(queues.first(), Some(&10));
        assert!(queues.remove(client(1), &10));
        assert_eq!((queues.len(), queues.clients()), (1, 1));
        queues.push(client(1), 11);
        assert_eq!(all(&mut queues), [21, 11]);
        assert_eq!(queues.first(), None);
        assert!(queues.waiting.is_empty());
    }

    #[test]
    fn others_are_those_of_another_client() {
        let mut queues = ClientQueues::default();
        assert!(!queues.has_others(client(1)));
        queues.push(client(1), ());
        assert!(!queues.has_others(client(1)));
        assert!(queues.has_others(client(2)));
    }

    #[test]
    fn the_longest_queue_gives_way_from_its_end_but_not_to_make_another_longer() {
        let mut queues = ClientQueues::default();
        for number in 0..5 {
            queues.push(client(1), (1, number));
        }
        queues.push(client(2), (2, 0));
        assert_eq!(queues.make_room(client(1)), None, "it has the longest");
        assert_eq!(queues.make_room(client(3)), Some((1, 4)));
        // Of the four remaining ones, one more is removed for a client that has one, and then none.
        assert_eq!(queues.make_room(client(2)), Some((1, 3)));
        assert_eq!(queues.make_room(client(2)), Some((1, 2)));
        assert_eq!(queues.make_room(client(2)), None);
        assert_eq!(queues.len(), 3);
        assert_eq!(queues.make_room(client(3)), Some((1, 1)));
        assert_eq!(queues.make_room(client(3)), None, "all have one");
        assert_eq!(all(&mut queues), [(1, 0), (2, 0)]);
    }

    #[test]
    fn what_the_server_does_for_itself_never_gives_way() {
        let mut queues = ClientQueues::default();
        for number in 0..5 {
            queues.push(ClientKey::OWN, number);
        }
        assert_eq!(queues.make_room(client(1)), None);
        queues.push(client(1), 10);
        queues.push(client(1), 11);
        assert_eq!(queues.make_room(client(2)), Some(11));
        assert_eq!(queues.make_room(ClientKey::OWN), None);
    }
}
