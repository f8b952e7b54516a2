//! COMMIT: one sync of a file at a time, shared by all who came before it began.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Poll, Waker};

use millrace_primitives::{WaitQueue, Waiter};

use super::under_way::Work;
use super::{FileState, ObjectState, regular};
use crate::posix::ClientView;
use crate::posix::errors::io_error;
use crate::posix::objects::{Object, Use};
use crate::{Consistency, Handle, Modified, Result, StoreError, WriteVerifier};

/// How often the first sync of an object is repeated while another reactor syncs the same file.
const REPEATS: usize = 4;

/// Those who wait on one reactor for one file to be durable.
///
/// A sync makes durable what was written before it began. So whoever comes while one is under way
/// needs the next, and all who came meanwhile share it.
#[derive(Default)]
pub(super) struct Group {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    running: bool,
    /// Syncs that began: the number of the one that is running or was last.
    begun: u64,
    /// By the number of the first sync that is enough for them.
    waiters: WaitQueue<Result<()>, u64>,
}

/// What is next for one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Begin the sync that they wait for, on behalf of all who do.
    Lead,
    /// It ended so.
    Done(Result<()>),
}

impl Group {
    /// One more who wants durable what is written now.
    fn join(&self) -> Place<'_> {
        let state = &mut *self.state.borrow_mut();
        let waker = Waker::noop().clone();
        Place {
            group: self,
            waiter: state.waiters.join(state.begun + 1, waker),
            outcome: Cell::new(None),
        }
    }

    /// The kernel is asked for a sync from now on.
    fn begin(&self) {
        let mut state = self.state.borrow_mut();
        debug_assert!(!state.running, "one at a time");
        state.running = true;
        state.begun += 1;
    }

    /// The sync ended so; `None`: the kernel was never asked.
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

impl State {
    /// Wakes those who wait for the next sync: whoever is polled first leads it.
    fn wake_all(&self) {
        self.waiters.wakers().for_each(Waker::wake_by_ref);
    }
}

impl ObjectState {
    /// Whether a success of this reactor's syncs says all. The kernel tells an error of writing back
    /// once to each who had the file open before. Who opened it later relies on one who was told to
    /// have changed the verifier by now; so somebody whose sync is still under way has to be done.
    fn is_settled(&self, shared: &FileState) -> bool {
        let own = u32::from(self.group.state.borrow().running);
        if shared.syncing.load(SeqCst) <= own {
            self.settled.set(true);
        }
        self.settled.get()
    }
}

struct Place<'a> {
    group: &'a Group,
    waiter: Waiter,
    /// How the sync ended that it waited for.
    outcome: Cell<Option<Result<()>>>,
}

impl Place<'_> {
    /// Waits for what is next.
    async fn turn(&self) -> Turn {
        poll_fn(|context| match self.look(Some(context.waker())) {
            Some(turn) => Poll::Ready(turn),
            None => Poll::Pending,
        })
        .await
    }

    fn look(&self, waker: Option<&Waker>) -> Option<Turn> {
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

impl Drop for Place<'_> {
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

impl ClientView<'_> {
    pub(in crate::posix) async fn commit(
        &self,
        file: Handle,
        _offset: u64,
        _length: u32,
    ) -> Modified<WriteVerifier> {
        // The whole file: the kernel has no narrower sync that covers what is needed to find the
        // data again.
        let object = match self.objects.get(self.client, file).await {
            Ok(object) => object,
            Err(error) => return Modified::failed(error),
        };
        let synced = match regular(&object) {
            Ok(()) => self.sync(&object).await,
            Err(error) => Err(error),
        };
        if synced.is_ok() {
            self.data.counters.commits.add(1);
        }
        let consistency = Consistency {
            before: None,
            after: object.attributes(self.client).await.ok(),
        };
        Modified {
            consistency,
            // Read after the sync: an error of another has to be seen.
            result: synced.map(|()| self.volume.verifier()),
        }
    }

    /// Makes all that was written to a file before durable, with a sync of its own or a shared one.
    pub(super) async fn sync(&self, object: &Rc<Object>) -> Result<()> {
        for _ in 0..REPEATS {
            self.sync_once(object).await?;
            if object.local.is_settled(&object.shared.data) {
                break;
            }
        }
        Ok(())
    }

    async fn sync_once(&self, object: &Rc<Object>) -> Result<()> {
        // A file that cannot be written to any more may still have to be synced.
        let file = match object.data(self.client, Use::Write, false).await {
            Err(StoreError::ReadOnly) => object.data(self.client, Use::Read, false).await?,
            file => file?,
        };
        let place = object.local.group.join();
        loop {
            if let Turn::Done(outcome) = place.turn().await {
                return outcome;
            }
            let ticket = self.data.under_way.begin(self.client, object, 0).await?;
            // Another may have begun it, while this one waited to be admitted.
            if place.look(None) != Some(Turn::Lead) {
                continue;
            }
            object.local.group.begin();
            object.shared.data.syncing.fetch_add(1, SeqCst);
            let bytes = object.shared.data.dirty.swap(0, SeqCst);
            let hold = ticket.hold(Work::Sync { bytes });
            let ended = self
                .client_engine()
                .sync(&file.file, true, Some(hold))
                .await;
            match (place.look(None), ended) {
                (Some(Turn::Done(outcome)), _) => return outcome,
                // It did not come to the kernel.
                (_, Err(error)) => return Err(io_error(&error)),
                (_, Ok(())) => unreachable!("its hold was told"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        /// Time is counted in writes. A sync covers those before its beginning.
        #[test]
        fn whoever_is_done_has_a_sync_that_began_after_they_came(
            actions in prop::collection::vec(action(), 1..200)
        ) {
            let group = Group::default();
            let mut written = 0_u32;
            let mut running = None;
            // What was written when they came, and the outcome of a sync that covers it.
            let mut waiting: Vec<(u32, Place<'_>, Option<Result<()>>)> = Vec::new();
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
