//! Tasks that wait, first in, first out: a linked list in one slab, so that joining, granting and
//! leaving from the middle take constant time, and no allocation once the slab has grown.
//!
//! A [`WaitQueue`] knows no lock and runs no foreign code: what could (wakers, grants) is handed
//! back to its owner, who wakes and drops it once nothing is borrowed.

use std::task::Waker;

const NONE: u32 = u32::MAX;

/// Names a waiter of one queue from [`WaitQueue::join`] until [`WaitQueue::poll`] gave its grant or
/// [`WaitQueue::leave`] took it.
#[derive(Debug)]
#[must_use = "a waiter that is forgotten stays in the queue"]
pub struct Waiter(u32);

/// What a waiter leaves behind.
#[derive(Debug)]
pub enum Departure<G> {
    /// It was in the queue.
    Waiting(Waker),
    /// It had been granted this and had not come for it: the next in the queue may have it.
    Granted(G),
}

/// Waiters who ask for `R` and are granted `G`, in the order in which they joined.
#[derive(Debug)]
pub struct WaitQueue<G = (), R = ()> {
    nodes: Vec<Node<G, R>>,
    free: u32,
    head: u32,
    tail: u32,
    length: usize,
}

#[derive(Debug)]
struct Node<G, R> {
    /// `None` while the node is free.
    stage: Option<Departure<G>>,
    request: Option<R>,
    previous: u32,
    /// The next waiter, or the next free node.
    next: u32,
}

impl<G, R> Default for WaitQueue<G, R> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            head: NONE,
            tail: NONE,
            length: 0,
        }
    }
}

impl<G, R> WaitQueue<G, R> {
    /// Whether no one waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Those who wait. Those with a grant do not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// What the first in the queue asks for.
    #[must_use]
    pub fn first(&self) -> Option<&R> {
        self.nodes.get(self.head as usize)?.request.as_ref()
    }

    /// Who is to be woken for the first in the queue to look again; it stays the first.
    #[must_use]
    pub fn first_waker(&self) -> Option<Waker> {
        match &self.nodes.get(self.head as usize)?.stage {
            Some(Departure::Waiting(waker)) => Some(waker.clone()),
            _ => None,
        }
    }

    /// Who is to be woken for all to look again, in order.
    pub fn wakers(&self) -> impl Iterator<Item = &Waker> {
        let node = |index: u32| self.nodes.get(index as usize);
        let queued = std::iter::successors(node(self.head), move |one| node(one.next));
        queued.filter_map(|one| match &one.stage {
            Some(Departure::Waiting(waker)) => Some(waker),
            _ => None,
        })
    }

    /// Whether a waiter is the first in the queue.
    #[must_use]
    pub fn is_first(&self, waiter: &Waiter) -> bool {
        self.head == waiter.0
    }

    /// Joins the end of the queue.
    ///
    /// # Panics
    /// With 2^32 waiters.
    pub fn join(&mut self, request: R, waker: Waker) -> Waiter {
        let node = Node {
            stage: Some(Departure::Waiting(waker)),
            request: Some(request),
            previous: self.tail,
            next: NONE,
        };
        let index = self.free;
        let index = if let Some(free) = self.nodes.get_mut(index as usize) {
            self.free = std::mem::replace(free, node).next;
            index
        } else {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 waiters")
        };
        match self.nodes.get_mut(self.tail as usize) {
            Some(previous) => previous.next = index,
            None => self.head = index,
        }
        self.tail = index;
        self.length += 1;
        Waiter(index)
    }

    /// Grants to the first in the queue, which leaves it. Returns who is to be woken.
    ///
    /// # Errors
    /// No one waits: the grant comes back.
    pub fn grant(&mut self, grant: G) -> Result<Waker, G> {
        let Some(first) = self.nodes.get_mut(self.head as usize) else {
            return Err(grant);
        };
        match first.stage.replace(Departure::Granted(grant)) {
            Some(Departure::Waiting(waker)) => {
                self.unlink(self.head);
                Ok(waker)
            }
            _ => unreachable!("only waiters are queued"),
        }
    }

    /// The grant of a waiter, whose name ends here; else the waiter keeps waiting with `waker`,
    /// which is exchanged for the earlier one.
    pub fn poll(&mut self, waiter: &Waiter, waker: &mut Waker) -> Option<G> {
        let node = &mut self.nodes[waiter.0 as usize];
        if let Some(Departure::Waiting(known)) = &mut node.stage {
            std::mem::swap(known, waker);
            return None;
        }
        match self.release(waiter.0) {
            Departure::Granted(grant) => Some(grant),
            Departure::Waiting(_) => unreachable!("just looked at"),
        }
    }

    /// Leaves, wherever in the queue, and with a grant or without. If it was the first, those
    /// behind it may go on; see [`WaitQueue::first_waker`].
    pub fn leave(&mut self, waiter: &Waiter) -> Departure<G> {
        let node = &self.nodes[waiter.0 as usize];
        if matches!(node.stage, Some(Departure::Waiting(_))) {
            self.unlink(waiter.0);
        }
        self.release(waiter.0)
    }

    #[cfg(test)]
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn unlink(&mut self, index: u32) {
        let Node { previous, next, .. } = self.nodes[index as usize];
        match self.nodes.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.head = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => self.tail = previous,
        }
        self.length -= 1;
    }

    fn release(&mut self, index: u32) -> Departure<G> {
        let node = &mut self.nodes[index as usize];
        node.next = std::mem::replace(&mut self.free, index);
        node.request = None;
        node.stage.take().expect("the waiter holds its node")
    }
}
