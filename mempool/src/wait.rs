//! First-in-first-out queues of those who wait for a buffer: linked lists in one slab, so that
//! joining, serving and leaving from the middle take constant time and no allocation.

use std::task::Waker;

use crate::Class;
use crate::buffer::Lease;

const NONE: u32 = u32::MAX;

/// Names a waiter until it is removed.
#[derive(Debug)]
pub(crate) struct WaiterId(u32);

/// Where a waiter stands.
pub(crate) enum State {
    /// Nobody's node.
    Free,
    /// In the queue.
    Waiting(Waker),
    /// Out of the queue, with a buffer to fetch.
    Served(Lease),
}

struct Node {
    state: State,
    class: Class,
    previous: u32,
    /// The next waiter of the class, or the next free node.
    next: u32,
}

#[derive(Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
}

pub(crate) struct WaitQueues {
    nodes: Vec<Node>,
    free: u32,
    queues: [Queue; 3],
}

impl Default for WaitQueues {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            queues: [Queue {
                head: NONE,
                tail: NONE,
            }; 3],
        }
    }
}

impl WaitQueues {
    pub fn is_empty(&self, class: Class) -> bool {
        self.queues[class.index()].head == NONE
    }

    /// Joins the end of a queue.
    pub fn join(&mut self, class: Class, waker: Waker) -> WaiterId {
        let previous = self.queues[class.index()].tail;
        let node = Node {
            state: State::Waiting(waker),
            class,
            previous,
            next: NONE,
        };
        let index = if self.free == NONE {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 waiters")
        } else {
            let index = self.free;
            self.free = std::mem::replace(&mut self.nodes[index as usize], node).next;
            index
        };
        match previous {
            NONE => self.queues[class.index()].head = index,
            previous => self.nodes[previous as usize].next = index,
        }
        self.queues[class.index()].tail = index;
        WaiterId(index)
    }

    /// Gives a buffer to the head of the queue of its class. The waker is for the caller to wake
    /// once nothing is borrowed.
    pub fn serve(&mut self, class: Class, lease: Lease) -> Result<Waker, Lease> {
        let head = self.queues[class.index()].head;
        if head == NONE {
            return Err(lease);
        }
        self.unlink(head);
        let served = State::Served(lease);
        match std::mem::replace(&mut self.nodes[head as usize].state, served) {
            State::Waiting(waker) => Ok(waker),
            State::Free | State::Served(_) => unreachable!("only waiters are queued"),
        }
    }

    /// The buffer of a served waiter, whose name ends here; else the waiter keeps waiting with
    /// `waker`, which is exchanged for the earlier one.
    pub fn poll(&mut self, id: &WaiterId, waker: &mut Waker) -> Option<Lease> {
        if let State::Waiting(known) = &mut self.nodes[id.0 as usize].state {
            std::mem::swap(known, waker);
            return None;
        }
        match self.release(id.0) {
            State::Served(lease) => Some(lease),
            State::Free | State::Waiting(_) => unreachable!("the waiter holds its node"),
        }
    }

    /// Leaves, wherever in the queue. The caller drops what comes back once nothing is borrowed.
    pub fn leave(&mut self, id: &WaiterId) -> State {
        if matches!(self.nodes[id.0 as usize].state, State::Waiting(_)) {
            self.unlink(id.0);
        }
        self.release(id.0)
    }

    fn unlink(&mut self, index: u32) {
        let Node {
            class,
            previous,
            next,
            ..
        } = self.nodes[index as usize];
        let queue = &mut self.queues[class.index()];
        match previous {
            NONE => queue.head = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => queue.tail = previous,
            next => self.nodes[next as usize].previous = previous,
        }
    }

    fn release(&mut self, index: u32) -> State {
        let node = &mut self.nodes[index as usize];
        node.next = std::mem::replace(&mut self.free, index);
        std::mem::replace(&mut node.state, State::Free)
    }
}
