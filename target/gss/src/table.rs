//! The contexts of the process: slots with generations, read without locks.
//!
//! A reader loads the pointer of a slot. Only insertion and what operators and clocks end takes the
//! lock of the registry, on other threads than reactors; a context that its client destroys leaves
//! its slot at once, and the registry learns of it later.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::context::{Context, ContextRef};
use crate::krb5::{Protection, random};
use crate::{EndReason, GssCounters, Identity, Settings};

/// How long an expired context is known, so that its client is told to renew it rather than that it
/// is unknown.
const EXPIRED_KEPT: Duration = Duration::from_mins(5);

/// What a client names a context by: slot, generation, 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContextHandle([u8; 16]);

impl ContextHandle {
    /// The slot of handles that are not of the table.
    const NO_SLOT: u32 = u32::MAX;

    /// The bytes on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A handle as a client sent it; `None` if it has another length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    fn new(slot: u32, generation: u32) -> Self {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&slot.to_be_bytes());
        bytes[4..8].copy_from_slice(&generation.to_be_bytes());
        random::fill(&mut bytes[8..]);
        Self(bytes)
    }

    /// A handle that the table never has.
    pub(crate) fn outside_the_table() -> Self {
        Self::new(Self::NO_SLOT, 0)
    }

    fn slot(&self) -> u32 {
        u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }
}

/// Why a handle names no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandleError {
    /// `RPCSEC_GSS_CREDPROBLEM`.
    #[error("the handle is unknown")]
    Unknown,
    /// `RPCSEC_GSS_CTXPROBLEM`.
    #[error("the context has expired")]
    Expired,
}

/// No slot is free, and no context may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("all contexts are in use")]
pub struct TableFull;

/// The table.
pub struct ContextTable {
    slots: Box<[ArcSwapOption<Context>]>,
    registry: Mutex<Registry>,
    counters: Arc<GssCounters>,
    per_client: usize,
    window: u32,
    lifetime: Duration,
    idle: Duration,
}

/// Which slots are taken. It may name slots whose contexts were destroyed meanwhile.
struct Registry {
    free: Vec<u32>,
    generations: Box<[u32]>,
    clients: HashMap<IpAddr, Vec<ContextHandle>>,
}

impl ContextTable {
    pub fn new(settings: &Settings, counters: Arc<GssCounters>) -> Self {
        let most = ContextHandle::NO_SLOT - 1;
        let count = u32::try_from(settings.contexts)
            .unwrap_or(most)
            .clamp(1, most);
        Self {
            slots: (0..count).map(|_| ArcSwapOption::empty()).collect(),
            registry: Mutex::new(Registry {
                free: (0..count).rev().collect(),
                generations: (0..count).map(|_| 0).collect(),
                clients: HashMap::new(),
            }),
            counters,
            per_client: settings.contexts_per_client.max(1),
            window: settings.window,
            lifetime: settings.lifetime,
            idle: settings.idle,
        }
    }

    /// The context of a handle as a client sent it. No lock, no allocation.
    pub fn find(&self, handle: &[u8], now: Instant) -> Result<ContextRef, HandleError> {
        let handle = ContextHandle::from_bytes(handle).ok_or(HandleError::Unknown)?;
        let context = self.current(&handle).ok_or(HandleError::Unknown)?;
        if now >= context.expires {
            return Err(HandleError::Expired);
        }
        context.touch(now);
        Ok(ContextRef(context))
    }

    /// How long a context can still be used; `None` if it cannot. This is no use of it.
    pub fn remaining(&self, handle: &[u8], now: Instant) -> Option<Duration> {
        let context = self.current(&ContextHandle::from_bytes(handle)?)?;
        let remaining = context.expires.saturating_duration_since(now);
        (!remaining.is_zero()).then_some(remaining)
    }

    fn current(&self, handle: &ContextHandle) -> Option<Arc<Context>> {
        let slot = self.slots.get(handle.slot() as usize)?;
        let context = slot.load_full()?;
        bool::from(context.handle.0.ct_eq(&handle.0)).then_some(context)
    }

    /// Ends a context, unless another was quicker. The registry learns of it later.
    pub fn end(&self, context: &ContextRef, why: EndReason) -> bool {
        let current = Some(Arc::clone(&context.0));
        let slot = &self.slots[context.0.handle.slot() as usize];
        let before = slot.compare_and_swap(&current, None);
        let ended = before
            .as_ref()
            .is_some_and(|before| Arc::ptr_eq(before, &context.0));
        if ended {
            self.counters.contexts.decrement();
            self.counters.ended(why).increment();
        }
        ended
    }

    /// Puts a context in, and evicts another if need be.
    pub fn insert(
        &self,
        protection: Arc<Protection>,
        identity: Identity,
        lifetime: Duration,
        client: IpAddr,
        now: Instant,
    ) -> Result<ContextRef, TableFull> {
        let mut registry = self.registry();
        if registry.contexts_of(client) >= self.per_client {
            self.settle(&mut registry);
            if registry.contexts_of(client) >= self.per_client {
                self.evict_of(&mut registry, client, now)?;
            }
        }
        let slot = self.free_slot(&mut registry, client, now)?;
        let generation = &mut registry.generations[slot as usize];
        *generation = generation.wrapping_add(1);
        let handle = ContextHandle::new(slot, *generation);
        let expires = now + lifetime.min(self.lifetime);
        let life = (now, expires);
        let context = Context::new(handle, identity, client, protection, self.window, life);
        let context = Arc::new(context);
        registry.clients.entry(client).or_default().push(handle);
        self.slots[slot as usize].store(Some(Arc::clone(&context)));
        self.counters.contexts.increment();
        Ok(ContextRef(context))
    }

    /// Removes what has expired a while ago, and what was not used for long.
    pub fn sweep(&self, now: Instant) {
        for context in self.contexts() {
            let context = ContextRef(context);
            if now >= context.0.expires + EXPIRED_KEPT {
                self.end(&context, EndReason::Expired);
            } else if context.0.idle(now) >= self.idle && has_no_calls(&context.0) {
                self.end(&context, EndReason::Idle);
            }
        }
        self.settle(&mut self.registry());
    }

    /// All contexts, one after the other.
    pub fn contexts(&self) -> impl Iterator<Item = Arc<Context>> {
        self.slots.iter().filter_map(ArcSwapOption::load_full)
    }

    fn registry(&self) -> std::sync::MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the slots of contexts that have ended.
    fn settle(&self, registry: &mut Registry) {
        let Registry { free, clients, .. } = registry;
        clients.retain(|_, handles| {
            handles.retain(|handle| {
                let stays = self.current(handle).is_some();
                if !stays {
                    free.push(handle.slot());
                }
                stays
            });
            !handles.is_empty()
        });
    }

    fn free_slot(
        &self,
        registry: &mut Registry,
        client: IpAddr,
        now: Instant,
    ) -> Result<u32, TableFull> {
        if let Some(slot) = registry.free.pop() {
            return Ok(slot);
        }
        self.settle(registry);
        if registry.free.is_empty() && self.evict_of(registry, client, now).is_err() {
            // The client has none to give. The one with the most has.
            let clients = registry.clients.iter();
            let largest = clients.max_by_key(|(_, handles)| handles.len());
            let largest = largest.map(|(client, _)| *client).ok_or(TableFull)?;
            self.evict_of(registry, largest, now)?;
        }
        registry.free.pop().ok_or(TableFull)
    }

    /// Ends the context of a client that was not used for the longest time and has no calls.
    fn evict_of(
        &self,
        registry: &mut Registry,
        client: IpAddr,
        now: Instant,
    ) -> Result<(), TableFull> {
        let handles = registry.clients.get_mut(&client).ok_or(TableFull)?;
        let candidates = handles.iter().enumerate().filter_map(|(at, handle)| {
            let context = self.current(handle)?;
            has_no_calls(&context).then_some((at, context))
        });
        let longest = candidates.max_by_key(|(_, context)| context.idle(now));
        let (at, context) = longest.ok_or(TableFull)?;
        self.end(&ContextRef(context), EndReason::Evicted);
        registry.free.push(handles.remove(at).slot());
        Ok(())
    }
}

impl Registry {
    fn contexts_of(&self, client: IpAddr) -> usize {
        self.clients.get(&client).map_or(0, Vec::len)
    }
}

/// Whether only the table and the caller have the context.
fn has_no_calls(context: &Arc<Context>) -> bool {
    Arc::strong_count(context) <= 2
}

#[cfg(test)]
mod tests;
