//! Those who wait for a place, first in, first out.

use std::collections::VecDeque;
use std::task::Waker;

/// A line of waiters, and the places that were handed to those who have not come for them yet.
#[derive(Default)]
pub struct Line {
    /// By ticket, from `first` on. Those who left are `None`.
    waiting: VecDeque<Option<Waker>>,
    first: u64,
    /// How many of `waiting` have not left.
    length: usize,
    served: VecDeque<(u64, u32)>,
}

impl Line {
    /// Waiters that have no place yet.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Takes a ticket.
    pub fn join(&mut self, waker: &Waker) -> u64 {
        self.waiting.push_back(Some(waker.clone()));
        self.length += 1;
        self.first + self.waiting.len() as u64 - 1
    }

    /// Gives a place to the first in line.
    pub fn serve(&mut self, place: u32) -> Option<Waker> {
        while let Some(waiter) = self.waiting.pop_front() {
            let ticket = self.first;
            self.first += 1;
            if let Some(waker) = waiter {
                self.length -= 1;
                self.served.push_back((ticket, place));
                return Some(waker);
            }
        }
        None
    }

    /// The place for a ticket, when it was its turn; until then `waker` is who to wake.
    pub fn poll(&mut self, ticket: u64, waker: &Waker) -> Option<u32> {
        if let Some(mine) = self.waiter(ticket) {
            match mine {
                Some(known) => known.clone_from(waker),
                None => unreachable!("left the line"),
            }
            return None;
        }
        self.collect(ticket)
    }

    /// Gives a ticket back, with the place if it was its turn already.
    pub fn leave(&mut self, ticket: u64) -> Option<u32> {
        if let Some(mine) = self.waiter(ticket) {
            *mine = None;
            self.length -= 1;
            // Those at either end need no place any more: a line that stands for long, while many
            // come and go, does not grow.
            while let Some(None) = self.waiting.back() {
                self.waiting.pop_back();
            }
            while let Some(None) = self.waiting.front() {
                self.waiting.pop_front();
                self.first += 1;
            }
            return None;
        }
        self.collect(ticket)
    }

    fn waiter(&mut self, ticket: u64) -> Option<&mut Option<Waker>> {
        let index = ticket.checked_sub(self.first)?;
        self.waiting.get_mut(usize::try_from(index).ok()?)
    }

    fn collect(&mut self, ticket: u64) -> Option<u32> {
        let mine = self.served.iter().position(|&(theirs, _)| theirs == ticket);
        mine.and_then(|index| self.served.remove(index))
            .map(|(_, place)| place)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::Line;

    #[test]
    fn who_comes_and_goes_leaves_nothing() {
        let waker = Waker::noop();
        let mut line = Line::default();
        let first = line.join(waker);
        for _ in 0..1000 {
            let tickets = [line.join(waker), line.join(waker)];
            for ticket in tickets {
                assert_eq!(line.leave(ticket), None);
            }
        }
        assert_eq!((line.len(), line.waiting.len()), (1, 1));
        let second = line.join(waker);
        assert_eq!(line.leave(first), None);
        assert_eq!((line.len(), line.waiting.len()), (1, 1));
        assert!(line.serve(3).is_some());
        assert_eq!(line.poll(second, waker), Some(3));
    }

    #[test]
    fn places_go_by_order_of_arrival_to_those_who_still_wait() {
        let waker = Waker::noop();
        let mut line = Line::default();
        assert!(line.serve(7).is_none());
        let tickets: Vec<u64> = (0..5).map(|_| line.join(waker)).collect();
        assert_eq!(line.leave(tickets[0]), None);
        assert_eq!(line.leave(tickets[2]), None);
        assert_eq!(line.len(), 3);
        assert!(line.serve(10).is_some());
        assert!(line.serve(11).is_some());
        assert_eq!(line.poll(tickets[4], waker), None);
        assert_eq!(line.poll(tickets[3], waker), Some(11));
        assert_eq!(line.leave(tickets[1]), Some(10));
        assert!(line.serve(12).is_some());
        assert_eq!(line.len(), 0);
        assert!(line.serve(13).is_none());
        assert_eq!(line.poll(tickets[4], waker), Some(12));
        let late = line.join(waker);
        assert!(line.serve(14).is_some());
        assert_eq!(line.poll(late, waker), Some(14));
    }
}
