//! The connection configuration protocol's layouts.

mod common;

use common::{encode, hex};
use millrace_wire::ccp::{Limits, PROGRAM, Procedure, VERSION, Wish};
use millrace_wire::xdr::{Error, from_bytes};
use proptest::prelude::*;

#[test]
fn rr1_ccp_02_three_words_each_way() {
    let wish = Wish {
        call_size: 4096,
        reply_size: 4096,
        reads: 16,
    };
    let bytes = hex("00001000 00001000 00000010");
    assert_eq!(encode(&wish), bytes);
    assert_eq!(from_bytes(&bytes), Ok(wish));
    let limits = Limits {
        call_size: 4096,
        alignment: 512,
        reads: 16,
    };
    let bytes = hex("00001000 00000200 00000010");
    assert_eq!(encode(&limits), bytes);
    assert_eq!(from_bytes(&bytes), Ok(limits));
    assert_eq!(from_bytes::<Wish>(&bytes[..8]), Err(Error::Truncated));
}

#[test]
fn rr1_ccp_01_program_and_procedures() {
    assert_eq!((PROGRAM, VERSION), (100_417, 1));
    let numbers = Procedure::ALL.iter().map(|procedure| procedure.number());
    assert!(numbers.eq([0, 1]));
}

proptest! {
    #[test]
    fn words_keep_their_order(words in any::<[u32; 3]>()) {
        let [call_size, second, reads] = words;
        let bytes = words.map(u32::to_be_bytes).concat();
        let wish = Wish { call_size, reply_size: second, reads };
        prop_assert_eq!(from_bytes(&bytes), Ok(wish));
        prop_assert_eq!(encode(&wish), bytes.clone());
        let limits = Limits { call_size, alignment: second, reads };
        prop_assert_eq!(from_bytes(&bytes), Ok(limits));
        prop_assert_eq!(encode(&limits), bytes);
    }
}
