//! Calls that wait for a task: each client's in a line of its own, and the clients in turn.

use std::collections::VecDeque;
use std::rc::Rc;

use super::{Arrived, Connection};
use crate::flow::Tenant;

/// Calls that wait for a task.
#[derive(Default)]
pub struct Backlog {
    /// Clients with calls that wait; whose turn it is comes first.
    lines: VecDeque<(Rc<Tenant>, VecDeque<Arrived>)>,
}

impl Backlog {
    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Calls that wait.
    pub fn len(&self) -> usize {
        self.lines.iter().map(|(_, line)| line.len()).sum()
    }

    /// How many calls of each client wait.
    pub fn waiting(&self) -> impl Iterator<Item = (&Rc<Tenant>, usize)> {
        self.lines.iter().map(|(tenant, line)| (tenant, line.len()))
    }

    /// Whether calls of this client wait, so that its next one has to wait behind them.
    pub fn holds(&self, tenant: &Rc<Tenant>) -> bool {
        self.lines
            .iter()
            .any(|(other, _)| Rc::ptr_eq(other, tenant))
    }

    /// Puts a call at the end of its client's line.
    pub fn push(&mut self, call: Arrived) {
        let tenant = call.connection.tenant();
        let line = self
            .lines
            .iter_mut()
            .find(|(other, _)| Rc::ptr_eq(other, tenant));
        match line {
            Some((_, line)) => line.push_back(call),
            None => {
                let tenant = Rc::clone(tenant);
                self.lines.push_back((tenant, VecDeque::from([call])));
            }
        }
    }

    /// Takes the next call of the next client that `may` have one served; that client then comes
    /// after all others.
    pub fn pop(&mut self, may: impl Fn(&Tenant) -> bool) -> Option<Arrived> {
        let at = self.lines.iter().position(|(tenant, _)| may(tenant))?;
        let (tenant, mut line) = self.lines.remove(at)?;
        let call = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((tenant, line));
        }
        call
    }

    /// Puts back a call that was taken and found no task.
    pub fn put_back(&mut self, call: Arrived) {
        let tenant = Rc::clone(call.connection.tenant());
        let at = self
            .lines
            .iter()
            .position(|(other, _)| Rc::ptr_eq(other, &tenant));
        let mut line = at
            .and_then(|at| self.lines.remove(at))
            .map_or_else(VecDeque::new, |(_, line)| line);
        line.push_front(call);
        self.lines.push_front((tenant, line));
    }

    /// Takes out the calls of a connection that has ended: their client sends them again.
    pub fn leave(&mut self, connection: &Rc<Connection>, mut left: impl FnMut(Arrived)) {
        for (_, line) in &mut self.lines {
            for _ in 0..line.len() {
                match line.pop_front() {
                    Some(call) if Rc::ptr_eq(&call.connection, connection) => left(call),
                    Some(call) => line.push_back(call),
                    None => {}
                }
            }
        }
        self.lines.retain(|(_, line)| !line.is_empty());
    }

    /// Takes out all calls.
    pub fn take(&mut self) -> impl Iterator<Item = Arrived> + use<> {
        let lines = std::mem::take(&mut self.lines);
        lines.into_iter().flat_map(|(_, line)| line)
    }
}
