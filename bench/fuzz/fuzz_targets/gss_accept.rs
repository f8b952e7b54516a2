//! First tokens of contexts before the system's GSS library, with the keys of one service. The seeds
//! are requests whose tickets have ended, so that they go as far as the ticket's time.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use millrace_gss::{Accepted, KERBEROS_OID, Kerberos, Mechanism, Settings, status};

/// A keytab with one key of `nfs/server.test@MILLRACE.TEST`.
const KEYTAB: [u8; 90] = [
    0x05, 0x02, 0x00, 0x00, 0x00, 0x54, 0x00, 0x02, 0x00, 0x0d, 0x4d, 0x49, 0x4c, 0x4c, 0x52, 0x41,
    0x43, 0x45, 0x2e, 0x54, 0x45, 0x53, 0x54, 0x00, 0x03, 0x6e, 0x66, 0x73, 0x00, 0x0b, 0x73, 0x65,
    0x72, 0x76, 0x65, 0x72, 0x2e, 0x74, 0x65, 0x73, 0x74, 0x00, 0x00, 0x00, 0x01, 0x6b, 0x06, 0x1d,
    0xd4, 0x02, 0x00, 0x12, 0x00, 0x20, 0xe0, 0x50, 0x14, 0x31, 0x00, 0x9e, 0x5b, 0x78, 0x2e, 0xe7,
    0x77, 0x69, 0xc1, 0x3d, 0xa9, 0x0a, 0xf4, 0x61, 0x80, 0x3e, 0x9e, 0xa8, 0xe4, 0x71, 0xa6, 0x8a,
    0xba, 0x88, 0x3d, 0x6b, 0x21, 0x23, 0x00, 0x00, 0x00, 0x02,
];

static KERBEROS: LazyLock<Kerberos> = LazyLock::new(|| {
    let keytab = std::env::temp_dir().join(format!("gss_accept.{}", std::process::id()));
    fs::write(&keytab, KEYTAB).expect("written");
    let settings = Settings {
        keytab: keytab.clone(),
        ..Settings::default()
    };
    let kerberos = Kerberos::load(&settings).expect("the library is installed");
    fs::remove_file(keytab).expect("removed");
    kerberos
});

/// A first token with this content.
fn framed(content: &[u8]) -> Vec<u8> {
    let mut inner = vec![0x06, 9];
    inner.extend(KERBEROS_OID);
    inner.extend(content);
    let length = (inner.len() as u32).to_be_bytes();
    [&[0x60, 0x84][..], &length, &inner].concat()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&is_whole, rest)) = bytes.split_first() else {
        return;
    };
    let outcome = if is_whole == 0 {
        KERBEROS.accept(rest)
    } else {
        KERBEROS.accept(&framed(rest))
    };
    if let Accepted::Failed(failure) = outcome {
        assert_ne!(failure.major, status::COMPLETE);
        assert!(!failure.text.is_empty());
    }
});
