//! Slots that come and go with the memory for cached replies.

use super::*;

fn highest(client: &TestClient) -> (u32, u32) {
    let HighestSlots { target, enforced } = client.session.highest_slots();
    (target, enforced)
}

impl TestBed {
    /// A new request, whose client says that it uses no slot above `used`. Returns the target and
    /// the limit that its reply tells.
    fn request(
        &self,
        client: &TestClient,
        (slot, sequence): (u32, u32),
        used: u32,
    ) -> Result<(u32, u32), StateError> {
        let found = self.home.sessions().find(client.session.id())?;
        let heard = (0, self.now);
        let begun = found.begin_request(slot, sequence, RequestFingerprint::default(), heard)?;
        let SessionBegin::New(claim) = begun else {
            panic!("it is no new request")
        };
        let HighestSlots { target, enforced } = claim.highest_slots(used);
        claim.finish(Some(&[b"reply"]));
        Ok((target, enforced))
    }

    fn limit(&mut self, most: u32) {
        self.home.limit_slots(most);
        self.home.divide_slots(self.now);
    }
}

#[test]
fn v4_sess_57_the_limit_follows_the_target_once_the_client_knows_it() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    assert_eq!(bed.request(&client, (0, 1), 0), Ok((63, 63)));
    assert_eq!(bed.request(&client, (9, 1), 9), Ok((63, 63)));
    bed.limit(8);
    assert_eq!(highest(&client), (7, 63));
    // The reply in slot 0 tells the target for the first time.
    assert_eq!(bed.request(&client, (0, 2), 9), Ok((7, 63)));
    // Slot 9 was used without knowing it.
    assert_eq!(bed.request(&client, (9, 2), 9), Ok((7, 63)));
    // The client knows it, and still uses slot 9.
    assert_eq!(bed.request(&client, (0, 3), 9), Ok((7, 63)));
    assert_eq!(bed.request(&client, (0, 4), 7), Ok((7, 7)));
    assert_eq!(highest(&client), (7, 7));
}

#[test]
fn v4_sess_58_a_slot_above_the_limit_is_bad_and_dropped() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    assert_eq!(bed.request(&client, (9, 1), 9), Ok((63, 63)));
    assert_eq!(bed.request(&client, (9, 2), 9), Ok((63, 63)));
    bed.limit(8);
    bed.request(&client, (0, 1), 0).unwrap();
    assert_eq!(bed.request(&client, (0, 2), 0), Ok((7, 7)));
    for sequence in 0..4 {
        let refused = bed.request(&client, (9, sequence), 9);
        assert_eq!(refused, Err(StateError::BadSlot));
    }
    assert_eq!(bed.request(&client, (7, 1), 7), Ok((7, 7)));
}

#[test]
fn v4_sess_59_slots_that_come_back_begin_anew() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    for sequence in 1..4 {
        bed.request(&client, (9, sequence), 9).unwrap();
    }
    bed.limit(8);
    bed.request(&client, (0, 1), 0).unwrap();
    bed.limit(u32::MAX);
    // The lowering was not enforced yet, so that nothing is dropped.
    assert_eq!(bed.request(&client, (0, 2), 0), Ok((63, 63)));
    assert_eq!(bed.request(&client, (9, 4), 9), Ok((63, 63)));
    bed.limit(8);
    bed.request(&client, (0, 3), 0).unwrap();
    assert_eq!(bed.request(&client, (0, 4), 0), Ok((7, 7)));
    bed.limit(u32::MAX);
    assert_eq!(highest(&client), (63, 7));
    // Slot 1 has not been told of the lowering.
    assert_eq!(bed.request(&client, (1, 1), 1), Ok((63, 7)));
    assert_eq!(bed.request(&client, (9, 1), 9), Err(StateError::BadSlot));
    assert_eq!(bed.request(&client, (0, 5), 1), Ok((63, 63)));
    assert_eq!(bed.request(&client, (9, 1), 9), Ok((63, 63)));
}

#[test]
fn v4_sess_32_slots_and_operations_are_bounded() {
    let mut bed = TestBed::new();
    let id = bed.exchange(b"a", 1).unwrap().client_id;
    let request = SessionRequest {
        fore: ChannelLimits {
            operations: 1000,
            requests: 1000,
            ..LINUX
        },
        ..session_request(id, 1)
    };
    let granted = bed.home.create_session(&request, bed.now).unwrap().fore;
    assert_eq!((granted.operations, granted.requests), (64, 64));
}

#[test]
fn v4_sess_80_and_57_clients_share_the_memory_for_replies() {
    let mut config = small_config();
    // That of 60 slots with the replies that Linux wants to be cached.
    config.reply_cache = 60 * (LINUX.cached_size as usize + 256);
    let mut bed = TestBed::with(config);
    let one = bed.client(b"one");
    assert_eq!(one.session.fore().requests, 60);
    let two = bed.client(b"two");
    assert_eq!(two.session.fore().requests, 30);
    bed.home.divide_slots(bed.now);
    assert_eq!((highest(&one).0, highest(&two).0), (29, 29));
    // A second session takes from its own client only.
    let second = bed.create(two.id, 2).unwrap();
    assert_eq!(second.fore.requests, 15);
    bed.home.divide_slots(bed.now);
    assert_eq!((highest(&one).0, highest(&two).0), (29, 14));
    // What a client leaves is divided anew, up to what sessions may have.
    for session in [two.session.id(), second.session] {
        bed.home.destroy_session(session, None, bed.now).unwrap();
    }
    bed.home.divide_slots(bed.now);
    assert_eq!(highest(&one).0, 59);
}
