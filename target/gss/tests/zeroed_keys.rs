//! Keys of contexts that have ended are nowhere in the memory of the process.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use millrace_gss::{
    Accepted, ContextKeys, ContextRef, Enctype, GssService, Identity, Mechanism, Settings,
};

struct NoMechanism;

impl Mechanism for NoMechanism {
    fn accept(&self, _: &[u8]) -> Accepted {
        unreachable!("contexts have given keys")
    }
}

/// What hides the bytes that are searched for from the search.
const MASK: u8 = 0xa5;

/// How often the bytes stand in memory that this process writes to.
fn occurrences(masked: &[u8]) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("a map");
    let mut memory = File::open("/proc/self/mem").expect("memory");
    let mut found = 0;
    let mut block = vec![0; 1 << 16];
    for line in maps.lines() {
        let mut words = line.split(' ');
        let (Some(range), Some(access)) = (words.next(), words.next()) else {
            continue;
        };
        let Some((start, end)) = range.split_once('-') else {
            continue;
        };
        let number = |digits| u64::from_str_radix(digits, 16).expect("digits");
        let (mut at, end) = (number(start), number(end));
        if !access.starts_with("rw") {
            continue;
        }
        // Blocks overlap by the length of what is searched for.
        while at < end {
            let count = usize::try_from((end - at).min(1 << 16)).expect("small");
            let part = &mut block[..count];
            let read = memory.seek(SeekFrom::Start(at)).is_ok() && memory.read_exact(part).is_ok();
            if read {
                let is_it = |window: &&[u8]| {
                    let is_first = window[0] ^ MASK == masked[0];
                    let mut pairs = window.iter().zip(masked);
                    is_first && pairs.all(|(byte, masked)| *byte ^ MASK == *masked)
                };
                found += part.windows(masked.len()).filter(is_it).count();
                // The block itself is memory of the process.
                part.fill(0);
            }
            if count < 1 << 16 {
                break;
            }
            at += (1 << 16) - masked.len() as u64;
        }
    }
    found
}

fn context(service: &GssService, masked: &[u8]) -> ContextRef {
    let keys = ContextKeys {
        enctype: Enctype::Aes256Sha384,
        key: masked
            .iter()
            .map(|byte| byte ^ MASK)
            .collect::<Vec<_>>()
            .into(),
        acceptor_subkey: true,
        send_sequence: 0,
    };
    let identity = Identity {
        principal: "alice@MILLRACE.TEST".into(),
        user: None,
    };
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let handle = service.insert(&keys, identity, Duration::from_secs(60), client);
    let handle = handle.expect("space");
    service
        .context(handle.as_bytes(), Instant::now())
        .expect("known")
}

/// The encryption key of the acceptor's Wrap tokens that is derived from the key of the test (RFC
/// 8009 3, usage 22), and the first round key of AES; masked.
const DERIVED: [u8; 32] = [
    0x86, 0xce, 0x4c, 0x02, 0x0b, 0xcd, 0x57, 0xf2, 0xdd, 0x18, 0x81, 0x3d, 0x50, 0x2c, 0xab, 0x7c,
    0x7b, 0x70, 0x0d, 0x70, 0xc7, 0xa0, 0xac, 0xcf, 0xf5, 0x75, 0x83, 0x41, 0x39, 0x4f, 0xdf, 0x18,
];

#[test]
fn gss_lim_07_keys_are_zeroed_when_they_are_freed() {
    let masked = (0..32).map(|at: u8| at.wrapping_mul(37).wrapping_add(11) ^ MASK);
    let masked: Vec<u8> = masked.collect();
    let service = GssService::new(Settings::default(), NoMechanism);
    let shared = service.clone();
    let of_thread = masked.clone();
    let made = thread::spawn(move || context(&shared, &of_thread)).join();
    let context = made.expect("no panic");
    // The base key is not needed once keys are derived. Those are found while they are in use.
    assert_eq!(occurrences(&masked), 0);
    assert!(occurrences(&DERIVED) > 0);
    let mut buffer = vec![0; 100 + context.wrap_overhead()];
    let mut wrapping = context.wrapping(100);
    wrapping.step(&mut buffer, 1000).expect("the length");
    drop(wrapping);
    service.destroy(&context);
    drop(context);
    assert_eq!(occurrences(&DERIVED), 0);
}
