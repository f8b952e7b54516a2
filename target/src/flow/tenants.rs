//! The clients of one reactor, and what of its memory is whose.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_mempool::{Class, Pool, PoolGauges};
use millrace_reactor::Clock;

use super::policy::{self, Claim, FIRST_RECEIVES, Pressure, WEIGHT};
use super::{Client, Clients, FlowCounters};

/// Receives may take half of the buffers of their class; replies and newcomers have the other.
const RECEIVES_PART: u64 = 2;

/// A client without calls for this long is no longer active: its share goes to the others.
const ACTIVE_FOR: Duration = Duration::from_secs(1);

/// Time between two looks at who is active.
const RECOUNT_AFTER: Duration = Duration::from_millis(100);

/// A client without connections is remembered for this long, so that coming back is no way around
/// its limit.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// Flow control of one reactor. Clones share it.
#[derive(Clone)]
pub struct Flow {
    inner: Rc<Inner>,
}

struct Inner {
    clients: Clients,
    reactor: usize,
    clock: Clock,
    pool: Pool,
    gauges: Arc<PoolGauges>,
    receive_class: Class,
    counters: Arc<FlowCounters>,
    tenants: RefCell<HashMap<IpAddr, Rc<Tenant>>>,
    claims: RefCell<Vec<Claim>>,
    /// Clients that are active.
    active: Cell<u32>,
    /// Buffers of the receive class that there are and that could be.
    total: Cell<u64>,
    /// Somebody came, left or became active since the last count.
    stale: Cell<bool>,
    epoch: Cell<u64>,
    counted: Cell<Option<Instant>>,
}

/// A client on one reactor.
pub struct Tenant {
    client: Arc<Client>,
    connections: Cell<u32>,
    /// Receives that its connections hold.
    held: Cell<u32>,
    /// Receives that its connections wish for.
    demand: Cell<u32>,
    /// Its calls that are not answered yet.
    in_service: Cell<u32>,
    active: Cell<bool>,
    used: Cell<Instant>,
    /// Receives that it may hold.
    share: Cell<u32>,
    /// Receives that each of its connections may hold.
    connection_share: Cell<u32>,
}

impl Flow {
    /// Flow control of the reactor with this index, whose receives come from `receive_class` of
    /// `pool`.
    #[must_use]
    pub fn new(
        clients: &Clients,
        reactor: usize,
        pool: &Pool,
        receive_class: Class,
        clock: &Clock,
    ) -> Self {
        Self {
            inner: Rc::new(Inner {
                clients: clients.clone(),
                reactor,
                clock: clock.clone(),
                pool: pool.clone(),
                gauges: pool.gauges(),
                receive_class,
                counters: Arc::default(),
                tenants: RefCell::default(),
                claims: RefCell::default(),
                active: Cell::new(0),
                total: Cell::new(pool.attainable(receive_class)),
                stale: Cell::new(true),
                epoch: Cell::new(0),
                counted: Cell::new(None),
            }),
        }
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> &Arc<FlowCounters> {
        &self.inner.counters
    }

    /// The client at an address.
    #[must_use]
    pub fn tenant(&self, address: IpAddr) -> Rc<Tenant> {
        let inner = &*self.inner;
        let mut tenants = inner.tenants.borrow_mut();
        let tenant = tenants.entry(address).or_insert_with(|| {
            Rc::new(Tenant {
                client: inner.clients.client(address),
                connections: Cell::new(0),
                held: Cell::new(0),
                demand: Cell::new(0),
                in_service: Cell::new(0),
                active: Cell::new(false),
                used: Cell::new(inner.clock.now()),
                share: Cell::new(FIRST_RECEIVES),
                connection_share: Cell::new(FIRST_RECEIVES),
            })
        });
        Rc::clone(tenant)
    }

    /// Takes a connection of a client in, unless the client's connections hold all that it may have
    /// already.
    #[must_use]
    pub fn join(&self, address: IpAddr) -> Option<Rc<Tenant>> {
        let tenant = self.tenant(address);
        tenant.used.set(self.inner.clock.now());
        tenant.active.set(true);
        self.count();
        let connections = tenant.connections.get();
        if connections > 0 && tenant.held.get() + FIRST_RECEIVES > tenant.share.get() {
            self.inner.counters.turned_away.add(1);
            return None;
        }
        self.set_connections(&tenant, connections + 1);
        Some(tenant)
    }

    /// Lets a connection of a client go.
    pub fn leave(&self, tenant: &Tenant) {
        self.set_connections(tenant, tenant.connections.get() - 1);
    }

    fn set_connections(&self, tenant: &Tenant, count: u32) {
        let inner = &*self.inner;
        tenant.connections.set(count);
        tenant
            .client
            .set_connections(&inner.clients, inner.reactor, count);
        inner.stale.set(true);
    }

    /// Notes a call of a client.
    pub fn called(&self, tenant: &Tenant) {
        tenant.used.set(self.inner.clock.now());
        tenant.in_service.set(tenant.in_service.get() + 1);
        self.inner.counters.used.add(1);
        if !tenant.active.replace(true) {
            self.inner.stale.set(true);
        }
    }

    /// Notes that a call of a client is over.
    pub fn ended(&self, tenant: &Tenant) {
        tenant.in_service.set(tenant.in_service.get() - 1);
        self.inner.counters.used.sub(1);
    }

    /// Receives that a connection of this client may hold now.
    #[must_use]
    pub fn share(&self, tenant: &Tenant) -> u32 {
        self.recount();
        tenant.connection_share.get()
    }

    /// How short memory is.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let class = self.inner.gauges.class(self.inner.receive_class);
        let total = self.inner.total.get();
        Pressure {
            free: total.saturating_sub(class.in_use()),
            total,
            waiters: class.waiters(),
        }
    }

    /// Counts again who is active, if that may have changed.
    fn recount(&self) {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let changed = inner.stale.get() || inner.epoch.get() != inner.clients.epoch();
        let due = inner
            .counted
            .get()
            .is_none_or(|counted| changed || now >= counted + RECOUNT_AFTER);
        if due {
            self.count();
        }
    }

    fn count(&self) {
        let inner = &*self.inner;
        let now = inner.clock.now();
        inner.stale.set(false);
        inner.epoch.set(inner.clients.epoch());
        inner.counted.set(Some(now));
        let total = inner.pool.attainable(inner.receive_class);
        inner.total.set(total);
        let budget = u32::try_from(total / RECEIVES_PART).unwrap_or(u32::MAX);

        let mut tenants = inner.tenants.borrow_mut();
        let mut claims = inner.claims.borrow_mut();
        claims.clear();
        let mut idle = 0;
        let mut present = 0;
        tenants.retain(|_, tenant| {
            let unused = now.saturating_duration_since(tenant.used.get());
            let here = tenant.connections.get() > 0;
            present += u64::from(here);
            if unused > ACTIVE_FOR && tenant.in_service.get() == 0 {
                tenant.active.set(false);
            }
            if tenant.active.get() && here {
                claims.push(tenant.claim());
            } else {
                idle += tenant.held.get();
            }
            here || tenant.held.get() > 0 || unused < REMEMBERED_FOR
        });
        inner.counters.clients.set(present);
        inner
            .active
            .set(u32::try_from(claims.len()).unwrap_or(u32::MAX));
        let level = policy::level(budget.saturating_sub(idle), &claims);
        for tenant in tenants.values() {
            let share = tenant.claim().at(level).max(FIRST_RECEIVES);
            tenant.share.set(share);
            let each = share / tenant.connections.get().max(1);
            tenant.connection_share.set(each.max(FIRST_RECEIVES));
        }
    }
}

impl Tenant {
    /// The client.
    #[must_use]
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Receives that its connections hold on this reactor.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held.get()
    }

    /// Receives that it may hold on this reactor, as counted last.
    #[must_use]
    pub fn share(&self) -> u32 {
        self.share.get()
    }

    /// Notes receives taken or given back.
    pub(crate) fn note_held(&self, before: u32, after: u32) {
        self.held.set(self.held.get() + after - before);
    }

    /// Notes a change of what one of its connections wishes for.
    pub(crate) fn note_demand(&self, before: u32, after: u32) {
        self.demand.set(self.demand.get() + after - before);
    }

    fn claim(&self) -> Claim {
        Claim {
            held: self.held.get(),
            demand: self.demand.get(),
            weight: WEIGHT / self.client.reactors().clamp(1, WEIGHT),
        }
    }
}
