//! Users and groups by name and by number.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::remembered::{KNOWN_FOR, REMEMBERED_MAX, UNKNOWN_FOR};

use AccountKind::{Group, User};

/// Knows user 7 and nobody else, and fails for some; counts how often it is asked.
struct CountingDirectory(Arc<AtomicUsize>);

impl AccountDirectory for CountingDirectory {
    fn account(&self, question: &AccountQuestion) -> io::Result<Option<Account>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let known = match question {
            AccountQuestion::Name(User, name) => &**name == "seven",
            AccountQuestion::Number(User, number) => *number == 7,
            _ => return Err(io::Error::other("the directory is down")),
        };
        Ok(known.then(|| Account {
            number: 7,
            name: "seven".into(),
        }))
    }
}

fn counted() -> (Accounts, impl Fn() -> usize) {
    let asked = Arc::<AtomicUsize>::default();
    let accounts = Accounts::new(CountingDirectory(Arc::clone(&asked)));
    (accounts, move || asked.swap(0, Ordering::Relaxed))
}

fn name(kind: AccountKind, name: &str) -> AccountQuestion {
    AccountQuestion::Name(kind, name.into())
}

/// A time that does not come.
fn late() -> Instant {
    Instant::now() + Duration::from_hours(1)
}

#[test]
fn v4_attr_15_answers_are_remembered_for_a_time() {
    let (accounts, asked) = counted();
    for (question, time) in [
        (name(User, "seven"), KNOWN_FOR),
        (AccountQuestion::Number(User, 7), KNOWN_FOR),
        (name(User, "eight"), UNKNOWN_FOR),
        (AccountQuestion::Number(User, 8), UNKNOWN_FOR),
    ] {
        assert_eq!(accounts.remembered(&question), None);
        let answer = accounts.look_up(&question, late()).expect("up");
        assert_eq!(answer.is_some(), time == KNOWN_FOR, "{question:?}");
        assert_eq!(accounts.look_up(&question, late()).expect("up"), answer);
        assert_eq!(asked(), 1);
        assert_eq!(accounts.remembered(&question), Some(answer));
        let after = |time| accounts.remembered.get(&question, Instant::now() + time);
        assert!(after(time / 2).is_some());
        assert_eq!(after(time), None);
    }
}

#[test]
fn v4_attr_15_a_directory_that_is_down_is_asked_again_for_names_only() {
    let (accounts, asked) = counted();
    let (named, numbered) = (name(Group, "down"), AccountQuestion::Number(Group, 9));
    for _ in 0..2 {
        assert!(accounts.look_up(&named, late()).is_err());
    }
    assert_eq!((asked(), accounts.remembered(&named)), (2, None));
    assert!(accounts.look_up(&numbered, late()).is_err());
    assert_eq!(accounts.look_up(&numbered, late()).expect("known"), None);
    assert_eq!(asked(), 1);
}

#[test]
fn v4_attr_15_nobody_is_asked_after_the_deadline() {
    let (accounts, asked) = counted();
    let question = name(User, "seven");
    let passed = accounts.look_up(&question, Instant::now());
    assert_eq!(passed.expect_err("late").kind(), io::ErrorKind::TimedOut);
    assert_eq!(asked(), 0);
    // What another one has asked meanwhile is answered all the same.
    accounts.look_up(&question, late()).expect("up");
    assert!(accounts.look_up(&question, Instant::now()).is_ok());
}

#[test]
fn v4_attr_15_what_is_remembered_is_bounded() {
    let (accounts, _) = counted();
    let known = name(User, "seven");
    accounts.look_up(&known, late()).expect("up");
    for number in 100..100 + 3 * REMEMBERED_MAX {
        let number = u32::try_from(number).expect("small");
        let unknown = AccountQuestion::Number(User, number);
        accounts.look_up(&unknown, late()).expect("up");
        assert!(accounts.remembered.len().1 <= REMEMBERED_MAX);
    }
    // Unknown ones displace no others.
    assert!(accounts.remembered(&known).is_some());
}

#[test]
fn v4_attr_15_the_system_tells_users_and_groups_both_ways() {
    let account = |question: &AccountQuestion| SystemDirectory.account(question).expect("up");
    for (file, kind) in [("/etc/passwd", User), ("/etc/group", Group)] {
        let mut checked = 0;
        for line in fs::read_to_string(file).expect("a database").lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let (Some(text), Some(Ok(number))) =
                (fields.first(), fields.get(2).map(|number| number.parse()))
            else {
                continue;
            };
            let named = account(&name(kind, text)).expect("known");
            assert_eq!((named.number, &*named.name), (number, *text));
            // Several names may have one number.
            let numbered = account(&AccountQuestion::Number(kind, number)).expect("known");
            assert_eq!(numbered.number, number);
            let again = account(&name(kind, &numbered.name)).expect("known");
            assert_eq!(again.number, number);
            checked += 1;
        }
        assert!(checked > 0);
        for unknown in ["no-account-of-this-name", "", "zero\0byte"] {
            assert_eq!(account(&name(kind, unknown)), None);
        }
        assert_eq!(account(&AccountQuestion::Number(kind, 4_123_456_789)), None);
    }
}
