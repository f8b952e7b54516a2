//! RPCSEC_GSS: the credential, the creation of contexts, protected bodies.

mod common;

use common::{encode, hex};
use millrace_wire::rpc::{
    CallHeader, CallWords, Credential, GssCredential, GssCredentialError, GssInitResults,
    GssProcedure, GssService, IntegrityBody, OpaqueAuth, RPCSEC_GSS, gss_token, has_protected_body,
    privacy_token, protected_content,
};
use millrace_wire::xdr::{Decoder, Error, from_bytes};
use proptest::prelude::*;

/// The body of a credential.
fn body(words: [u32; 4], handle: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.extend(encode(&OpaqueBytes(handle)));
    bytes
}

struct OpaqueBytes<'b>(&'b [u8]);

impl millrace_wire::xdr::Encode for OpaqueBytes<'_> {
    fn encode(&self, out: &mut millrace_wire::xdr::Encoder<'_>) -> Result<(), Error> {
        out.opaque(self.0)
    }
}

#[test]
fn gss_cred_01_credentials_that_do_not_decode() {
    let good = body([1, 0, 7, 3], b"handle");
    let credential = GssCredential {
        procedure: GssProcedure::Data,
        sequence: 7,
        service: GssService::Privacy,
        handle: b"handle",
    };
    assert_eq!(GssCredential::from_body(&good), Ok(credential));
    assert_eq!(encode(&credential)[..8], hex("00000006 0000001c"));
    assert_eq!(encode(&credential)[8..], good);
    for length in 0..good.len() {
        let cut = GssCredential::from_body(&good[..length]);
        assert_eq!(
            cut,
            Err(GssCredentialError::Malformed(Error::Truncated)),
            "{length}"
        );
    }
    for rest in 1..5 {
        let longer = [&good[..], &[0; 5][..rest]].concat();
        let malformed = GssCredential::from_body(&longer);
        assert_eq!(
            malformed,
            Err(GssCredentialError::Malformed(Error::TooLong))
        );
    }
    for (words, error) in [
        ([1, 4, 7, 1], Error::Value),
        ([1, u32::MAX, 7, 1], Error::Value),
        ([1, 0, 7, 0], Error::Value),
        ([1, 0, 7, 4], Error::Value),
        ([1, 3, 7, 9], Error::Value),
    ] {
        let malformed = GssCredential::from_body(&body(words, b"")).unwrap_err();
        assert_eq!(malformed, GssCredentialError::Malformed(error), "{words:?}");
    }
}

#[test]
fn gss_ctx_01_the_service_of_a_creation_is_ignored() {
    for procedure in [GssProcedure::Init, GssProcedure::ContinueInit] {
        for service in [0, 1, 9] {
            let bytes = body([1, procedure.number(), u32::MAX, service], b"");
            let credential = GssCredential::from_body(&bytes).unwrap();
            assert_eq!(credential.procedure, procedure);
            assert_eq!(credential.sequence, u32::MAX);
        }
    }
}

#[test]
fn gss_ctx_13_other_versions_are_told_from_malformed_credentials() {
    for version in [0, 2, 3, u32::MAX] {
        let bytes = body([version, 9, 0, 9], b"");
        let other = GssCredential::from_body(&bytes);
        assert_eq!(other, Err(GssCredentialError::Version(version)));
    }
}

#[test]
fn gss_cred_02_the_bytes_under_the_verifier_end_with_the_pad_of_the_credential() {
    let credential = GssCredential {
        procedure: GssProcedure::Data,
        sequence: 1,
        service: GssService::None,
        handle: b"odd",
    };
    let sealed = OpaqueAuth::from(&b"seal"[..]);
    let encoded = encode(&credential);
    let header = CallHeader {
        xid: 1,
        program: 2,
        version: 3,
        procedure: 4,
        credential: Credential::Other(OpaqueAuth {
            flavor: RPCSEC_GSS,
            body: &encoded[8..],
        }),
        verifier: sealed,
    };
    let mut message = encode(&header);
    let words = CallWords::decode(&mut Decoder::new(&message)).unwrap();
    // Six words, flavor and length, five words and the handle with its pad.
    assert_eq!(words.covered, 24 + 8 + 20 + 4);
    assert_eq!(words.verifier, sealed);
    // The pad may have any bytes.
    let covered = words.covered;
    message[covered - 1] = 0xff;
    let again = CallWords::decode(&mut Decoder::new(&message)).unwrap();
    assert_eq!(again.covered, covered);
}

#[test]
fn gss_rdma_02_protected_bodies_are_known_by_fixed_words() {
    let message = |flavor, procedure, service| {
        let mut message = vec![0; 24];
        for word in [flavor, 20, 1, procedure, 0, service, 0] {
            message.extend_from_slice(&u32::to_be_bytes(word));
        }
        message
    };
    for (flavor, procedure, service, protected) in [
        (0, 1, 3, false),
        (1, 0, 2, false),
        (6, 0, 1, false),
        (6, 0, 2, true),
        (6, 0, 3, true),
        (6, 0, 0, true),
        (6, 1, 1, true),
        (6, 2, 1, true),
        (6, 3, 1, true),
    ] {
        let message = message(flavor, procedure, service);
        assert_eq!(has_protected_body(&message), protected, "{message:?}");
    }
    assert!(has_protected_body(&message(6, 0, 1)[..40]));
    assert!(!has_protected_body(&[]));
}

#[test]
fn gss_int_01_gss_priv_01_golden_bodies() {
    let body = IntegrityBody {
        covered: &hex("00000009 616263"),
        checksum: b"mic",
    };
    let bytes = hex("00000007 00000009 61626300 00000003 6d696300");
    assert_eq!(encode(&body), bytes);
    assert_eq!(
        IntegrityBody::decode_all(&mut Decoder::new(&bytes)),
        Ok(body)
    );
    assert_eq!(protected_content(body.covered), Ok((9, &b"abc"[..])));
    assert_eq!(protected_content(&[0, 0, 9]), Err(Error::Truncated));
    let token = hex("00000003 61626300");
    assert_eq!(privacy_token(&mut Decoder::new(&token)), Ok(&b"abc"[..]));
}

#[test]
fn gss_int_03_lengths_are_checked_and_nothing_is_left_behind() {
    let bytes = hex("00000008 00000009 61626364 00000004 6d696363");
    for length in 0..bytes.len() {
        let cut = IntegrityBody::decode_all(&mut Decoder::new(&bytes[..length]));
        assert!(cut.is_err(), "{length}");
    }
    for rest in 1..5 {
        let longer = [&bytes[..], &[0; 4][..rest]].concat();
        let error = IntegrityBody::decode_all(&mut Decoder::new(&longer));
        assert_eq!(error, Err(Error::TooLong));
        let token = [&hex("00000004 61626364")[..], &[0; 4][..rest]].concat();
        let error = privacy_token(&mut Decoder::new(&token));
        assert_eq!(error, Err(Error::TooLong));
    }
    let endless = hex("ffffffff 00000009 61626364");
    assert!(IntegrityBody::decode_all(&mut Decoder::new(&endless)).is_err());
    assert!(privacy_token(&mut Decoder::new(&endless)).is_err());
}

#[test]
fn gss_ctx_04_a_creation_has_one_token_within_bounds() {
    let token = |length: usize| encode(&OpaqueBytes(&vec![7; length]));
    for length in [0, 1, 7, 8] {
        let bytes = token(length);
        let read = gss_token(&mut Decoder::new(&bytes), 8);
        assert_eq!(read, Ok(&vec![7; length][..]));
    }
    assert_eq!(
        gss_token(&mut Decoder::new(&token(9)), 8),
        Err(Error::TooLong)
    );
    assert_eq!(
        gss_token(&mut Decoder::new(&hex("ffffffff")), 8),
        Err(Error::TooLong)
    );
    let longer = [token(8), vec![0; 4]].concat();
    assert_eq!(
        gss_token(&mut Decoder::new(&longer), 8),
        Err(Error::TooLong)
    );
}

#[test]
fn gss_ctx_05_results_of_a_creation_golden() {
    let results = GssInitResults {
        handle: b"hand",
        major: 1,
        minor: 2,
        window: 128,
        token: b"token",
    };
    let bytes = hex("00000004 68616e64 00000001 00000002 00000080 00000005 746f6b656e 000000");
    assert_eq!(encode(&results), bytes);
    assert_eq!(from_bytes(&bytes), Ok(results));
}

proptest! {
    #[test]
    fn gss_cred_01_any_bytes_are_a_credential_or_an_error(
        body in proptest::collection::vec(any::<u8>(), 0..400),
        at in any::<prop::sample::Index>(),
    ) {
        let mut framed = vec![0, 0, 0, 1, 0, 0, 0, at.index(5) as u8];
        framed.extend(&body);
        for body in [&body, &framed] {
            if let Ok(credential) = GssCredential::from_body(body) {
                let again = encode(&credential);
                prop_assert_eq!(GssCredential::from_body(&again[8..]), Ok(credential));
            }
        }
        let mut input = Decoder::new(&body);
        if let Ok(body) = IntegrityBody::decode_all(&mut input) {
            let again = encode(&body);
            prop_assert_eq!(IntegrityBody::decode_all(&mut Decoder::new(&again)), Ok(body));
        }
    }
}
