//! The table of malformed messages that the probe sends to any server, sent to the responder in
//! process (`millrace-bench conformance`).

mod support;

#[path = "../../bench/src/conformance/exchanges.rs"]
mod exchanges;

use exchanges::{EXCHANGES, ExpectedAnswer};
use millrace_wire::rpcrdma::Version;
use support::message::{PROGRAM, parse, plain, rpc, speak, word};
use support::raw::{Options, World};
use support::script::Script;
use support::trace::Trace;

/// Sends the messages of all rows of a version. None is a call, reads memory, or ends its
/// connection.
fn check(version: Version) {
    speak(version);
    let of_version = |row: &&exchanges::ScriptedExchange| row.version == version.number();
    for exchange in EXCHANGES.iter().filter(of_version) {
        let script = Script::default();
        let mut world = World::new(script.clone(), Options::default());
        world.connect();
        let mut xids = 0xa1a2_a300..;
        for (xid, message) in exchange.messages(|| xids.next().expect("many")) {
            world.send(0, &message);
            let answers: Vec<Vec<u32>> = world
                .received(0)
                .iter()
                .map(|answer| (0..answer.len() / 4).map(|at| word(answer, at)).collect())
                .collect();
            let (row, title) = (exchange.row, exchange.title);
            let told = format!("{row}: {title}: {message:02x?}: {answers:x?}");
            let spoken = word(&message, 1);
            match (exchange.expected, &answers[..]) {
                (ExpectedAnswer::Silence, []) => {}
                (ExpectedAnswer::Error(code), [answer]) => {
                    assert_eq!(answer[..], [xid, spoken, answer[2], 4, code], "{told}");
                    assert!(answer[2] >= 1, "{told}");
                }
                (ExpectedAnswer::Versions, [answer]) => {
                    assert_eq!(answer[..], [xid, spoken, answer[2], 4, 1, 1, 2], "{told}");
                    assert!(answer[2] >= 1, "{told}");
                }
                _ => panic!("{told}"),
            }
            assert!(script.seen().is_empty(), "{told}");
        }
        let reply = world.exchange(0, &plain(&rpc(9, PROGRAM, &[])));
        assert_eq!(parse(&reply).xid, 9, "{}", exchange.row);
        let counters = &world.shared.counters;
        let dropped = u64::from(matches!(exchange.expected, ExpectedAnswer::Silence));
        let count = exchange.messages.len() as u64;
        assert_eq!(counters.dropped.get(), dropped * count, "{}", exchange.row);
        let errors = [
            &counters.errors_version,
            &counters.errors_chunk,
            &counters.errors_bad_xdr,
            &counters.errors_invalid_procedure,
            &counters.errors_invalid_option,
        ];
        let told: u64 = errors.iter().map(|counter| counter.get()).sum();
        assert_eq!(told, (1 - dropped) * count, "{}", exchange.row);
        let is_read = |trace: &Trace| matches!(trace, Trace::Read(..));
        assert!(!world.trace().iter().any(is_read), "{}", exchange.row);
        world.check_clean();
    }
}

#[test]
fn rr1_hdr_05_06_08_11_13_16_19_20_malformed_messages_of_version_one() {
    check(Version::One);
}

#[test]
fn rr2_hdr_02_03_10_rr2_err_03_04_11_13_rr2_opt_02_06_09_malformed_messages_of_version_two() {
    check(Version::Two);
}
