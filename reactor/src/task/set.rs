//! The set of tasks.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use super::ready::{PlaceWaker, ReadySet};
use crate::alarm::Alarm;

/// Identifies one task of one set; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    /// The slot in the set, below its capacity.
    pub index: u32,
    /// Distinguishes the users of one slot over time.
    pub generation: u32,
}

/// The end of a task.
#[derive(Debug)]
pub struct TaskEnd<O> {
    /// The task.
    pub task: TaskId,
    /// Its result, or the payload of its panic: then its owner ends what it served, whose state is
    /// unknown.
    pub outcome: thread::Result<O>,
}

/// A set of tasks of one type.
pub struct TaskSet<F> {
    places: Vec<TaskPlace<F>>,
    free: Vec<u32>,
    ready: Arc<ReadySet>,
    capacity: usize,
}

struct TaskPlace<F> {
    future: Pin<Box<Option<F>>>,
    generation: u32,
    waker: Waker,
}

impl<F: Future> TaskSet<F> {
    /// A set of at most `capacity` tasks. Wakers ring `alarm`, for reactors that sleep.
    ///
    /// # Panics
    /// If `capacity` does not fit 32 bits.
    pub fn new(capacity: usize, alarm: Option<&Alarm>) -> Self {
        assert!(u32::try_from(capacity).is_ok(), "indices have 32 bits");
        Self {
            places: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            ready: Arc::new(ReadySet::new(capacity, alarm.cloned())),
            capacity,
        }
    }

    /// Adds a task; the next [`TaskSet::run`] polls it.
    ///
    /// # Errors
    /// Returns the future if the set is full.
    pub fn spawn(&mut self, future: F) -> Result<TaskId, F> {
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None if self.places.len() < self.capacity => {
                let index = self.places.len();
                let waker = Arc::new(PlaceWaker {
                    ready: Arc::clone(&self.ready),
                    index,
                });
                let waker = Waker::from(waker);
                self.places.push(TaskPlace {
                    future: Box::pin(None),
                    generation: 0,
                    waker,
                });
                index
            }
            None => return Err(future),
        };
        let place = &mut self.places[index];
        place.future.set(Some(future));
        self.ready.set(index);
        Ok(place.id(index))
    }

    /// Polls every woken task, once, and appends those that ended. Returns the number of polls.
    /// Tasks woken in the meantime are polled by the next run at the latest.
    pub fn run(&mut self, ended: &mut Vec<TaskEnd<F::Output>>) -> usize {
        let Self {
            places,
            free,
            ready,
            ..
        } = self;
        let mut polls = 0;
        ready.take(|index| polls += usize::from(poll_place(places, free, index, ended)));
        polls
    }

    /// Takes the tasks that were woken, for a caller that chooses when to poll each of them by
    /// [`run_one`](Self::run_one).
    pub fn take_woken(&mut self, mut each: impl FnMut(TaskId)) {
        let Self { places, ready, .. } = self;
        ready.take(|index| {
            let place = &places[index];
            if place.future.is_some() {
                each(place.id(index));
            }
        });
    }

    /// Polls one task at once, woken or not: for a caller that has just given it work while both
    /// are in the core's cache. False if the task has ended before.
    pub fn run_one(&mut self, task: TaskId, ended: &mut Vec<TaskEnd<F::Output>>) -> bool {
        let index = task.index as usize;
        let known = self.places.get(index);
        known.is_some_and(|place| place.generation == task.generation)
            && poll_place(&mut self.places, &mut self.free, index, ended)
    }

    /// Makes the next run poll a task, so that it can observe that its wait was cancelled.
    pub fn wake(&self, task: TaskId) {
        let known = self.places.get(task.index as usize);
        if known.is_some_and(|place| place.generation == task.generation) {
            self.ready.set(task.index as usize);
        }
    }

    /// Drops a task at any point. False if it has ended already.
    ///
    /// A panic of its destructor is caught and ignored.
    pub fn cancel(&mut self, task: TaskId) -> bool {
        let Some(place) = self.places.get_mut(task.index as usize) else {
            return false;
        };
        if place.generation != task.generation || place.future.is_none() {
            return false;
        }
        let _ = place.clear();
        self.free.push(task.index);
        true
    }

    /// Tasks that have not ended.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most tasks at once.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// Polls the task of a slot, and clears the slot if it ends. False if there is no task.
fn poll_place<F: Future>(
    places: &mut [TaskPlace<F>],
    free: &mut Vec<u32>,
    index: usize,
    ended: &mut Vec<TaskEnd<F::Output>>,
) -> bool {
    let place = &mut places[index];
    let outcome = match place.poll() {
        None => return false,
        Some(Ok(Poll::Pending)) => return true,
        Some(Ok(Poll::Ready(output))) => Ok(output),
        Some(Err(panic)) => Err(panic),
    };
    let task = place.id(index);
    let outcome = place.clear().and(outcome);
    free.push(task.index);
    ended.push(TaskEnd { task, outcome });
    true
}

impl<F: Future> TaskPlace<F> {
    /// `None` if there is no task to poll: late wakers of an earlier one may still be called.
    fn poll(&mut self) -> Option<thread::Result<Poll<F::Output>>> {
        let future = self.future.as_mut().as_pin_mut()?;
        let mut context = Context::from_waker(&self.waker);
        // After a panic the future is dropped without another poll, so its broken state is not
        // observed.
        Some(catch_unwind(AssertUnwindSafe(|| future.poll(&mut context))))
    }

    fn clear(&mut self) -> Result<(), Box<dyn Any + Send>> {
        self.generation = self.generation.wrapping_add(1);
        catch_unwind(AssertUnwindSafe(|| self.future.set(None)))
    }
}

impl<F> TaskPlace<F> {
    fn id(&self, index: usize) -> TaskId {
        let index = u32::try_from(index).expect("below the capacity");
        TaskId {
            index,
            generation: self.generation,
        }
    }
}

impl<F: Future> fmt::Debug for TaskSet<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TaskSet")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish()
    }
}
