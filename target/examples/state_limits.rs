//! How long others wait for one step of the state when a client has as much of it as it may have.
//!
//! `cargo run --release -p millrace --example state_limits`
//!
//! For each case the time of all steps is printed, and that of the longest one: the reactor that keeps
//! the state does nothing else meanwhile.

use std::time::{Duration, Instant};

use millrace::state::{
    ByteRange, CallbackCredentials, CallbackParameters, CallbackPath, ChannelLimits, ClientId,
    DelegationOutcome, DelegationRequest, DelegationWish, ExchangeRequest, FileKey, FileSharing,
    LockHolder, LockMode, LockRequest, SessionRequest, ShareMode, StateCaller, StateConfig,
    StateError, StateHome, Stateid,
};
use millrace_store::Handle;

/// A bit fewer than the state of one client may be.
const MOST: u32 = (1 << 17) - 8;
const LEASE: Duration = Duration::from_secs(90);
const CALLER: &[u8] = b"caller";

const CHANNEL: ChannelLimits = ChannelLimits {
    request_size: 1 << 20,
    response_size: 1 << 20,
    cached_size: 4096,
    operations: 16,
    requests: 64,
};

/// The steps of one part of a case.
struct Steps {
    name: &'static str,
    count: u32,
    all: Duration,
    longest: Duration,
}

impl Steps {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            count: 0,
            all: Duration::ZERO,
            longest: Duration::ZERO,
        }
    }

    fn run<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let outcome = step();
        let time = began.elapsed();
        self.count += 1;
        self.all += time;
        self.longest = self.longest.max(time);
        outcome
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        println!(
            "  {:<50} {:>8} steps {:>10.3} ms all {:>10.3} ms longest",
            self.name,
            self.count,
            self.all.as_secs_f64() * 1e3,
            self.longest.as_secs_f64() * 1e3,
        );
    }
}

fn file(number: u32) -> FileKey {
    let mut object = [0; 12];
    object[..4].copy_from_slice(&number.to_be_bytes());
    FileKey {
        export: 1,
        object: Handle::new(&object).expect("it is short"),
    }
}

struct World {
    home: StateHome,
    now: Duration,
}

impl World {
    fn new() -> Self {
        Self {
            home: StateHome::new(StateConfig::default()),
            now: Duration::from_secs(1000),
        }
    }

    /// A client, after its start number `verifier`.
    fn client(&mut self, owner: &[u8], verifier: u8, connection: u64) -> ClientId {
        let caller = StateCaller {
            principal: CALLER.into(),
            has_integrity: false,
        };
        let exchanged = self
            .home
            .exchange_id(
                &ExchangeRequest {
                    owner,
                    verifier: [verifier; 8],
                    caller: &caller,
                    guarded: None,
                    update: false,
                },
                self.now,
            )
            .expect("there is room");
        let parameters = CallbackParameters {
            program: 1,
            version: 1,
            minor_version: 2,
            credentials: CallbackCredentials {
                lasting: Some([].into()),
                ..CallbackCredentials::default()
            },
        };
        self.home
            .create_session(
                &SessionRequest {
                    client: exchanged.client_id,
                    sequence: exchanged.sequence_id,
                    principal: CALLER,
                    fore: CHANNEL,
                    back: ChannelLimits {
                        requests: 16,
                        ..CHANNEL
                    },
                    backchannel: true,
                    origin: None,
                    connection: Some(CallbackPath {
                        reactor: 0,
                        connection,
                    }),
                    callbacks: Some(&parameters),
                    fault: None,
                },
                self.now,
            )
            .expect("there is room");
        self.home
            .reclaim_complete(exchanged.client_id, self.now)
            .expect("the first time");
        exchanged.client_id
    }

    fn open(&mut self, client: ClientId, owner: &[u8], number: u32, deny: ShareMode) -> Stateid {
        self.home
            .open(client, owner, file(number), ShareMode::BOTH, deny, self.now)
            .expect("nothing conflicts")
            .stateid
    }

    /// What is done in each turn. Callbacks are not answered.
    fn turn(&mut self) {
        self.home.end_recalls(self.now);
        self.home.sweep_states();
        while self.home.take_event(self.now).is_some() {}
        while self.home.take_callback(self.now).is_some() {}
        let _ = self.home.next_callback();
    }

    /// What is done once a second.
    fn scan(&mut self) {
        self.home.expire_clients(self.now);
        self.home.divide_slots(self.now);
        self.home.relieve(self.now);
        let _ = self.home.figures(self.now);
    }

    fn turns(&mut self, name: &'static str, most: u32) {
        let mut steps = Steps::new(name);
        for _ in 0..most {
            steps.run(|| self.turn());
        }
    }
}

fn opens(world: &mut World, client: ClientId, deny: ShareMode) {
    let mut steps = Steps::new("OPEN");
    for number in 0..MOST {
        steps.run(|| world.open(client, b"owner", number, deny));
    }
}

fn removal() {
    println!("a client with an open of each file starts anew");
    let mut world = World::new();
    let client = world.client(b"one", 1, 1);
    opens(&mut world, client, ShareMode::NONE);
    let mut steps = Steps::new("EXCHANGE_ID and CREATE_SESSION");
    steps.run(|| world.client(b"one", 2, 2));
    drop(steps);
    world.turns("turns", 300);
}

fn expiry() {
    println!("a client with an open of each file is silent, and another one wants one of them");
    let mut world = World::new();
    let client = world.client(b"one", 1, 1);
    opens(&mut world, client, ShareMode::BOTH);
    world.now += LEASE * 2;
    let other = world.client(b"two", 1, 2);
    let mut steps = Steps::new("OPEN by the other client");
    steps.run(|| world.open(other, b"owner", 77, ShareMode::NONE));
    drop(steps);
    world.turns("turns", 300);
}

fn lock_owners() {
    println!("a client has as many lock owners under one open");
    let mut world = World::new();
    let client = world.client(b"one", 1, 1);
    let open = world.open(client, b"owner", 0, ShareMode::NONE);
    let range = ByteRange::new(0, 1).expect("a byte");
    let mut steps = Steps::new("LOCK");
    for number in 0..StateConfig::default().lock_owners_per_open {
        let owner = number.to_be_bytes();
        let request = LockRequest {
            client,
            file: file(0),
            holder: LockHolder::New {
                open,
                owner: &owner,
            },
            range,
            mode: LockMode::Read,
            waits: false,
            reclaims: false,
        };
        steps
            .run(|| world.home.lock(&request, world.now))
            .expect("it is free");
    }
    drop(steps);
    let mut steps = Steps::new("CLOSE");
    steps
        .run(|| world.home.close(client, &file(0), &open, world.now))
        .expect("it is open");
    drop(steps);
    world.turns("turns", 200);
}

fn recalls() {
    println!("a client has a delegation of as many files, and another one wants all of them");
    let mut world = World::new();
    let client = world.client(b"one", 1, 1);
    let other = world.client(b"two", 1, 2);
    let request = DelegationRequest {
        wish: DelegationWish::Any,
        sharing: FileSharing::Sole,
        is_lasting: false,
        granted_by: None,
    };
    let count = MOST - 1;
    let mut steps = Steps::new("OPEN with a delegation, CLOSE");
    for number in 0..count {
        let open = world.open(client, b"owner", number, ShareMode::NONE);
        let key = file(number);
        let outcome = steps.run(|| {
            world
                .home
                .delegate(client, key, ShareMode::BOTH, &request, world.now)
        });
        assert!(
            matches!(outcome, DelegationOutcome::Granted { .. }),
            "{outcome:?}"
        );
        world
            .home
            .close(client, &file(number), &open, world.now)
            .expect("it is open");
    }
    drop(steps);
    let mut steps = Steps::new("OPEN by the other client");
    for number in 0..count {
        let key = file(number);
        let outcome = steps.run(|| {
            let opened = world.home.open(
                other,
                b"owner",
                key,
                ShareMode::BOTH,
                ShareMode::NONE,
                world.now,
            );
            world.turn();
            opened
        });
        assert!(outcome.is_err());
    }
    drop(steps);
    let mut steps = Steps::new("scan while they are recalled");
    for _ in 0..5 {
        world.now += Duration::from_secs(1);
        steps.run(|| world.scan());
    }
    drop(steps);
    world.turns("turns", 5);
    world.now += LEASE;
    let mut steps = Steps::new("scan when their time is over");
    steps.run(|| world.scan());
    drop(steps);
    world.turns("turns", 300);
}

fn opens_of_a_file() {
    println!("a client has as many opens of one file as it may have");
    let mut world = World::new();
    let client = world.client(b"one", 1, 1);
    let mut opens = Vec::new();
    let mut steps = Steps::new("OPEN");
    for number in 0_u32..1 << 14 {
        opens.push(steps.run(|| world.open(client, &number.to_be_bytes(), 0, ShareMode::NONE)));
    }
    drop(steps);
    let mut steps = Steps::new("CLOSE, the latest first");
    for open in opens.iter().rev() {
        steps
            .run(|| world.home.close(client, &file(0), open, world.now))
            .expect("it is open");
    }
}

fn denials_of_a_file() {
    println!("the same is silent, and another one wants the file for itself");
    let mut world = World::new();
    let client = world.client(b"one", 1, 1);
    for number in 0_u32..1 << 14 {
        world.open(client, &number.to_be_bytes(), 0, ShareMode::NONE);
    }
    world.now += LEASE * 2;
    let other = world.client(b"two", 1, 2);
    let mut steps = Steps::new("OPEN by the other client");
    steps.run(|| world.open(other, b"owner", 0, ShareMode::BOTH));
    drop(steps);
    world.turns("turns", 100);
}

fn ranges() {
    println!("a file has as many locked ranges as it may have, and requests that wait");
    let mut world = World::new();
    let client = world.client(b"one", 1, 1);
    let other = world.client(b"two", 1, 2);
    let open = world.open(client, b"owner", 0, ShareMode::NONE);
    let others = world.open(other, b"owner", 0, ShareMode::NONE);
    fn request(
        client: ClientId,
        holder: LockHolder<'_>,
        first: u64,
        mode: LockMode,
    ) -> LockRequest<'_> {
        LockRequest {
            client,
            file: file(0),
            holder,
            range: ByteRange::new(first, 1).expect("a byte"),
            mode,
            waits: true,
            reclaims: false,
        }
    }
    let most = (1 << 14) - 10;
    let new = LockHolder::New { open, owner: b"l" };
    let mut lock = world
        .home
        .lock(&request(client, new, 1 << 40, LockMode::Write), world.now)
        .expect("free");
    let mut steps = Steps::new("LOCK");
    for number in 0..most {
        let held = LockHolder::Existing(lock);
        lock = steps
            .run(|| {
                world.home.lock(
                    &request(client, held, (most - number) * 2, LockMode::Read),
                    world.now,
                )
            })
            .expect("free");
    }
    drop(steps);
    let mut steps = Steps::new("LOCK that waits");
    for number in 0..1024_u32 {
        let owner = number.to_be_bytes();
        let all = LockRequest {
            range: ByteRange::new(0, u64::MAX).expect("all"),
            ..request(
                other,
                LockHolder::New {
                    open: others,
                    owner: &owner,
                },
                0,
                LockMode::Read,
            )
        };
        let outcome = steps.run(|| world.home.lock(&all, world.now));
        assert!(matches!(outcome, Err(StateError::Denied(_))));
    }
    drop(steps);
    let mut steps = Steps::new("LOCKU of one range");
    for number in 0..20 {
        let range = ByteRange::new((number + 1) * 2, 1).expect("a byte");
        lock = steps
            .run(|| {
                let unlocked = world.home.unlock(client, &file(0), &lock, range, world.now);
                world.turn();
                unlocked
            })
            .expect("locked");
    }
    drop(steps);
    let mut steps = Steps::new("CLOSE");
    steps
        .run(|| world.home.close(client, &file(0), &open, world.now))
        .expect("open");
    drop(steps);
    world.turns("turns", 5);
}

fn main() {
    removal();
    expiry();
    lock_owners();
    recalls();
    opens_of_a_file();
    denials_of_a_file();
    ranges();
}
