//! Opens against a list of all OPENs.

use proptest::prelude::*;

use super::*;

const OWNERS: usize = 3;
const FILES: usize = 2;

#[derive(Clone, Copy, Debug)]
enum ShareStep {
    Open(ShareMode, ShareMode),
    Downgrade(ShareMode, ShareMode),
    Close,
    Io(IoKind),
    AnonymousIo(IoKind),
}

fn steps() -> impl Strategy<Value = Vec<(usize, usize, ShareStep)>> {
    let mode = || (0..4_u32).prop_map(|bits| ShareMode::from_bits(bits).unwrap());
    let access = || (1..4_u32).prop_map(|bits| ShareMode::from_bits(bits).unwrap());
    let deny = || prop_oneof![3 => Just(ShareMode::NONE), 1 => mode()];
    let kind = prop_oneof![Just(IoKind::Read), Just(IoKind::Write)];
    let step = prop_oneof![
        4 => (access(), deny()).prop_map(|(access, deny)| ShareStep::Open(access, deny)),
        2 => (access(), deny()).prop_map(|(access, deny)| ShareStep::Downgrade(access, deny)),
        1 => Just(ShareStep::Close),
        1 => kind.clone().prop_map(ShareStep::Io),
        1 => kind.prop_map(ShareStep::AnonymousIo),
    ];
    proptest::collection::vec((0..OWNERS, 0..FILES, step), 1..80)
}

/// The OPENs of an owner on a file that are in effect, and the latest stateid.
#[derive(Clone, Default)]
struct ModelOpens {
    opens: Vec<(ShareMode, ShareMode)>,
    stateid: Option<Stateid>,
}

fn union(opens: &[(ShareMode, ShareMode)]) -> (ShareMode, ShareMode) {
    let none = (ShareMode::NONE, ShareMode::NONE);
    opens.iter().fold(none, |(access, deny), open| {
        (access.union(open.0), deny.union(open.1))
    })
}

impl ModelOpens {
    fn is_some_union(&self, wanted: (ShareMode, ShareMode)) -> bool {
        let most = self.opens.len().min(12);
        (1..1_u32 << most).any(|chosen| {
            let chosen = (0..most).filter(|bit| chosen & 1 << bit != 0);
            union(&chosen.map(|at| self.opens[at]).collect::<Vec<_>>()) == wanted
        })
    }

    fn add(&mut self, open: (ShareMode, ShareMode)) {
        if !self.opens.contains(&open) {
            self.opens.push(open);
        }
    }
}

proptest! {
    #[test]
    fn v4_open_15_16_17_opens_behave_as_a_list(steps in steps()) {
        let mut bed = TestBed::new();
        let clients = [bed.client(b"a"), bed.client(b"b")];
        let mut model = vec![vec![ModelOpens::default(); OWNERS]; FILES];
        for (owner, number, step) in steps {
            // Two owners of one client, one of another.
            let client = &clients[owner / 2];
            let key = file(u8::try_from(number).unwrap());
            let name = [u8::try_from(owner).unwrap()];
            let all: Vec<_> = model[number].iter().flat_map(|one| one.opens.clone()).collect();
            let (accessed, denied) = union(&all);
            let known = &mut model[number][owner];
            let latest = known.stateid.unwrap_or(Stateid::INVALID);
            match step {
                ShareStep::Open(access, deny) => {
                    let outcome = bed.open(client, &name, key, access, deny);
                    if denied.meets(access) || accessed.meets(deny) {
                        prop_assert_eq!(outcome, Err(StateError::ShareDenied));
                        continue;
                    }
                    let outcome = outcome.unwrap();
                    known.add((access, deny));
                    prop_assert_eq!((outcome.access, outcome.deny), union(&known.opens));
                    prop_assert_eq!(outcome.joined, known.stateid.is_some());
                    let sequence = known.stateid.map_or(1, |known| known.sequence + 1);
                    prop_assert_eq!(outcome.stateid.sequence, sequence);
                    known.stateid = Some(outcome.stateid);
                }
                ShareStep::Downgrade(access, deny) => {
                    let home = &mut bed.home;
                    let outcome = home.open_downgrade(client.id, &key, &latest, access, deny);
                    if known.stateid.is_none() {
                        prop_assert_eq!(outcome, Err(StateError::BadStateid));
                    } else if known.is_some_union((access, deny)) {
                        known.opens.retain(|open| access.includes(open.0) && deny.includes(open.1));
                        known.stateid = Some(outcome.unwrap());
                    } else {
                        prop_assert_eq!(outcome, Err(StateError::Inval));
                    }
                }
                ShareStep::Close => {
                    let outcome = bed.home.close(client.id, &key, &latest, bed.now);
                    prop_assert_eq!(outcome.is_ok(), known.stateid.is_some());
                    *known = ModelOpens::default();
                }
                ShareStep::Io(kind) => {
                    let stateids = bed.home.views().stateids;
                    let passed = stateids.allows(client.id, &key, &latest, kind.access());
                    let outcome = bed.io(client, key, latest, kind);
                    // Reactors may ask in vain, but let nothing pass that the home refuses.
                    prop_assert!(!passed || outcome == Ok(IoGrant::Open));
                    let access = union(&known.opens).0;
                    let expected = match kind {
                        _ if known.stateid.is_none() => Err(StateError::BadStateid),
                        IoKind::Read if access.includes(ShareMode::READ) => Ok(IoGrant::Open),
                        IoKind::Read if denied.includes(ShareMode::READ) => Err(StateError::Locked),
                        IoKind::Read => Ok(IoGrant::Permissions),
                        _ if access.includes(ShareMode::WRITE) => Ok(IoGrant::Open),
                        _ => Err(StateError::OpenMode),
                    };
                    prop_assert_eq!(outcome, expected);
                }
                ShareStep::AnonymousIo(kind) => {
                    let outcome = bed.io(client, key, Stateid::ANONYMOUS, kind);
                    let needed = match kind {
                        IoKind::Read => ShareMode::READ,
                        _ => ShareMode::WRITE,
                    };
                    prop_assert_eq!(outcome.is_err(), denied.includes(needed));
                }
            }
        }
    }
}
