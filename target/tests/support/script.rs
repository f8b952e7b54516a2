//! A program that does as a test tells it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use millrace::call::{Answer, Bulk, BulkArgument, Call, Reply, Serve, Shortage};
use millrace::nfs3;
use millrace::rpc::program::{ProcedureInfo, called};
use millrace_mempool::Class;
use millrace_reactor::completion::Completions;

use super::raw::{Options, World, gather};

/// What the program does with a call.
#[derive(Clone, Copy, Debug)]
pub struct CallScript {
    /// Bytes of the reply message, at least its first two words.
    pub length: usize,
    /// Fetch what stands apart.
    pub pull: bool,
    /// Wait for [`Script::release`] before the reply.
    pub hold: bool,
    pub panic: bool,
    pub answer: Answer,
}

impl Default for CallScript {
    fn default() -> Self {
        Self {
            length: 24,
            pull: false,
            hold: false,
            panic: false,
            answer: Answer::Send,
        }
    }
}

impl CallScript {
    /// A reply of a length.
    pub fn of_length(length: usize) -> Self {
        Self {
            length,
            ..Self::default()
        }
    }

    /// A call that waits.
    pub fn held() -> Self {
        Self {
            hold: true,
            ..Self::default()
        }
    }
}

/// A client that is connected to a program with a plan.
pub fn scripted(plan: CallScript, options: Options) -> (World<Script>, Script) {
    let script = Script::default();
    script.plan(plan);
    let mut world = World::new(script.clone(), options);
    world.connect();
    (world, script)
}

/// A call as the program saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub message: Vec<u8>,
    pub bulk: Vec<BulkArgument>,
    /// What was fetched.
    pub pulled: Vec<u8>,
}

/// A program; clones are the same. It serves every other call at once, where its plan lets it.
#[derive(Clone, Default)]
pub struct Script {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    plan: Cell<CallScript>,
    seen: RefCell<Vec<Seen>>,
    gate: Completions<()>,
    held: RefCell<Vec<u64>>,
}

impl Script {
    pub fn plan(&self, plan: CallScript) {
        self.inner.plan.set(plan);
    }

    /// Takes the calls seen.
    pub fn seen(&self) -> Vec<Seen> {
        self.inner.seen.take()
    }

    /// Calls that wait.
    pub fn held(&self) -> usize {
        self.inner.held.borrow().len()
    }

    /// Lets the oldest calls that wait go on.
    pub fn release(&self, count: usize) {
        let released: Vec<u64> = self.inner.held.borrow_mut().drain(..count).collect();
        for token in released {
            self.inner.gate.complete(token, ()).unwrap();
        }
    }

    /// The message that the program answers: a reply, as far as its first words go.
    pub fn reply(xid: u32, length: usize) -> Vec<u8> {
        let reply = 1_u32.to_be_bytes();
        let filler = (0..length - 8).map(|index| (index % 251) as u8);
        let words = xid.to_be_bytes().into_iter().chain(reply);
        words.chain(filler).collect()
    }
}

impl Serve for Script {
    async fn serve<B: Bulk>(&self, call: Call<'_>, bulk: &mut B, reply: &mut Reply) -> Answer {
        let plan = self.inner.plan.get();
        let mut seen = Seen {
            message: call.message.to_vec(),
            bulk: call.bulk.to_vec(),
            pulled: Vec::new(),
        };
        if let (true, Some(apart)) = (plan.pull, call.bulk.first()) {
            let buffer = reply.pool().acquire(Class::Large).await;
            let sink = [buffer.into_slice(0..apart.length as usize)];
            if bulk.pull(0, &sink).await.is_err() {
                return Answer::Broken;
            }
            seen.pulled = gather(&sink);
        }
        self.inner.seen.borrow_mut().push(seen);
        assert!(!plan.panic, "as told");
        if plan.hold {
            let (token, wait) = self.inner.gate.register();
            self.inner.held.borrow_mut().push(token);
            wait.await;
        }
        if plan.answer != Answer::Send {
            return plan.answer;
        }
        reply.reserve(plan.length).await;
        if reply.room().len() < plan.length {
            return Answer::TooLarge(Shortage {
                processed: true,
                message: plan.length,
                bulk: 0,
            });
        }
        let xid = u32::from_be_bytes(*call.message.first_chunk().unwrap());
        reply.room()[..plan.length].copy_from_slice(&Self::reply(xid, plan.length));
        reply.set_length(plan.length);
        Answer::Send
    }

    /// Every other call, if it need not wait.
    fn serve_at_once(&self, call: Call<'_>, reply: &mut Reply) -> Option<Answer> {
        let plan = self.inner.plan.get();
        let xid = u32::from_be_bytes(*call.message.first_chunk()?);
        let waits = plan.pull || plan.hold || plan.length > reply.room().len();
        if waits || xid.is_multiple_of(2) {
            return None;
        }
        self.inner.seen.borrow_mut().push(Seen {
            message: call.message.to_vec(),
            bulk: Vec::new(),
            pulled: Vec::new(),
        });
        assert!(!plan.panic, "as told");
        if plan.answer == Answer::Send {
            reply.room()[..plan.length].copy_from_slice(&Self::reply(xid, plan.length));
            reply.set_length(plan.length);
        }
        Some(plan.answer)
    }

    fn is_immediate(&self, message: &[u8]) -> bool {
        self.procedure(message).is_some()
    }

    fn procedure(&self, message: &[u8]) -> Option<&'static ProcedureInfo> {
        nfs3::INFO.procedure(called(message)?)
    }
}
