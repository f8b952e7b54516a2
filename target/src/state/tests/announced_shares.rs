//! Share reservations of gateways that tell each other of them.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const NONE: ShareMode = ShareMode::NONE;
const READ: ShareMode = ShareMode::READ;
const WRITE: ShareMode = ShareMode::WRITE;
const BOTH: ShareMode = ShareMode::BOTH;

type Shares = (ShareMode, ShareMode);

fn conflict(one: Shares, other: Shares) -> bool {
    one.0.meets(other.1) || one.1.meets(other.0)
}

/// An OPEN that waits for an announcement.
#[derive(Clone, Debug)]
struct WaitingOpen {
    owner: u8,
    key: FileKey,
    shares: Shares,
    reclaims: bool,
}

/// A gateway, and what it has announced.
struct TestGateway {
    bed: TestBed,
    client: TestClient,
    announced: HashMap<FileKey, Shares>,
    /// An announcement that was made and is not compared yet.
    made: Option<ShareOrder>,
    waiting: HashMap<usize, WaitingOpen>,
    asks: usize,
    opens: HashMap<(u8, FileKey), Stateid>,
    /// How OPENs have ended, the latest last.
    outcomes: Vec<Result<(), StateError>>,
}

impl TestGateway {
    fn new() -> Self {
        let mut bed = TestBed::new();
        bed.home.config.shared_denials = SharedDenials::Announced;
        let client = bed.client(b"client");
        Self {
            bed,
            client,
            announced: HashMap::new(),
            made: None,
            waiting: HashMap::new(),
            asks: 0,
            opens: HashMap::new(),
            outcomes: Vec::new(),
        }
    }

    /// An OPEN as the program of version 4 makes it.
    fn open(&mut self, open: WaitingOpen) {
        if !self.try_open(&open) {
            self.asks += 1;
            let asker = AnswerTicket::for_test(self.asks, 0);
            let (client, now) = (self.client.id, self.bed.now);
            let home = &mut self.bed.home;
            match home.announce_share(client, open.key, open.shares, open.reclaims, asker, now) {
                Some(Ok(())) => assert!(self.try_open(&open), "it is announced"),
                Some(Err(error)) => self.outcomes.push(Err(error)),
                None => drop(self.waiting.insert(self.asks, open)),
            }
        }
    }

    /// Whether the OPEN has ended.
    fn try_open(&mut self, open: &WaitingOpen) -> bool {
        let terms = OpenTerms {
            is_shared: true,
            reclaims: open.reclaims,
            ..OpenTerms::default()
        };
        let (id, now) = (self.client.id, self.bed.now);
        let home = &mut self.bed.home;
        let outcome = match home.open_under(terms, id, &[open.owner], open.key, open.shares, now) {
            Err(StateError::Unannounced) => return false,
            Ok(outcome) => {
                self.opens.insert((open.owner, open.key), outcome.stateid);
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.outcomes.push(outcome);
        true
    }

    fn close(&mut self, owner: u8, key: FileKey) {
        if let Some(stateid) = self.opens.remove(&(owner, key)) {
            let (id, now) = (self.client.id, self.bed.now);
            self.bed.home.close(id, &key, &stateid, now).unwrap();
        }
    }

    /// What all opens of a file access and deny.
    fn shares(&self, key: FileKey) -> Shares {
        let home = &self.bed.home;
        let file = home.files.find(&key).and_then(|file| home.files.get(file));
        file.map_or((NONE, NONE), |file| {
            (file.shares.access(), file.shares.deny())
        })
    }

    fn announced(&self, key: FileKey) -> Shares {
        self.announced.get(&key).copied().unwrap_or_default()
    }

    fn is_quiet(&self) -> bool {
        self.made.is_none() && !self.bed.home.has_share_orders()
    }

    /// Takes an answer, and goes on with the OPENs that waited.
    fn answered(&mut self, ticket: u64, answer: ShareAnswer) {
        let now = self.bed.now;
        self.bed.home.share_announced(ticket, answer, now);
        while let Some((ask, answer)) = self.bed.home.take_host_answer() {
            let open = self.waiting.remove(&ask).unwrap();
            match answer.into_value::<Result<(), StateError>>() {
                Ok(()) => assert!(self.try_open(&open), "it is announced"),
                Err(error) => self.outcomes.push(Err(error)),
            }
        }
    }
}

/// Several gateways to the same files.
struct Gateways(Vec<TestGateway>);

impl Gateways {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| TestGateway::new()).collect())
    }

    /// Goes on with the orders of a gateway by half an announcement.
    fn carry_out(&mut self, at: usize) {
        if let Some(order) = self.0[at].made.take() {
            let ShareAction::Announce {
                ticket,
                access,
                deny,
                compares,
            } = order.action
            else {
                panic!("{order:?}")
            };
            let is_taken = |(other, one): (usize, &TestGateway)| {
                other != at && conflict(one.announced(order.file), (access, deny))
            };
            let answer = match compares && self.0.iter().enumerate().any(is_taken) {
                true => ShareAnswer::Conflict,
                false => ShareAnswer::Free,
            };
            self.0[at].answered(ticket, answer);
            return;
        }
        let gateway = &mut self.0[at];
        let Some(order) = gateway.bed.home.take_share_order() else {
            return;
        };
        let before = gateway.announced(order.file);
        match order.action {
            ShareAction::Announce { access, deny, .. } => {
                let all = (before.0.union(access), before.1.union(deny));
                gateway.announced.insert(order.file, all);
                gateway.made = Some(order);
            }
            ShareAction::Keep { access, deny } => {
                assert!(before.0.includes(access) && before.1.includes(deny));
                gateway.announced.insert(order.file, (access, deny));
            }
        }
        gateway
            .announced
            .retain(|_, shares| *shares != (NONE, NONE));
    }

    fn finish(&mut self) {
        for at in 0..self.0.len() {
            while !self.0[at].is_quiet() {
                self.carry_out(at);
            }
        }
    }

    /// An OPEN without others meanwhile.
    fn open(&mut self, at: usize, owner: u8, shares: Shares) -> Result<(), StateError> {
        self.0[at].open(opening(owner, 1, shares));
        self.finish();
        self.0[at].outcomes.pop().unwrap()
    }

    fn close(&mut self, at: usize, owner: u8) {
        self.0[at].close(owner, file(1));
        self.finish();
    }
}

fn opening(owner: u8, number: u8, shares: Shares) -> WaitingOpen {
    WaitingOpen {
        owner,
        key: file(number),
        shares,
        reclaims: false,
    }
}

#[test]
fn v4_open_15_gateways_refuse_what_others_deny_until_it_is_closed() {
    for (first, second) in [
        ((READ, WRITE), (WRITE, NONE)),
        ((WRITE, NONE), (READ, WRITE)),
        ((READ, BOTH), (READ, NONE)),
        ((WRITE, READ), (BOTH, NONE)),
    ] {
        let mut all = Gateways::new(2);
        assert_eq!(all.open(0, 1, first), Ok(()));
        assert_eq!(all.open(1, 1, second), Err(StateError::ShareDenied));
        assert_eq!(all.0[1].announced(file(1)), (NONE, NONE));
        all.close(0, 1);
        assert_eq!(all.open(1, 1, second), Ok(()));
        assert_eq!(all.open(0, 1, first), Err(StateError::ShareDenied));
    }
}

#[test]
fn v4_open_15_gateways_grant_what_does_not_conflict() {
    let mut all = Gateways::new(3);
    for at in 0..3 {
        assert_eq!(all.open(at, 1, (READ, WRITE)), Ok(()));
    }
    assert_eq!(all.open(1, 2, (READ, NONE)), Ok(()));
    all.close(1, 1);
    assert_eq!(all.0[1].announced(file(1)), (READ, NONE));
    assert_eq!(all.open(2, 2, (READ, READ)), Err(StateError::ShareDenied));
    assert_eq!(all.0[2].announced(file(1)), (READ, WRITE));
}

#[test]
fn v4_open_15_a_file_that_is_announced_is_opened_at_once() {
    let mut all = Gateways::new(1);
    assert_eq!(all.open(0, 1, (BOTH, NONE)), Ok(()));
    all.0[0].open(opening(2, 1, (READ, NONE)));
    assert_eq!(all.0[0].outcomes.pop(), Some(Ok(())));
    assert!(all.0[0].waiting.is_empty());
}

#[test]
fn reclaims_are_granted_whatever_others_have_announced() {
    let mut all = Gateways::new(2);
    assert_eq!(all.open(0, 1, (READ, NONE)), Ok(()));
    let now = all.0[1].bed.now;
    let asker = AnswerTicket::for_test(1, 0);
    let gateway = &mut all.0[1];
    let home = &mut gateway.bed.home;
    let asked = home.announce_share(gateway.client.id, file(1), (WRITE, READ), true, asker, now);
    assert_eq!(asked, None);
    all.carry_out(1);
    let gateway = &mut all.0[1];
    let Some(order) = gateway.made.take() else {
        panic!("an announcement")
    };
    assert!(matches!(
        order.action,
        ShareAction::Announce {
            compares: false,
            ..
        }
    ));
}

const WITHDRAWN: ShareAction = ShareAction::Keep {
    access: NONE,
    deny: NONE,
};

/// A gateway that has announced an OPEN, and has not opened the file yet.
fn announced() -> TestGateway {
    let mut gateway = TestGateway::new();
    let (id, now) = (gateway.client.id, gateway.bed.now);
    let asker = AnswerTicket::for_test(1, 0);
    let home = &mut gateway.bed.home;
    assert_eq!(
        home.announce_share(id, file(1), (READ, BOTH), false, asker, now),
        None
    );
    let order = home.take_share_order().unwrap();
    let ShareAction::Announce { ticket, .. } = order.action else {
        panic!("{order:?}")
    };
    home.share_announced(ticket, ShareAnswer::Free, now);
    assert_eq!(home.take_share_order(), None);
    gateway
}

#[test]
fn what_nobody_comes_back_for_is_withdrawn() {
    let TestGateway { mut bed, .. } = announced();
    let now = bed.now;
    bed.home.end_announcements(now + Duration::from_secs(9));
    assert_eq!(bed.home.take_share_order(), None);
    bed.home.end_announcements(now + Duration::from_secs(10));
    let order = bed.home.take_share_order();
    assert_eq!(order.map(|order| order.action), Some(WITHDRAWN));
}

#[test]
fn what_is_announced_for_two_opens_stays_for_the_later_one() {
    let TestGateway {
        mut bed, client, ..
    } = announced();
    let (home, now) = (&mut bed.home, bed.now);
    let later = now + Duration::from_secs(5);
    let asker = AnswerTicket::for_test(9, 0);
    let again = home.announce_share(client.id, file(1), (READ, NONE), false, asker, later);
    assert_eq!(again, Some(Ok(())));
    home.forgo_announcement(&file(1));
    for seconds in [10, 14] {
        home.end_announcements(now + Duration::from_secs(seconds));
        assert_eq!(home.take_share_order(), None);
    }
    home.end_announcements(now + Duration::from_secs(15));
    let order = home.take_share_order();
    assert_eq!(order.map(|order| order.action), Some(WITHDRAWN));
}

#[test]
fn what_was_announced_for_an_open_that_is_refused_is_withdrawn_at_once() {
    let TestGateway { mut bed, .. } = announced();
    bed.home.forgo_announcement(&file(1));
    let order = bed.home.take_share_order();
    assert_eq!(order.map(|order| order.action), Some(WITHDRAWN));
}

#[test]
fn v4_lease_05_a_silent_client_does_not_block_other_gateways_for_long() {
    let mut all = Gateways::new(2);
    assert_eq!(all.open(0, 1, (READ, BOTH)), Ok(()));
    for (leases, status) in [(4, Err(StateError::ShareDenied)), (1, Ok(()))] {
        let gateway = &mut all.0[0];
        gateway.bed.pass(LEASE * leases);
        gateway.bed.home.expire_clients(gateway.bed.now);
        all.finish();
        assert_eq!(all.open(1, 1, (READ, NONE)), status);
    }
    // Its other state is no state of others, but it is told of the loss.
    let gateway = &all.0[0];
    let lost = SessionConditions::EXPIRED_SOME;
    assert!(gateway.client.session.conditions().contains(lost));
}

#[test]
fn an_open_waits_if_the_shared_folder_cannot_be_used() {
    let mut all = Gateways::new(1);
    let gateway = &mut all.0[0];
    gateway.open(opening(1, 1, (READ, NONE)));
    gateway.open(opening(2, 1, (READ, NONE)));
    let order = gateway.bed.home.take_share_order().unwrap();
    let ShareAction::Announce { ticket, .. } = order.action else {
        panic!("{order:?}")
    };
    gateway.answered(ticket, ShareAnswer::Unavailable);
    assert_eq!(gateway.outcomes, [Err(StateError::Delay)]);
    // The other one has its own try.
    all.finish();
    assert_eq!(all.0[0].outcomes.pop(), Some(Ok(())));
}

#[derive(Clone, Copy, Debug)]
enum GatewayStep {
    Open(u8, u8, ShareMode, ShareMode),
    Close(u8, u8),
    CarryOut,
}

fn steps() -> impl Strategy<Value = Vec<(usize, GatewayStep)>> {
    let mode = |least| (least..4_u32).prop_map(|bits| ShareMode::from_bits(bits).unwrap());
    let place = || (0..2_u8, 0..2_u8);
    let step = prop_oneof![
        2 => (place(), mode(1), mode(0))
            .prop_map(|((owner, number), access, deny)| GatewayStep::Open(owner, number, access, deny)),
        1 => place().prop_map(|(owner, number)| GatewayStep::Close(owner, number)),
        4 => Just(GatewayStep::CarryOut),
    ];
    proptest::collection::vec((0..3_usize, step), 1..120)
}

proptest! {
    /// Whatever comes in whatever order: opens of two gateways do not conflict, and what none of them
    /// needs is withdrawn.
    #[test]
    fn v4_open_15_opens_of_gateways_never_conflict(steps in steps()) {
        let mut all = Gateways::new(3);
        for (at, step) in steps {
            match step {
                GatewayStep::Open(owner, number, access, deny) => {
                    all.0[at].open(opening(owner, number, (access, deny)));
                }
                GatewayStep::Close(owner, number) => all.0[at].close(owner, file(number)),
                GatewayStep::CarryOut => all.carry_out(at),
            }
            for key in [file(0), file(1)] {
                for (one, other) in [(0, 1), (0, 2), (1, 2)] {
                    let [one, other] = [one, other].map(|at: usize| all.0[at].shares(key));
                    prop_assert!(!conflict(one, other), "{:?} {:?}", one, other);
                }
            }
        }
        all.finish();
        // What opens were refused for other reasons stays for a while.
        for gateway in &mut all.0 {
            gateway.bed.home.end_announcements(gateway.bed.now + Duration::from_secs(10));
        }
        all.finish();
        for gateway in &mut all.0 {
            prop_assert!(gateway.waiting.is_empty());
            for key in [file(0), file(1)] {
                prop_assert_eq!(gateway.announced(key), gateway.shares(key));
            }
            let open: Vec<_> = gateway.opens.keys().copied().collect();
            open.into_iter().for_each(|(owner, key)| gateway.close(owner, key));
        }
        all.finish();
        for gateway in &all.0 {
            prop_assert!(gateway.announced.is_empty());
            prop_assert!(!gateway.bed.home.has_announcements());
        }
    }
}
