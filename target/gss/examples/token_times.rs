//! Times of MIC and Wrap tokens, ours beside those of MIT's library, for one core. Starts a KDC.
//!
//! `cargo run --release -p millrace-gss --example token_times`

#[path = "../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "tests use more of it")]
mod support;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use millrace_gss::{
    ContextFlags, ContextRef, Enctype, GssService, Initiator, Kerberos, Progress, Settings,
};
use support::{REALM, Realm, RealmOptions, block_on};

const SIZES: [usize; 3] = [128, 4 << 10, 1 << 20];
const SLICE: usize = 16 << 10;
/// Least time of a measurement.
const LEAST: Duration = Duration::from_millis(200);

fn main() {
    if let Some(realm) = Realm::of_process() {
        measure(&realm);
        return;
    }
    println!("us per token (GB/s)           GetMIC             Wrap           Unwrap");
    for name in ["aes256-cts-hmac-sha1-96", "aes256-cts-hmac-sha384-192"] {
        let realm = Realm::start(&RealmOptions {
            keys: &format!("{name}:normal"),
            permitted: name,
            ..RealmOptions::default()
        });
        realm.ticket("user1", "user1.keytab", "nfs/server.test", &[], &[]);
        let outcome = realm.this_program("").status().expect("this program");
        assert!(outcome.success());
    }
}

fn measure(realm: &Realm) {
    let settings = Settings {
        keytab: realm.file("nfs.keytab"),
        ..Settings::default()
    };
    let kerberos = Kerberos::load(&settings).expect("a keytab");
    let service = GssService::new(settings, kerberos);
    let target = format!("nfs/server.test@{REALM}");
    let initiator = Initiator::new(Some(&realm.cache()), &target, ContextFlags::MUTUAL);
    let mut initiator = initiator.expect("tickets");
    let token = initiator.step(&[]).expect("a ticket").token;
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let established = block_on(service.establish(token, None, client));
    initiator.step(&established.token).expect("a good reply");
    let context = established.context.expect("complete");
    for size in SIZES {
        let message = vec![0x5a; size];
        let own = Own::new(&context, size);
        print_line(
            context.enctype(),
            "ours",
            size,
            own.times(&initiator, &message),
        );
        let times = [
            best(
                &mut (),
                |()| (),
                |()| drop(black_box(initiator.mic(&message))),
            ),
            best(
                &mut (),
                |()| (),
                |()| drop(black_box(initiator.wrap(&message, true))),
            ),
            {
                let token = own.wrapped(&message);
                best(
                    &mut (),
                    |()| (),
                    |()| drop(black_box(initiator.unwrap(&token))),
                )
            },
        ];
        print_line(context.enctype(), "MIT", size, times);
    }
}

/// Our side of the context.
struct Own<'a> {
    context: &'a ContextRef,
    size: usize,
}

impl<'a> Own<'a> {
    const fn new(context: &'a ContextRef, size: usize) -> Self {
        Self { context, size }
    }

    fn wrapped(&self, message: &[u8]) -> Vec<u8> {
        let mut token = vec![0; self.size + self.context.wrap_overhead()];
        token[self.context.wrap_prefix()..][..self.size].copy_from_slice(message);
        self.wrap(&mut token);
        token
    }

    fn wrap(&self, token: &mut [u8]) {
        let mut wrapping = self.context.wrapping(self.size);
        while wrapping.step(token, SLICE).expect("the length") == Progress::More {}
    }

    fn times(&self, initiator: &Initiator, message: &[u8]) -> [Duration; 3] {
        let mut mic = vec![0; self.context.mic_length()];
        let sign = best(
            &mut mic,
            |_| (),
            |mic| {
                black_box(self.context.sign(message, mic));
            },
        );
        let mut token = self.wrapped(message);
        let wrap = best(&mut token, |_| (), |token| self.wrap(token));
        let whole = initiator.wrap(message, true);
        let copy = |token: &mut Vec<u8>| token.copy_from_slice(&whole);
        let unwrap = best(&mut token, copy, |token| {
            let mut unwrapping = self.context.unwrapping(token).expect("a good token");
            while unwrapping.step(token, SLICE).expect("a good token") == Progress::More {}
        });
        [sign, wrap, unwrap]
    }
}

/// The shortest time of many, without that of the preparation.
fn best<T>(
    value: &mut T,
    mut prepare: impl FnMut(&mut T),
    mut work: impl FnMut(&mut T),
) -> Duration {
    let begun = Instant::now();
    let mut best = Duration::MAX;
    while begun.elapsed() < LEAST {
        prepare(value);
        let start = Instant::now();
        work(value);
        best = best.min(start.elapsed());
    }
    best
}

fn print_line(enctype: Enctype, whose: &str, size: usize, times: [Duration; 3]) {
    print!("{:11} {size:8} {whose:>4}", enctype.name());
    for time in times {
        let seconds = time.as_secs_f64();
        print!(
            "  {:8.1} ({:4.2})",
            seconds * 1e6,
            size as f64 / seconds / 1e9
        );
    }
    println!();
}
