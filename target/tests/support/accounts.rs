//! A stand-in for the host's users and groups.

use std::io;
use std::sync::{Arc, Condvar, Mutex};

use millrace_gss::{Account, AccountDirectory, AccountKind, AccountQuestion};

/// Kind, number and name of each.
const ACCOUNTS: [(AccountKind, u32, &str); 7] = [
    (AccountKind::User, 0, "root"),
    (AccountKind::User, 1000, "alice"),
    (AccountKind::User, 1001, "bob"),
    (AccountKind::User, 4000, "slow"),
    (AccountKind::Group, 0, "root"),
    (AccountKind::Group, 2000, "staff"),
    (AccountKind::Group, 3000, "alice"),
];

/// What the directory waits for when it is asked for the user `slow`.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let is_open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

/// A few users and groups.
#[derive(Default)]
pub struct FakeAccounts {
    pub gate: Gate,
}

impl AccountDirectory for FakeAccounts {
    fn account(&self, question: &AccountQuestion) -> io::Result<Option<Account>> {
        let found = ACCOUNTS.iter().find(|(kind, number, name)| match question {
            AccountQuestion::Name(of, wanted) => of == kind && **wanted == **name,
            AccountQuestion::Number(of, wanted) => of == kind && wanted == number,
        });
        if found.is_some_and(|(_, _, name)| *name == "slow") {
            self.gate.pass();
        }
        Ok(found.map(|&(_, number, name)| Account {
            number,
            name: name.into(),
        }))
    }
}
