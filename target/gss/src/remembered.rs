//! Answers of the host's databases, remembered for a time.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is remembered.
pub const KNOWN_FOR: Duration = Duration::from_mins(10);
/// How long it is remembered that there is none.
pub const UNKNOWN_FOR: Duration = Duration::from_mins(1);
/// Most questions with an answer that are remembered, and most without one.
pub const REMEMBERED_MAX: usize = 4096;

/// Answers by question. Questions without an answer have a bound of their own: names that a client
/// makes up do not displace others.
pub struct Remembered<K, V>(Mutex<Answers<K, V>>);

struct Answers<K, V> {
    known: HashMap<K, (V, Instant)>,
    unknown: HashMap<K, ((), Instant)>,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self(Mutex::new(Answers {
            known: HashMap::new(),
            unknown: HashMap::new(),
        }))
    }
}

impl<K: Eq + Hash, V: Clone> Remembered<K, V> {
    /// The answer to a question, if it is remembered: perhaps that there is none.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, question: &Q, now: Instant) -> Option<Option<V>>
    where
        K: Borrow<Q>,
    {
        let answers = self.lock();
        if let Some((answer, until)) = answers.known.get(question)
            && now < *until
        {
            return Some(Some(answer.clone()));
        }
        let ((), until) = answers.unknown.get(question)?;
        (now < *until).then_some(None)
    }

    /// Remembers an answer, or that there is none.
    pub fn put(&self, question: K, answer: Option<V>, now: Instant) {
        let answers = &mut *self.lock();
        match answer {
            Some(answer) => {
                answers.unknown.remove(&question);
                insert(&mut answers.known, question, (answer, now + KNOWN_FOR), now);
            }
            None => {
                answers.known.remove(&question);
                insert(&mut answers.unknown, question, ((), now + UNKNOWN_FOR), now);
            }
        }
    }

    /// Forgets one question.
    pub fn forget<Q: Eq + Hash + ?Sized>(&self, question: &Q)
    where
        K: Borrow<Q>,
    {
        let mut answers = self.lock();
        answers.known.remove(question);
        answers.unknown.remove(question);
    }

    /// Forgets all.
    pub fn clear(&self) {
        let mut answers = self.lock();
        answers.known.clear();
        answers.unknown.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Answers<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Questions with an answer, and those without.
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize) {
        let answers = self.lock();
        (answers.known.len(), answers.unknown.len())
    }
}

fn insert<K: Eq + Hash, V>(
    answers: &mut HashMap<K, (V, Instant)>,
    question: K,
    answer: (V, Instant),
    now: Instant,
) {
    if answers.len() >= REMEMBERED_MAX {
        answers.retain(|_, (_, until)| now < *until);
        if answers.len() >= REMEMBERED_MAX {
            answers.clear();
        }
    }
    answers.insert(question, answer);
}
