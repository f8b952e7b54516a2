//! Messages of any bytes.

use millrace_bench::requester::Settings;
use proptest::prelude::*;

use crate::support::{Peer, Raw, bytes, settings, stale};

/// Words that mean something here and there, and all others.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..8, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

proptest! {
    // Each case sets up a whole connection.
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever a server sends, the calls that are out end once at most, and every receive but
    /// those of the messages is posted again.
    #[test]
    fn rr2_err_12_no_message_does_more_than_end_a_call(
        messages in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(word(), 0..24), 0_usize..4),
            1..40,
        ),
    ) {
        let mine = Settings { reverse_credits: 4, ..settings() };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        for token in 0..4 {
            raw.getattr(token);
        }
        let calls: Vec<_> = raw.inbox.drain(..).collect();
        let receives = raw.connection.receives();
        for (number, (mine, rest, cut)) in messages.into_iter().enumerate() {
            // With the XID of a call that is out, or any; of version two mostly.
            let xid = if mine { calls[number % calls.len()].xid } else { number as u32 };
            let mut words = vec![xid, if number % 7 == 6 { 1 } else { 2 }];
            words.extend(rest);
            let message = bytes(&words);
            raw.send(&message[..message.len() - cut.min(message.len() - 1)]);
            // Answers to calls of the server's, and calls sent a second time.
            raw.inbox.clear();
            prop_assert_eq!(raw.connection.receives(), receives);
        }
        let ended = raw.tokens();
        let mut once = ended.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), ended.len(), "each call ends once");
        for call in &calls {
            raw.answer(call, 8, &stale());
        }
        raw.answer_all(8);
        prop_assert_eq!(raw.done.len(), 4);
        raw.getattr(9);
        raw.answer_all(8);
        prop_assert_eq!(raw.done.last().map(|done| done.token), Some(9));
    }
}
