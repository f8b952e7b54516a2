//! Locks that the host takes as well, by a host of 80 bytes that carries orders out.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::state::{HostLockAction, HostLockAnswer, HostLockOrder};

const READ: LockMode = LockMode::Read;
const WRITE: LockMode = LockMode::Write;
const BYTES: usize = 80;

/// A host with locks of the server and of one other process, of file 1.
struct Host {
    ours: [Option<LockMode>; BYTES],
    others: [Option<LockMode>; BYTES],
    is_open: bool,
    /// Whether it cannot say anything.
    is_lost: bool,
    /// Orders that were not carried out yet.
    orders: VecDeque<HostLockOrder>,
    asked: usize,
}

fn bytes(range: &ByteRange) -> std::ops::Range<usize> {
    let first = usize::try_from(range.offset()).unwrap().min(BYTES);
    let length = usize::try_from(range.length()).unwrap_or(BYTES);
    first..first.saturating_add(length).min(BYTES)
}

impl Default for Host {
    fn default() -> Self {
        Self {
            ours: [None; BYTES],
            others: [None; BYTES],
            is_open: false,
            is_lost: false,
            orders: VecDeque::new(),
            asked: 0,
        }
    }
}

impl Host {
    fn taken(&self, range: &ByteRange, mode: LockMode) -> HostLockAnswer {
        for byte in bytes(range) {
            if let Some(other) = self.others[byte].filter(|other| other.excludes(mode)) {
                let range = ByteRange::new(byte as u64, 1).unwrap();
                return HostLockAnswer::Taken(range, other);
            }
        }
        HostLockAnswer::Free
    }

    /// Carries an order out.
    fn carry_out(&mut self, order: &HostLockOrder) -> Option<HostLockAnswer> {
        assert_eq!(order.file, file(1));
        if self.is_lost && order.ticket().is_some() {
            return Some(HostLockAnswer::Unavailable);
        }
        match &order.action {
            HostLockAction::Acquire(_, ranges, mode) => {
                self.asked += 1;
                self.is_open = true;
                for range in ranges {
                    let answer = self.taken(range, *mode);
                    if answer != HostLockAnswer::Free {
                        return Some(answer);
                    }
                    bytes(range).for_each(|byte| self.ours[byte] = Some(*mode));
                }
                Some(HostLockAnswer::Free)
            }
            HostLockAction::Test(_, range, mode) => {
                self.asked += 1;
                self.is_open = true;
                Some(self.taken(range, *mode))
            }
            HostLockAction::Settle(parts) => {
                for part in parts {
                    for byte in bytes(&part.range) {
                        let had = self.ours[byte];
                        let is_new = part.mode.is_some() && had != Some(WRITE) && had != part.mode;
                        assert!(!is_new, "nothing is locked unasked");
                        self.ours[byte] = part.mode;
                    }
                }
                None
            }
            HostLockAction::Close => {
                assert!(self.is_open || self.is_lost);
                *self = Self {
                    others: self.others,
                    is_lost: self.is_lost,
                    asked: self.asked,
                    orders: std::mem::take(&mut self.orders),
                    ..Self::default()
                };
                None
            }
        }
    }
}

/// Clients with an open each of file 1, and the host.
struct HostBed {
    bed: TestBed,
    host: Host,
    clients: Vec<(TestClient, Stateid)>,
    asker: u64,
    answers: Vec<Result<Stateid, StateError>>,
}

impl HostBed {
    fn new() -> Self {
        let mut bed = TestBed::new();
        let clients = [b"a", b"b", b"c"].map(|owner| {
            let client = bed.client(owner);
            let open = bed.open_both(&client, b"o", file(1));
            (client, open)
        });
        Self {
            bed,
            host: Host::default(),
            clients: clients.into(),
            asker: 0,
            answers: Vec::new(),
        }
    }

    /// Asks for a lock, which the host may have to be asked about.
    fn ask(
        &mut self,
        client: usize,
        (offset, length): (u64, u64),
        mode: LockMode,
        waits: bool,
    ) -> Option<Result<Stateid, StateError>> {
        let (client, open) = &self.clients[client];
        let request = LockRequest {
            client: client.id,
            file: file(1),
            holder: LockHolder::New {
                open: *open,
                owner: b"l",
            },
            range: ByteRange::new(offset, length).unwrap(),
            mode,
            waits,
            reclaims: false,
        };
        self.asker += 1;
        let asker = AnswerTicket::for_test(0, self.asker);
        self.bed.home.lock_on_host(&request, asker, self.bed.now)
    }

    /// Has the host carry out one order.
    fn step(&mut self) -> bool {
        let home = &mut self.bed.home;
        self.host
            .orders
            .extend(std::iter::from_fn(|| home.take_host_order()));
        let Some(order) = self.host.orders.pop_front() else {
            return false;
        };
        if let Some(answer) = self.host.carry_out(&order) {
            home.host_answered(order.ticket().unwrap(), answer, self.bed.now);
        }
        while let Some((reactor, answer)) = home.take_host_answer() {
            assert_eq!(reactor, 0);
            self.answers.push(answer.into_value());
        }
        true
    }

    /// The same until there is nothing left to do.
    fn settle(&mut self) {
        while self.step() {}
    }

    fn lock(
        &mut self,
        client: usize,
        range: (u64, u64),
        mode: LockMode,
    ) -> Result<Stateid, StateError> {
        let at_once = self.ask(client, range, mode, false);
        self.settle();
        if let Some(answer) = at_once {
            return answer;
        }
        self.answers.pop().expect("the host has answered")
    }

    fn unlock(&mut self, client: usize, state: Stateid, range: (u64, u64)) -> Stateid {
        let client = self.clients[client].0.clone();
        let state = Stateid {
            sequence: 0,
            ..state
        };
        let unlocked = self.bed.unlock(&client, file(1), state, range).unwrap();
        self.settle();
        unlocked
    }

    fn ours(&self) -> String {
        let letter = |mode: &Option<LockMode>| match mode {
            None => '.',
            Some(LockMode::Read) => 'r',
            Some(LockMode::Write) => 'w',
        };
        self.host.ours[..10].iter().map(letter).collect()
    }
}

fn taken(outcome: Result<Stateid, StateError>) -> (Vec<u8>, u64) {
    match outcome {
        Err(StateError::Denied(conflict)) => (conflict.owner.to_vec(), conflict.client.0),
        other => panic!("expected a conflict, got {other:?}"),
    }
}

#[test]
fn v4_lock_19_the_host_has_the_union_of_all_locks() {
    let mut bed = HostBed::new();
    let one = bed.lock(0, (0, 4), READ).unwrap();
    let two = bed.lock(1, (2, 4), READ).unwrap();
    let three = bed.lock(2, (8, 2), WRITE).unwrap();
    assert_eq!(bed.ours(), "rrrrrr..ww");
    bed.unlock(0, one, (0, 3));
    assert_eq!(bed.ours(), "..rrrr..ww");
    bed.unlock(1, two, (0, 10));
    assert_eq!(bed.ours(), "...r....ww");
    // What the host has for this server is not asked for again.
    let asked = bed.host.asked;
    bed.lock(2, (8, 1), READ).unwrap();
    assert_eq!((bed.ours().as_str(), bed.host.asked), ("...r....rw", asked));
    bed.unlock(2, three, (0, u64::MAX));
    bed.unlock(0, one, (0, u64::MAX));
    assert_eq!(bed.ours(), "..........");
    assert!(!bed.host.is_open);
}

#[test]
fn v4_lock_19_locks_of_a_closed_file_leave_the_host() {
    let mut bed = HostBed::new();
    bed.lock(0, (0, 4), READ).unwrap();
    bed.lock(0, (6, 4), WRITE).unwrap();
    bed.lock(1, (0, 2), READ).unwrap();
    let (client, open) = bed.clients[0].clone();
    let closed = bed.bed.home.close(client.id, &file(1), &open, bed.bed.now);
    closed.unwrap();
    bed.settle();
    assert_eq!(bed.ours(), "rr........");
    // So do those of a client whose lease has expired.
    bed.bed.pass(LEASE * 2);
    bed.bed.renew(&bed.clients[2].0.clone());
    bed.lock(2, (0, 1), WRITE).unwrap();
    assert_eq!(bed.ours(), "w.........");
}

#[test]
fn v4_lock_19_the_host_keeps_what_is_taken_from_a_client_with_an_expired_lease() {
    let mut bed = HostBed::new();
    bed.lock(0, (0, 4), WRITE).unwrap();
    bed.bed.pass(LEASE * 2);
    bed.bed.renew(&bed.clients[1].0.clone());
    bed.lock(1, (1, 2), WRITE).unwrap();
    assert_eq!(bed.ours(), ".ww.......");
}

#[test]
fn v4_lock_20_a_lock_of_the_host_denies_one_of_a_client() {
    let mut bed = HostBed::new();
    bed.host.others[5] = Some(READ);
    bed.lock(0, (0, 10), READ).unwrap();
    let denied = bed.lock(0, (4, 4), WRITE);
    assert_eq!(taken(denied), (b"host".to_vec(), 0));
    assert_eq!(bed.ours(), "rrrrrrrrrr", "as before");
    // A lock beyond what the host can lock is refused, and one to the end is not.
    let most = i64::MAX.unsigned_abs();
    let beyond = Err(StateError::BadRange);
    assert_eq!(bed.lock(0, (most, 2), READ), beyond);
    assert_eq!(bed.lock(0, (most + 1, u64::MAX), READ), beyond);
    bed.lock(0, (most, u64::MAX), READ).unwrap();
    bed.lock(0, (most, 1), READ).unwrap();
}

#[test]
fn v4_lock_20_a_test_asks_the_host() {
    let mut bed = HostBed::new();
    bed.host.others[5] = Some(WRITE);
    for (offset, is_free) in [(0, true), (5, false)] {
        let (client, _) = bed.clients[0].clone();
        let range = ByteRange::new(offset, 2).unwrap();
        let asker = AnswerTicket::for_test(0, 1);
        let home = &mut bed.bed.home;
        let owner = (client.id, &b"l"[..]);
        let tested = home.test_lock_on_host(owner, &file(1), (range, READ), asker, bed.bed.now);
        assert_eq!(tested, None);
        let order = home.take_host_order().unwrap();
        let answer = bed.host.carry_out(&order).unwrap();
        home.host_answered(order.ticket().unwrap(), answer, bed.bed.now);
        let (_, answer) = home.take_host_answer().unwrap();
        let answer: Result<(), StateError> = answer.into_value();
        assert_eq!(answer.is_ok(), is_free);
        bed.settle();
        assert!(!bed.host.is_open);
    }
}

#[test]
fn v4_lock_20_requests_that_overlap_wait_for_the_answer_to_the_first() {
    let mut bed = HostBed::new();
    assert_eq!(bed.ask(0, (0, 4), WRITE, false), None);
    assert_eq!(bed.ask(1, (2, 4), READ, false), None);
    assert_eq!(bed.ask(2, (6, 2), READ, false), None);
    bed.settle();
    let denied: Vec<_> = bed.answers.iter().map(Result::is_err).collect();
    assert_eq!(denied, [false, true, false]);
    assert_eq!(bed.ours(), "wwww..rr..");
    // A client that is gone when the host answers leaves nothing there.
    let (client, open) = bed.clients[0].clone();
    assert_eq!(bed.ask(0, (4, 2), READ, false), None);
    let closed = bed.bed.home.close(client.id, &file(1), &open, bed.bed.now);
    closed.unwrap();
    bed.settle();
    assert_eq!(bed.answers.last(), Some(&Err(StateError::BadStateid)));
    assert_eq!(bed.ours(), "......rr..");
}

#[test]
fn v4_lock_21_the_host_is_asked_again_for_one_who_waits() {
    let mut bed = HostBed::new();
    bed.host.others[5] = Some(WRITE);
    assert_eq!(bed.ask(0, (4, 4), READ, true), None);
    bed.settle();
    assert_eq!(taken(bed.answers.pop().unwrap()).1, 0);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let next = bed.bed.home.next_host_question();
        pauses.push((next - bed.bed.now).as_millis());
        bed.bed.now = next;
        bed.bed.home.ask_host_again(next);
        bed.settle();
        assert_eq!(bed.bed.events(), []);
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
    bed.host.others[5] = None;
    bed.bed.now = bed.bed.home.next_host_question();
    bed.bed.home.ask_host_again(bed.bed.now);
    bed.settle();
    let [StateEvent::LockAvailable { client, .. }] = &bed.bed.events()[..] else {
        panic!("its client is told");
    };
    assert_eq!(*client, bed.clients[0].0.id);
    assert_eq!(bed.bed.home.next_host_question(), Duration::MAX);
    bed.settle();
    assert!(!bed.host.is_open);
}

#[test]
fn v4_lock_21_who_does_not_ask_again_is_forgotten() {
    let mut bed = HostBed::new();
    bed.host.others[5] = Some(WRITE);
    bed.ask(0, (4, 4), READ, true);
    bed.settle();
    bed.bed.pass(LEASE + Duration::from_secs(1));
    bed.bed.home.ask_host_again(bed.bed.now);
    bed.settle();
    assert_eq!(bed.bed.home.next_host_question(), Duration::MAX);
    assert!(!bed.host.is_open);
    // So is one who has the lock.
    bed.bed.renew(&bed.clients[0].0.clone());
    bed.ask(0, (4, 4), READ, true);
    bed.settle();
    bed.host.others[5] = None;
    bed.lock(0, (4, 4), READ).unwrap();
    assert_eq!(bed.bed.home.next_host_question(), Duration::MAX);
}

#[test]
fn locks_that_the_host_has_lost_are_revoked() {
    let mut bed = HostBed::new();
    bed.lock(0, (0, 4), WRITE).unwrap();
    let lock = bed.lock(0, (6, 2), READ).unwrap();
    let (client, open) = bed.clients[0].clone();
    let (waiting, _) = bed.clients[1].clone();
    // One that is asked for, and one that waits for what another one has.
    bed.host.others[9] = Some(WRITE);
    bed.ask(1, (9, 1), WRITE, true);
    bed.settle();
    bed.answers.clear();
    assert_eq!(bed.ask(2, (4, 1), READ, false), None);
    bed.bed.home.lose_host_locks(file(2).export + 1);
    let test = |bed: &HostBed| bed.bed.home.test_stateids(client.id, &[lock, open]);
    assert_eq!(test(&bed), [Ok(()), Ok(())], "another export");
    bed.bed.home.lose_host_locks(file(1).export);
    let revoked = Err(StateError::AdminRevoked);
    assert_eq!(test(&bed), [revoked.clone(), revoked]);
    bed.host.is_lost = true;
    bed.settle();
    assert_eq!(bed.answers, [Err(StateError::Delay)]);
    assert!(!bed.host.is_open, "all that were open are closed");
    // Then the file is opened anew.
    bed.host.is_lost = false;
    bed.lock(2, (0, 4), WRITE).unwrap();
    assert_eq!(bed.ours(), "wwww......");
    // The one that waits is not forgotten.
    bed.host.others[9] = None;
    bed.bed.now = bed.bed.home.next_host_question();
    bed.bed.home.ask_host_again(bed.bed.now);
    bed.settle();
    let available = |event: &StateEvent| matches!(event, StateEvent::LockAvailable { client, .. } if *client == waiting.id);
    assert!(bed.bed.events().iter().any(available));
}

#[test]
fn while_the_host_cannot_say_requests_are_made_again() {
    let mut bed = HostBed::new();
    bed.host.others[5] = Some(WRITE);
    bed.ask(0, (5, 1), WRITE, true);
    bed.settle();
    bed.answers.clear();
    bed.host.is_lost = true;
    assert_eq!(bed.lock(1, (0, 4), WRITE), Err(StateError::Delay));
    bed.bed.now = bed.bed.home.next_host_question();
    bed.bed.home.ask_host_again(bed.bed.now);
    bed.settle();
    assert_eq!(bed.bed.events(), []);
    assert!(bed.bed.home.next_host_question() < Duration::MAX);
}

#[test]
fn a_client_asks_no_more_while_the_host_does_not_answer() {
    let mut bed = HostBed::new();
    for offset in 0..1024 {
        assert_eq!(bed.ask(0, (offset, 1), WRITE, false), None);
    }
    let delay = Some(Err(StateError::Delay));
    assert_eq!(bed.ask(0, (2000, 1), WRITE, false), delay);
    let (client, _) = bed.clients[0].clone();
    let range = ByteRange::new(3000, 1).unwrap();
    let tested = bed.bed.home.test_lock_on_host(
        (client.id, b"l"),
        &file(1),
        (range, READ),
        AnswerTicket::for_test(0, 9999),
        bed.bed.now,
    );
    assert_eq!(tested, Some(Err(StateError::Delay)));
    // Others are served.
    assert_eq!(bed.ask(1, (2000, 1), WRITE, false), None);
    bed.settle();
    assert_eq!(bed.ask(0, (4000, 1), WRITE, false), None);
    bed.settle();
    assert!(bed.answers.iter().filter(|one| one.is_ok()).count() > 1000);
}

/// Client, first byte, length, and the mode, or none to unlock; how many orders are carried out
/// behind it; and whether another process locks or unlocks the bytes.
type HostStepOf = (usize, u64, u64, Option<LockMode>, usize, bool);

fn steps() -> impl Strategy<Value = Vec<HostStepOf>> {
    let mode = prop_oneof![Just(None), Just(Some(READ)), Just(Some(WRITE))];
    let step = (
        0..3usize,
        0..60u64,
        1..20u64,
        mode,
        0..3usize,
        prop::bool::weighted(0.2),
    );
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn v4_lock_19_to_21_the_host_has_what_clients_have_whatever_comes_between(steps in steps()) {
        let mut bed = HostBed::new();
        let mut states: [Option<Stateid>; 3] = [None; 3];
        for (client, offset, length, mode, orders, is_other) in steps {
            let range = ByteRange::new(offset, length).unwrap();
            if is_other {
                // Another process gets what nobody else has.
                for byte in bytes(&range) {
                    let ours = bed.host.ours[byte];
                    let fits = mode.is_none_or(|mode| ours.is_none_or(|ours| !ours.excludes(mode)));
                    if fits {
                        bed.host.others[byte] = mode;
                    }
                }
                continue;
            }
            match mode {
                Some(mode) => {
                    if let Some(answer) = bed.ask(client, (offset, length), mode, false) {
                        bed.answers.push(answer);
                    }
                }
                None => if let Some(state) = states[client] {
                    let holder = bed.clients[client].0.clone();
                    let unlocked = bed.bed.unlock(&holder, file(1), state, (offset, length));
                    prop_assert!(unlocked.is_ok());
                },
            }
            for _ in 0..orders {
                bed.step();
            }
            for granted in bed.answers.drain(..).flatten() {
                let granted = Stateid { sequence: 0, ..granted };
                let is_of = |(client, _): &(TestClient, Stateid)| {
                    bed.bed.home.test_stateids(client.id, &[granted])[0].is_ok()
                };
                let client = bed.clients.iter().position(is_of).unwrap();
                states[client] = Some(granted);
            }
            for (ours, other) in bed.host.ours.iter().zip(&bed.host.others) {
                let both = ours.zip(*other);
                prop_assert!(!both.is_some_and(|(ours, other)| ours.excludes(other)));
            }
        }
        bed.settle();
        let home = &bed.bed.home;
        let known = home.files.find(&file(1)).and_then(|file| home.files.get(file));
        let mut expected = [None; BYTES];
        for one in known.unwrap().ranges.iter() {
            for byte in bytes(&one.range) {
                let stronger = expected[byte] == Some(WRITE) || one.mode == WRITE;
                expected[byte] = Some(if stronger { WRITE } else { READ });
            }
        }
        prop_assert_eq!(bed.host.ours, expected);
        prop_assert_eq!(bed.host.is_open, expected.iter().any(Option::is_some));
    }
}

#[test]
fn v4_lease_05_a_silent_client_does_not_block_the_host_for_long() {
    let mut bed = HostBed::new();
    bed.lock(0, (0, 4), WRITE).unwrap();
    bed.lock(1, (4, 4), WRITE).unwrap();
    let pass = |bed: &mut HostBed, leases| {
        bed.bed.pass(LEASE * leases);
        bed.bed.renew(&bed.clients[1].0);
        let now = bed.bed.now;
        bed.bed.home.expire_clients(now);
        bed.settle();
    };
    pass(&mut bed, 4);
    assert_eq!(bed.host.ours[0], Some(WRITE));
    pass(&mut bed, 1);
    assert_eq!((bed.host.ours[0], bed.host.ours[4]), (None, Some(WRITE)));
    // Without a lock there is nothing that the host could want.
    let [silent, locked] = [2, 0].map(|at| {
        let (client, open) = bed.clients[at].clone();
        bed.bed.io(&client, file(1), open, IoKind::Read)
    });
    assert_eq!(
        (silent, locked),
        (Ok(IoGrant::Open), Err(StateError::Expired))
    );
    // It is looked at again when it has been back.
    bed.bed.renew(&bed.clients[2].0);
    pass(&mut bed, 1);
    bed.lock(2, (8, 4), WRITE).unwrap();
    pass(&mut bed, 5);
    assert_eq!(bed.host.ours[8], None);
}
