//! A service of this process, changes of its configuration, and clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace::service::Service;
use millrace_admin::config::{self, Config, Export};
use millrace_admin::control::{Applied, ApplyError, Control};
use millrace_bench::requester::session::{Error, mount};
use millrace_bench::requester::{Call, Identity, Session, Settings};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::allowed_cores;
use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};
use millrace_wire::nfs3::{CreateHow, FileHandle, Procedure, SetAttributes, Stability, Status};

/// How long anything may take.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// An export at this path, of a few MiB.
pub fn export(path: &str) -> Export {
    let size = "4MiB";
    let export = serde_json::json!({ "path": path, "store": { "kind": "memory", "size": size } });
    serde_json::from_value(export).expect("an export")
}

/// Tells a thread to end its load, where a test fails as well.
pub struct EndOfLoad<'a>(pub &'a AtomicBool);

impl Drop for EndOfLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A running service, stopped with the value.
pub struct Running {
    service: Option<Service>,
}

impl Running {
    /// With two reactors where there are two cores, and the export `/scratch`; `more` is added to
    /// the configuration.
    pub fn start(more: &str) -> Self {
        let scratch = "{ path: /scratch, store: { kind: memory, size: 32MiB } }";
        Self::serving(scratch, more)
    }

    /// The same with these exports.
    pub fn serving(exports: &str, more: &str) -> Self {
        Self::listening(2, &["127.0.0.1:0"], exports, more)
    }

    /// The same with as many reactors as there are cores for, `reactors` at most, and fabric
    /// listeners at these addresses.
    pub fn listening(reactors: usize, addresses: &[&str], exports: &str, more: &str) -> Self {
        let cores: Vec<_> = allowed_cores().into_iter().take(reactors).collect();
        let fabric = addresses
            .iter()
            .map(|address| format!("{{ provider: iwarp, listen: \"{address}\" }}"));
        let fabric = fabric.collect::<Vec<_>>().join(", ");
        let text = format!(
            "reactors: {{ cores: {cores:?}, poll: adaptive }}\n\
             mempool: {{ hugepages: off, size: 16MiB }}\n\
             fabric: [{fabric}]\n\
             rpc: {{ listen: \"127.0.0.1:0\" }}\n\
             exports: [{exports}]\n\
             {more}\n"
        );
        let config = config::parse(&text, "test").expect("good");
        let service = Service::start(Arc::new(config)).expect("starts");
        Self {
            service: Some(service),
        }
    }

    /// Stops it in order.
    pub fn stop(mut self, timeout: Duration) {
        self.service.take().expect("runs").drain(timeout);
    }

    pub fn service(&self) -> &Service {
        self.service.as_ref().expect("runs")
    }

    pub fn control(&self) -> Arc<impl Control + use<>> {
        self.service().control()
    }

    /// Asks for a change as the management plane does.
    pub fn try_change(&self, edit: impl FnOnce(&mut Config)) -> Result<Applied, ApplyError> {
        let control = self.control();
        let running = control.config();
        let mut next = (*running).clone();
        edit(&mut next);
        assert_eq!(config::validate(&next), []);
        assert_eq!(control.check(&next), []);
        let live = config::live_part(&running, &next);
        assert_eq!(live, next, "the keys can change while it runs");
        let outcome = control.apply(Arc::new(next.clone()));
        let expected = if outcome.is_ok() { &next } else { &*running };
        assert_eq!(&*control.config(), expected);
        outcome
    }

    /// Makes a change, which all reactors put in force.
    pub fn change(&self, edit: impl FnOnce(&mut Config)) {
        let applied = self.try_change(edit).expect("the change is possible");
        assert_eq!(applied.reactors.len(), self.service().cores().len());
        let mut reactors = applied.reactors.iter();
        assert!(reactors.all(|one| one.applied), "{applied:?}");
        assert_eq!(applied.pending, [""; 0]);
    }

    /// Where the listener of this place in the configuration is.
    pub fn fabric(&self, index: usize) -> SocketAddr {
        let listeners = self.control().listeners().expect("reactors answer");
        let found = listeners.iter().find(|one| one.index == Some(index));
        let address = &found.expect("a listener of the configuration").address;
        address.parse().expect("an address")
    }

    /// Where RPC over TCP is.
    pub fn rpc(&self) -> SocketAddr {
        let listeners = self.control().listeners().expect("reactors answer");
        let found = listeners.iter().find(|one| one.provider == "tcp");
        let address = &found.expect("always there").address;
        address.parse().expect("an address")
    }

    pub fn mount(&self, path: &str) -> Result<FileHandle, Error> {
        let identity = Identity::system("test", 0, 0, &[]);
        mount(self.rpc(), path, &identity, TEST_TIMEOUT)
    }

    /// A client at the listener of this place in the configuration.
    pub fn client(&self, index: usize) -> Client {
        Client::connect(self.fabric(index), 16).expect("connects")
    }

    /// Waits until something holds.
    pub fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < TEST_TIMEOUT, "in vain: {what}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.drain(Duration::ZERO);
        }
    }
}

/// A client with a connection.
pub struct Client {
    pub session: Session,
    /// Calls of [`Client::submit_getattrs`] that were answered.
    pub answered: usize,
}

impl Client {
    /// One that wishes for so many credits.
    pub fn connect(address: SocketAddr, credits: u32) -> Result<Self, Error> {
        let settings = Settings {
            credits,
            calls: credits as usize,
            ..Settings::default()
        };
        Self::with(address, settings)
    }

    pub fn with(address: SocketAddr, settings: Settings) -> Result<Self, Error> {
        let settings = Settings {
            timeout: TEST_TIMEOUT,
            ..settings
        };
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).expect("memory");
        let provider = Iwarp::new(IwarpConfig::default()).expect("descriptors");
        let session = Session::connect(Box::new(provider), &pool, address, settings)?;
        Ok(Self {
            session,
            answered: 0,
        })
    }

    /// Makes calls and waits for nothing.
    pub fn submit_getattrs(&mut self, object: FileHandle, count: u64) {
        let (connection, _) = self.session.parts();
        for token in 0..count {
            // Far from those of calls that are waited for.
            let token = u64::MAX - token;
            let call = Call::nfs3(token, Procedure::Getattr, object, 0);
            connection
                .submit(&call, Instant::now())
                .expect("there is room");
        }
        self.turn();
    }

    /// Lets the connection go on.
    pub fn turn(&mut self) {
        let answered = &mut self.answered;
        self.session.turn(&mut |completion| {
            *answered += usize::from(completion.result.is_ok());
        });
    }

    /// A new file with this content.
    pub fn create(&mut self, root: FileHandle, name: &str, content: &[u8]) -> FileHandle {
        let how = CreateHow::Unchecked(SetAttributes::default());
        self.session
            .create(root, name.as_bytes(), how)
            .expect("created");
        let found = self.session.lookup(root, name.as_bytes()).expect("found");
        self.write(found.object, content).expect("written");
        found.object
    }

    pub fn write(&mut self, file: FileHandle, content: &[u8]) -> Result<(), Error> {
        let mut buffer = self.session.buffer(content.len())?;
        buffer[..content.len()].copy_from_slice(content);
        let memory = [buffer.into_slice(0..content.len())];
        let done = self.session.write(file, 0, &memory, Stability::FileSync)?;
        assert_eq!(done.count as usize, content.len());
        Ok(())
    }

    /// What the file begins with.
    pub fn read(&mut self, file: FileHandle, length: usize) -> Result<Vec<u8>, Error> {
        let room = [self.session.buffer(length)?.into_slice(0..length)];
        let done = self.session.read(file, 0, &room)?;
        let mut bytes = vec![0; done.count as usize];
        room[0].slice(0..bytes.len()).copy_to(0, &mut bytes);
        Ok(bytes)
    }

    /// The status of a GETATTR; `None` for success.
    pub fn status(&mut self, object: FileHandle) -> Option<Status> {
        match self.session.getattr(object) {
            Ok(_) => None,
            Err(error) => Some(error.status().expect("an answer of the server")),
        }
    }
}

/// The sum of a family over all labels, as a scrape has it.
pub fn sum(text: &str, family: &str) -> f64 {
    let lines = text.lines().filter(|line| {
        line.strip_prefix(family)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}
