//! What calls do with a context takes no memory from the heap.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use millrace_gss::{
    Accepted, ContextKeys, Enctype, GssService, Identity, Mechanism, Progress, Sequence, Settings,
    Side,
};
use millrace_testing::allocation::{CountingAllocator, allocated};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

struct NoMechanism;

impl Mechanism for NoMechanism {
    fn accept(&self, _: &[u8]) -> Accepted {
        unreachable!("contexts have given keys")
    }
}

#[test]
fn gss_lim_08_a_call_with_a_context_allocates_nothing() {
    let service = GssService::new(Settings::default(), NoMechanism);
    for enctype in Enctype::ALL {
        let keys = ContextKeys {
            enctype,
            key: vec![3; enctype.key_length()].into(),
            acceptor_subkey: true,
            send_sequence: 0,
        };
        let identity = Identity {
            principal: "alice@MILLRACE.TEST".into(),
            user: None,
        };
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let lifetime = Duration::from_secs(3600);
        let handle = service.insert(&keys, identity, lifetime, client);
        let handle = *handle.expect("space").as_bytes();
        let mut buffer = vec![0; 40_000];
        let mut call = |number: u32| {
            let context = service.context(&handle, Instant::now()).expect("known");
            assert_eq!(context.sequence(number), Sequence::Fresh);
            assert!(!context.verify_mic(b"header", &buffer[..context.mic_length()]));
            assert!(context.mark(number));
            let mut mic = [0; 64];
            assert_eq!(context.sign(b"reply", &mut mic), context.mic_length());
            let mut parts = context.mic_in_parts(Side::Acceptor);
            parts.update(&buffer);
            assert_eq!(parts.finish(&mut mic), context.mic_length());
            let length = buffer.len() - context.wrap_overhead();
            let mut wrapping = context.wrapping(length);
            while wrapping.step(&mut buffer, 16 << 10).expect("the length") == Progress::More {}
            // Not the other end's.
            assert!(context.unwrapping(&buffer).is_err());
            buffer[2] &= !1;
            let mut unwrapping = context.unwrapping(&buffer).expect("a good header");
            while unwrapping.step(&mut buffer, 16 << 10) == Ok(Progress::More) {}
        };
        // A thread's first call seeds its generator.
        call(0);
        let before = allocated();
        for number in 1..20 {
            call(number);
        }
        assert_eq!(allocated() - before, 0, "{enctype:?}");
    }
}
