//! What of the service's state is compared from second to second while somebody follows events.

use std::collections::BTreeMap;

use crate::control::Control;
use crate::status::{DrainPhase, ExportStatus, Occurrence, Readiness};

/// Jobs of an export that take longer are reported.
const STUCK_SECONDS: f64 = 5.0;

/// The state at a moment. Parts that did not answer are `None`.
pub struct Observation {
    readiness: Readiness,
    /// Reactors without progress, with their last known activity.
    stalled: BTreeMap<String, String>,
    /// Clients, with their connections.
    clients: Option<BTreeMap<String, u64>>,
    /// Banned addresses, with the time left.
    bans: BTreeMap<String, u64>,
    drain: Option<DrainPhase>,
    grace: Option<bool>,
    /// Listeners that accept, by provider and address.
    listeners: Option<BTreeMap<(String, String), ()>>,
    exports: Option<BTreeMap<String, ExportHealth>>,
}

/// What an export's store suffers from.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct ExportHealth {
    stuck: bool,
    unmounted: bool,
    /// Failures by which written data may be lost.
    losses: u64,
}

impl Observation {
    /// The state now.
    pub fn of(control: &dyn Control) -> Self {
        let stalled = control.health().stalled.into_iter();
        let clients = control.clients().ok().map(|clients| {
            let clients = clients.into_iter();
            clients.map(|one| (one.address, one.connections)).collect()
        });
        let listeners = control.listeners().ok().map(|listeners| {
            let accepting = listeners.into_iter().filter(|one| one.accepting);
            accepting
                .map(|one| ((one.provider, one.address), ()))
                .collect()
        });
        let bans = control.bans().into_iter();
        let grace = control.nfs4().and_then(|nfs4| nfs4.grace().ok());
        let exports = control.exports().ok().map(|exports| {
            let exports = exports.iter();
            exports
                .map(|one| (one.path.clone(), ExportHealth::of(one)))
                .collect()
        });
        Self {
            readiness: control.readiness(),
            stalled: stalled.map(|one| (one.name, one.activity)).collect(),
            clients,
            bans: bans.map(|one| (one.address, one.seconds)).collect(),
            drain: control.drain_status().ok().map(|status| status.phase),
            grace: grace.map(|grace| grace.active),
            listeners,
            exports,
        }
    }

    /// What has happened since `before`. Parts that did not answer are taken from there.
    pub fn since(&mut self, before: &mut Self) -> Vec<Occurrence> {
        let mut all = Vec::new();
        if self.readiness != before.readiness {
            all.push(Occurrence::Readiness {
                readiness: self.readiness,
            });
        }
        let (began, ended) = differences(&before.stalled, &self.stalled);
        all.extend(began.map(|(name, activity)| Occurrence::ReactorStalled { name, activity }));
        all.extend(ended.map(|name| Occurrence::ReactorRecovered { name }));
        let (began, ended) = differences(&before.bans, &self.bans);
        all.extend(began.map(|(address, seconds)| Occurrence::BanBegun { address, seconds }));
        all.extend(ended.map(|address| Occurrence::BanEnded { address }));
        if let (Some(then), Some(now)) = kept(&mut before.drain, &mut self.drain)
            && then != now
        {
            all.push(Occurrence::Drain { phase: *now });
        }
        if let (Some(then), Some(now)) = kept(&mut before.grace, &mut self.grace)
            && then != now
        {
            all.push(Occurrence::Grace { active: *now });
        }
        if let (Some(then), Some(now)) = kept(&mut before.listeners, &mut self.listeners) {
            let (began, ended) = differences(then, now);
            all.extend(
                began.map(|((provider, address), ())| Occurrence::ListenerOpened {
                    address,
                    provider,
                }),
            );
            all.extend(
                ended.map(|(provider, address)| Occurrence::ListenerClosed { address, provider }),
            );
        }
        if let (Some(then), Some(now)) = kept(&mut before.clients, &mut self.clients) {
            let (began, ended) = differences(then, now);
            all.extend(
                began.map(|(address, connections)| Occurrence::ClientConnected {
                    address,
                    connections,
                }),
            );
            all.extend(ended.map(|address| Occurrence::ClientGone { address }));
        }
        if let (Some(then), Some(now)) = kept(&mut before.exports, &mut self.exports) {
            for (path, health) in now {
                let earlier = then.get(path).copied().unwrap_or_default();
                all.extend(health.since(earlier, path));
            }
        }
        all
    }
}

impl ExportHealth {
    fn of(export: &ExportStatus) -> Self {
        let (folder, cluster) = (export.folder.as_ref(), export.cluster.as_ref());
        let stuck = folder.map(|one| one.stuck_seconds);
        let stuck = stuck.or(cluster.map(|one| one.stuck_seconds));
        let losses = folder.map_or(0, |one| one.write_back_errors);
        Self {
            stuck: stuck.is_some_and(|seconds| seconds >= STUCK_SECONDS),
            unmounted: cluster.is_some_and(|one| !one.mounted),
            losses: losses + cluster.map_or(0, |one| one.sync_errors),
        }
    }

    fn since(self, before: Self, path: &str) -> Vec<Occurrence> {
        let trouble = |began: bool, words: &str| {
            began.then(|| Occurrence::ExportTrouble {
                path: path.to_owned(),
                trouble: words.to_owned(),
            })
        };
        let was_well = !before.stuck && !before.unmounted;
        let is_well = !self.stuck && !self.unmounted;
        let recovered = (is_well && !was_well).then(|| Occurrence::ExportRecovered {
            path: path.to_owned(),
        });
        [
            trouble(
                self.stuck && !before.stuck,
                "its file system does not answer",
            ),
            trouble(
                self.unmounted && !before.unmounted,
                "it has no session with its cluster",
            ),
            trouble(
                self.losses > before.losses,
                "writing back failed, so that written data may be lost",
            ),
            recovered,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// What is there now only, and what was there before only.
fn differences<K: Ord + Clone, V: Clone>(
    before: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> (impl Iterator<Item = (K, V)>, impl Iterator<Item = K>) {
    let began = now.iter().filter(|(key, _)| !before.contains_key(*key));
    let ended = before.keys().filter(|key| !now.contains_key(*key));
    (
        began.map(|(key, value)| (key.clone(), value.clone())),
        ended.cloned(),
    )
}

/// Both values; the one before stays that of now where there is none.
fn kept<'a, T>(
    before: &'a mut Option<T>,
    now: &'a mut Option<T>,
) -> (Option<&'a T>, Option<&'a T>) {
    if now.is_none() {
        *now = before.take();
    }
    (before.as_ref(), now.as_ref())
}
