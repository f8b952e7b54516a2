//! Users and groups of this host, by name and by number.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::remembered::Remembered;
use crate::{SystemDirectory, sys};

/// Users and groups have names and numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccountKind {
    /// A user.
    User,
    /// A group.
    Group,
}

/// The user or group that is looked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccountQuestion {
    /// The one of this name.
    Name(AccountKind, Box<str>),
    /// The one of this number.
    Number(AccountKind, u32),
}

/// A user or group of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: Arc<str>,
}

/// The host's users and groups. Called on helper threads; may block.
pub trait AccountDirectory: Send + Sync + 'static {
    /// A user or group; `None`: unknown.
    ///
    /// # Errors
    ///
    /// The database cannot be asked now.
    fn account(&self, question: &AccountQuestion) -> io::Result<Option<Account>>;
}

impl AccountDirectory for SystemDirectory {
    fn account(&self, question: &AccountQuestion) -> io::Result<Option<Account>> {
        sys::account(question)
    }
}

/// A directory, and what it answered: known users and groups for ten minutes, others for one.
pub struct Accounts {
    directory: Box<dyn AccountDirectory>,
    remembered: Remembered<AccountQuestion, Account>,
}

impl Accounts {
    /// Of this directory.
    #[must_use]
    pub fn new(directory: impl AccountDirectory) -> Self {
        Self {
            directory: Box::new(directory),
            remembered: Remembered::default(),
        }
    }

    /// The answer, if it is remembered.
    #[must_use]
    pub fn remembered(&self, question: &AccountQuestion) -> Option<Option<Account>> {
        self.remembered.get(question, Instant::now())
    }

    /// Has a question without an answer for a minute, unless one comes meanwhile.
    pub fn do_without(&self, question: AccountQuestion) {
        self.remembered.put(question, None, Instant::now());
    }

    /// The answer. Blocks, unless it is remembered or `until` has passed.
    ///
    /// # Errors
    ///
    /// The directory cannot be asked now. A number then counts as one without a name for a minute.
    pub fn look_up(
        &self,
        question: &AccountQuestion,
        until: Instant,
    ) -> io::Result<Option<Account>> {
        let begun = Instant::now();
        if let Some(answer) = self.remembered.get(question, begun) {
            return Ok(answer);
        }
        if begun >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let answer = self.directory.account(question);
        if answer.is_ok() || matches!(question, AccountQuestion::Number(..)) {
            let remembered = answer.as_ref().ok().cloned().flatten();
            self.remembered
                .put(question.clone(), remembered, Instant::now());
        }
        answer
    }
}

#[cfg(test)]
mod tests;
