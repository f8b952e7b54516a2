//! Syncs of a file, shared by the calls that wait for its data to be durable.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Poll, Waker};

use millrace_primitives::{WaitQueue, Waiter};

use super::file_state::FileState;
use crate::Result;

/// The calls of one reactor that wait for one file to be durable.
///
/// A sync covers data that was written before it began. So a call that arrives during a sync needs
/// the next one, which it shares with all other calls that arrived in the meantime.
#[derive(Default)]
pub(in crate::posix) struct SyncGroup {
    state: RefCell<GroupState>,
}

#[derive(Default)]
struct GroupState {
    running: bool,
    /// The number of syncs begun: that of the running one or the last.
    begun: u64,
    /// Keyed by the number of the first sync that suffices.
    waiters: WaitQueue<Result<()>, u64>,
}

/// The next step of a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Begin the sync, on behalf of all that wait for it.
    Lead,
    /// The result of the sync.
    Done(Result<()>),
}

impl SyncGroup {
    /// Adds a waiter for the durability of all bytes written so far.
    pub(super) fn join(&self) -> SyncWaiter<'_> {
        let state = &mut *self.state.borrow_mut();
        let waker = Waker::noop().clone();
        SyncWaiter {
            group: self,
            waiter: state.waiters.join(state.begun + 1, waker),
            outcome: Cell::new(None),
        }
    }

    /// Records that a sync is submitted to the kernel.
    pub fn begin(&self) {
        let mut state = self.state.borrow_mut();
        debug_assert!(!state.running, "one at a time");
        state.running = true;
        state.begun += 1;
    }

    /// Records the result of the sync; `None` if it was not submitted.
    pub fn ended(&self, outcome: Option<Result<()>>) {
        let state = &mut *self.state.borrow_mut();
        state.running = false;
        if let Some(outcome) = outcome {
            while state
                .waiters
                .first()
                .is_some_and(|&number| number <= state.begun)
                && let Ok(waker) = state.waiters.grant(outcome)
            {
                waker.wake();
            }
        }
        state.wake_all();
    }
}

impl GroupState {
    /// Wakes the waiters for the next sync: the first one polled leads it.
    fn wake_all(&self) {
        self.waiters.wakers().for_each(Waker::wake_by_ref);
    }
}

pub(super) struct SyncWaiter<'a> {
    group: &'a SyncGroup,
    waiter: Waiter,
    /// The result of the awaited sync.
    outcome: Cell<Option<Result<()>>>,
}

impl SyncWaiter<'_> {
    /// Waits for the next step.
    pub async fn turn(&self) -> Turn {
        poll_fn(|context| match self.look(Some(context.waker())) {
            Some(turn) => Poll::Ready(turn),
            None => Poll::Pending,
        })
        .await
    }

    pub fn look(&self, waker: Option<&Waker>) -> Option<Turn> {
        let state = &mut *self.group.state.borrow_mut();
        if self.outcome.get().is_none() {
            let mut waker = waker.unwrap_or(Waker::noop()).clone();
            self.outcome
                .set(state.waiters.poll(&self.waiter, &mut waker));
        }
        match self.outcome.get() {
            Some(outcome) => Some(Turn::Done(outcome)),
            None => (!state.running).then_some(Turn::Lead),
        }
    }
}

impl Drop for SyncWaiter<'_> {
    fn drop(&mut self) {
        let state = &mut *self.group.state.borrow_mut();
        if self.outcome.get().is_none() {
            state.waiters.leave(&self.waiter);
        }
        if !state.running {
            // This one may have been about to lead.
            state.wake_all();
        }
    }
}

/// State of one reactor's reads, writes and syncs of an object.
#[derive(Default)]
pub(in crate::posix) struct ObjectState {
    pub group: SyncGroup,
    /// A success of its syncs is conclusive.
    settled: Cell<bool>,
}

impl ObjectState {
    /// Whether a success of this reactor's syncs is conclusive. The kernel reports an error of
    /// writing back once to each descriptor that was open before. One opened later relies on the
    /// holder of an earlier one to have changed the verifier by now; so syncs in progress must have
    /// ended.
    pub fn is_settled(&self, shared: &FileState) -> bool {
        let own = u32::from(self.group.state.borrow().running);
        if shared.syncing.load(SeqCst) <= own {
            self.settled.set(true);
        }
        self.settled.get()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;
    use crate::StoreError;

    /// A task that counts how often it is woken.
    #[derive(Default)]
    struct CountedTask(AtomicUsize);

    impl Wake for CountedTask {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn whoever_gives_up_lets_another_lead_unless_a_sync_runs() {
        let group = SyncGroup::default();
        let (first, second, last) = (group.join(), group.join(), group.join());
        let task = Arc::<CountedTask>::default();
        let waker = Waker::from(task.clone());
        assert_eq!(last.look(Some(&waker)), Some(Turn::Lead));
        drop(first);
        assert_eq!(task.0.load(SeqCst), 1);
        group.begin();
        assert_eq!(last.look(Some(&waker)), None);
        drop(second);
        assert_eq!(task.0.load(SeqCst), 1);
        // One that was never asked of the kernel leaves it to them, too.
        group.ended(None);
        assert_eq!(task.0.load(SeqCst), 2);
        assert_eq!(last.look(Some(&waker)), Some(Turn::Lead));
    }

    #[test]
    fn the_first_success_says_all_only_once_nobody_else_syncs() {
        let (object, file) = (ObjectState::default(), FileState::default());
        file.syncing.store(1, SeqCst);
        assert!(!object.is_settled(&file), "another's");
        object.group.begin();
        assert!(object.is_settled(&file), "its own");
        file.syncing.store(5, SeqCst);
        assert!(
            object.is_settled(&file),
            "from now on it is told all itself"
        );
    }

    #[derive(Clone, Copy, Debug)]
    enum Action {
        Write,
        Commit,
        Lead(usize),
        GiveUp(usize),
        End(Option<bool>),
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            2 => Just(Action::Write),
            4 => Just(Action::Commit),
            3 => (0..8_usize).prop_map(Action::Lead),
            1 => (0..8_usize).prop_map(Action::GiveUp),
            3 => prop_oneof![
                4 => Just(Some(true)),
                1 => Just(Some(false)),
                1 => Just(None),
            ]
            .prop_map(Action::End),
        ]
    }

    proptest! {
        /// Time is counted in writes. A sync covers those before its begin.
        #[test]
        fn whoever_is_done_has_a_sync_that_began_after_they_came(
            actions in prop::collection::vec(action(), 1..200)
        ) {
            let group = SyncGroup::default();
            let mut written = 0_u32;
            let mut running = None;
            // The writes before each waiter, and the result of a sync that covers them.
            let mut waiting: Vec<(u32, SyncWaiter<'_>, Option<Result<()>>)> = Vec::new();
            for action in actions {
                match action {
                    Action::Write => written += 1,
                    Action::Commit => waiting.push((written, group.join(), None)),
                    Action::Lead(index)
                        if index < waiting.len()
                            && waiting[index].1.look(None) == Some(Turn::Lead) =>
                    {
                        prop_assert_eq!(running, None, "one sync at a time");
                        group.begin();
                        running = Some((written, waiting.len()));
                    }
                    Action::GiveUp(index) if index < waiting.len() => {
                        waiting.remove(index);
                        if let Some((_, came)) = &mut running
                            && index < *came
                        {
                            *came -= 1;
                        }
                    }
                    Action::End(outcome) => {
                        if let Some((covers, came)) = running.take() {
                            let outcome = outcome.map(|well| match well {
                                true => Ok(()),
                                false => Err(StoreError::Io),
                            });
                            group.ended(outcome);
                            for (number, (written, _, done)) in waiting.iter_mut().enumerate() {
                                if number < came && done.is_none() {
                                    prop_assert!(*written <= covers);
                                    *done = outcome;
                                }
                            }
                        }
                    }
                    _ => {}
                }
                for (_, place, done) in &waiting {
                    let expected = match (*done, running) {
                        (Some(outcome), _) => Some(Turn::Done(outcome)),
                        (None, Some(_)) => None,
                        (None, None) => Some(Turn::Lead),
                    };
                    prop_assert_eq!(place.look(None), expected);
                }
            }
        }
    }
}
