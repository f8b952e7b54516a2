//! Delegations of files that outlive the process: they are recorded, reclaimed, and revoked only when
//! they cannot be reclaimed (RFC 8881 section 10.2.1).

use super::recovery::{RecordDisk, terms};
use super::*;

const READ: ShareMode = ShareMode::READ;
const BOTH: ShareMode = ShareMode::BOTH;
const NONE: ShareMode = ShareMode::NONE;

/// Gives a client's session a connection for callbacks.
pub(super) fn make_callable(bed: &mut TestBed, client: &TestClient) {
    let path = CallbackPath {
        reactor: 0,
        connection: 1,
    };
    let parameters = CallbackParameters {
        program: 1,
        version: 1,
        minor_version: 1,
        credentials: CallbackCredentials {
            lasting: Some([].into()),
            ..CallbackCredentials::default()
        },
    };
    let session = client.session.id();
    bed.home.control_backchannel(session, parameters).unwrap();
    let both = BindingRequest {
        channels: BoundChannels {
            fore: true,
            back: true,
        },
        or_both: false,
        can_call: true,
    };
    bed.home.bind_connection(session, path, both).unwrap();
}

/// A wish for a delegation of a file that outlives the process.
pub(super) const WANTED: DelegationRequest = DelegationRequest {
    wish: DelegationWish::Any,
    sharing: FileSharing::Sole,
    is_lasting: true,
    granted_by: None,
};

#[test]
fn v4_deleg_25_nothing_is_delegated_in_the_grace_period() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    disk.holder(&mut bed, b"b");
    let mut bed = disk.start();
    let client = bed.confirmed(b"a");
    make_callable(&mut bed, &client);
    disk.open(&mut bed, &client, true, (READ, NONE)).unwrap();
    let delegate = |bed: &mut TestBed| {
        bed.home
            .delegate(client.id, file(1), READ, &WANTED, bed.now)
    };
    assert_eq!(delegate(&mut bed), DelegationOutcome::Resource);
    bed.home.end_grace();
    assert!(matches!(
        delegate(&mut bed),
        DelegationOutcome::Granted { .. }
    ));
}

impl RecordDisk {
    /// Opens a file as OPEN does, with a delegation that comes with it or is reclaimed.
    fn open_delegated(
        &mut self,
        bed: &mut TestBed,
        client: &TestClient,
        access: ShareMode,
        reclaimed: Option<bool>,
    ) -> Result<DelegationOutcome, StateError> {
        let (id, key) = (client.id, file(1));
        self.settle(bed, |bed| {
            let (home, now) = (&mut bed.home, bed.now);
            if let Some(writes) = reclaimed {
                home.check_delegation_reclaim(id, &key, writes, &WANTED)?;
            }
            let terms = OpenTerms {
                reclaims: reclaimed.is_some(),
                is_lasting: true,
                is_delegable: reclaimed.is_some()
                    || home.may_record_delegation(id, &key, access, &WANTED, now),
                is_shared: false,
            };
            home.open_under(terms, id, b"o", key, (access, NONE), now)?;
            Ok(match reclaimed {
                Some(writes) => home.reclaim_delegation(id, key, writes, &WANTED, now),
                None => home.delegate(id, key, access, &WANTED, now),
            })
        })
    }

    /// A client with a delegation.
    fn delegated(&mut self, bed: &mut TestBed, owner: &[u8], access: ShareMode) -> TestClient {
        let client = bed.confirmed(owner);
        self.complete(bed, &client).unwrap();
        make_callable(bed, &client);
        let outcome = self.open_delegated(bed, &client, access, None).unwrap();
        let is_granted = matches!(
            outcome,
            DelegationOutcome::Granted {
                is_recalled: false,
                ..
            }
        );
        assert!(is_granted, "{outcome:?}");
        client
    }
}

#[test]
fn v4_lease_31_delegations_are_reclaimed_and_nobody_uses_the_file_before() {
    for (access, is_for_writing) in [(READ, false), (BOTH, true)] {
        let mut disk = RecordDisk::default();
        let mut bed = disk.start();
        disk.delegated(&mut bed, b"a", access);
        assert!(disk.clients[&b"a"[..]].denies, "it was recorded before");

        let mut bed = disk.start();
        let use_it = |bed: &mut TestBed| {
            let now = bed.now;
            bed.home.check_use(None, &file(1), FileUse::Change, now)
        };
        assert_eq!(use_it(&mut bed), Err(StateError::Grace));
        let client = bed.confirmed(b"a");
        make_callable(&mut bed, &client);
        let reclaim = |disk: &mut RecordDisk, bed: &mut TestBed| {
            disk.open_delegated(bed, &client, access, Some(is_for_writing))
                .unwrap()
        };
        let granted = reclaim(&mut disk, &mut bed);
        let DelegationOutcome::Granted {
            writes,
            is_recalled,
            ..
        } = granted
        else {
            panic!("{granted:?}")
        };
        assert_eq!((writes, is_recalled), (is_for_writing, false));
        assert_eq!(
            reclaim(&mut disk, &mut bed),
            granted,
            "one for all its opens"
        );
        disk.complete(&mut bed, &client).unwrap();
        // It is recalled as before.
        assert_eq!(use_it(&mut bed), Err(StateError::Delay));
    }
}

#[test]
fn v4_lease_31_a_delegation_that_comes_with_a_joined_open_is_recorded() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let client = bed.confirmed(b"a");
    disk.complete(&mut bed, &client).unwrap();
    make_callable(&mut bed, &client);
    disk.open(&mut bed, &client, false, (READ, NONE)).unwrap();
    assert!(!disk.clients[&b"a"[..]].denies);
    let unspecified = DelegationRequest {
        wish: DelegationWish::Unspecified,
        ..WANTED
    };
    let (id, key, write) = (client.id, file(1), ShareMode::WRITE);
    let granted = disk.settle(&mut bed, |bed| {
        let (home, now) = (&mut bed.home, bed.now);
        let terms = OpenTerms {
            reclaims: false,
            is_lasting: true,
            is_delegable: home.may_record_delegation(id, &key, write, &unspecified, now),
            is_shared: false,
        };
        let opened = home.open_under(terms, id, b"o", key, (write, NONE), now)?;
        Ok(home.delegate(id, key, opened.access, &unspecified, now))
    });
    let is_granted = matches!(granted, Ok(DelegationOutcome::Granted { writes: true, .. }));
    assert!(is_granted, "{granted:?}");
    assert!(disk.clients[&b"a"[..]].denies);
}

#[test]
fn v4_lease_31_a_delegation_is_recalled_at_once_where_there_are_to_be_none_any_more() {
    for handles_vary in [false, true] {
        let mut disk = RecordDisk::default();
        let mut bed = disk.start();
        disk.delegated(&mut bed, b"a", BOTH);
        let mut bed = disk.start();
        bed.home.config.handles_vary = handles_vary;
        bed.home.change_terms(StateTerms {
            delegations: handles_vary,
            ..terms(LEASE)
        });
        let client = bed.confirmed(b"a");
        make_callable(&mut bed, &client);
        let granted = disk.open_delegated(&mut bed, &client, BOTH, Some(true));
        assert!(
            matches!(
                granted,
                Ok(DelegationOutcome::Granted {
                    writes: true,
                    is_recalled: true,
                    ..
                })
            ),
            "{granted:?}"
        );
        // Nor are there new ones.
        bed.home.end_grace();
        let delegated = bed
            .home
            .delegate(client.id, file(2), READ, &WANTED, bed.now);
        assert_eq!(delegated, DelegationOutcome::Resource);
    }
}

#[test]
fn v4_lease_22_a_delegation_that_nobody_can_have_had_is_not_reclaimed() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    disk.holder(&mut bed, b"b");
    let mut bed = disk.start();
    let (first, second) = (bed.confirmed(b"a"), bed.confirmed(b"b"));
    for request in [
        DelegationRequest {
            sharing: FileSharing::Unknown,
            ..WANTED
        },
        DelegationRequest {
            is_lasting: false,
            ..WANTED
        },
    ] {
        let checked = bed
            .home
            .check_delegation_reclaim(first.id, &file(1), false, &request);
        assert_eq!(checked, Err(StateError::ReclaimBad));
    }
    // Another client has reclaimed an open that writes.
    disk.open(&mut bed, &second, true, (BOTH, NONE)).unwrap();
    for writes in [false, true] {
        let reclaimed = disk.open_delegated(&mut bed, &first, READ, Some(writes));
        assert_eq!(reclaimed, Err(StateError::ReclaimConflict));
    }
}

#[test]
fn v4_deleg_18_a_delegation_is_revoked_when_no_restart_can_bring_it_back() {
    for expires in [false, true] {
        let mut disk = RecordDisk::default();
        let mut bed = disk.start();
        let client = disk.delegated(&mut bed, b"a", BOTH);
        let use_it = |bed: &mut TestBed| {
            let now = bed.now;
            bed.home.check_use(None, &file(1), FileUse::Change, now)
        };
        assert_eq!(use_it(&mut bed), Err(StateError::Delay));
        // It is not returned in time, or its holder is silent.
        for _ in 0..4 {
            bed.pass(LEASE / 2);
            if !expires {
                bed.renew(&client);
            }
        }
        let end = |bed: &mut TestBed| {
            let now = bed.now;
            // As the housekeeping of each second does.
            bed.home.expire_clients(now);
            match expires {
                true => use_it(bed).map_err(|error| matches!(error, StateError::Unrecorded(_))),
                false => {
                    bed.home.end_recalls(now);
                    use_it(bed).map_err(|error| error == StateError::Delay)
                }
            }
        };
        assert_eq!(end(&mut bed), Err(true));
        assert_eq!(disk.write(&mut bed), 1);
        assert!(disk.clients.is_empty());
        bed.pass(Duration::from_millis(200));
        assert_eq!(end(&mut bed), Ok(()), "{expires}");
        // Nor by what its holder has beside it, as long as that does not know of the loss.
        let _ = bed.open(&client, b"other", file(2), READ, NONE);
        let now = bed.now;
        bed.home.expire_clients(now);
        disk.write(&mut bed);
        assert!(disk.clients.is_empty());
    }
}

#[test]
fn v4_deleg_18_a_silent_holder_that_is_asked_about_can_reclaim_nothing() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.delegated(&mut bed, b"a", BOTH);
    bed.pass(LEASE + Duration::from_nanos(1));
    let ask = |bed: &mut TestBed| {
        let asker = AnswerTicket::for_test(0, 1);
        bed.home.ask_holder(None, &file(1), asker, bed.now)
    };
    let waits = ask(&mut bed);
    assert!(matches!(waits, Some(Err(StateError::Unrecorded(_)))));
    assert_eq!(disk.write(&mut bed), 1);
    assert!(disk.clients.is_empty());
    assert_eq!(ask(&mut bed), Some(Ok(None)));
}
