//! Call and reply headers, credentials of RPCSEC_GSS and protected bodies.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::rpc::{
    CallHeader, CallWords, Credential, GssCredential, IntegrityBody, ReplyHeader, gss_token,
};
use millrace_wire::xdr::{Decoder, Encode, Encoder, from_bytes, to_bytes};

fuzz_target!(|message: &[u8]| {
    let mut bytes = [0; 1024];
    match CallHeader::decode(&mut Decoder::new(message)) {
        Ok(header) if header.credential != Credential::Malformed => {
            let mut out = Encoder::new(&mut bytes);
            header.encode(&mut out).expect("a decoded header encodes");
            let again = CallHeader::decode(&mut Decoder::new(out.written()));
            assert_eq!(again, Ok(header));
        }
        Ok(_) => {}
        Err(error) => {
            if let Some(answer) = error.answer() {
                let length = to_bytes(&answer, &mut bytes).expect("an answer encodes");
                assert_eq!(from_bytes::<ReplyHeader<'_>>(&bytes[..length]), Ok(answer));
            }
        }
    }
    let mut input = Decoder::new(message);
    if let Ok(words) = CallWords::decode(&mut input) {
        assert!(words.covered <= message.len());
        if let Ok(credential) = GssCredential::from_body(words.credential.body) {
            let length = to_bytes(&credential, &mut bytes).expect("a decoded credential encodes");
            let again = GssCredential::from_body(&bytes[8..length]);
            assert_eq!(again, Ok(credential));
        }
        let mut body = input;
        if let Ok(body) = IntegrityBody::decode_all(&mut body) {
            assert!(body.covered.len() + body.checksum.len() <= message.len());
        }
        let _ = gss_token(&mut input, 64 << 10);
    }
    if let Ok(header) = from_bytes::<ReplyHeader<'_>>(message) {
        let length = to_bytes(&header, &mut bytes).expect("a decoded header encodes");
        assert_eq!(from_bytes::<ReplyHeader<'_>>(&bytes[..length]), Ok(header));
    }
});
