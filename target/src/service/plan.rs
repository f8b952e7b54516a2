//! Settings of the service's modules, computed from the configuration.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use millrace_admin::config::{self, ByteSize, Config, ConfigProblem, KeyPath};
use millrace_mempool::{ArenaError, Registry};
use millrace_reactor::PollMode;
use millrace_reactor::fabric::iwarp::{CrcPolicy, Iwarp, IwarpConfig};
use millrace_reactor::fabric::{AnyProvider, ControlPath, QueuePairLimits};
use millrace_store::any::AnyVolume;
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_store::posix::identity::privileged;
use millrace_wire::rpcrdma::{Version, Versions};
use millrace_wire::{nfs3, nfs4};

use crate::access::Security;
use crate::exports::{ExportId, Rules, Squash};
use crate::flow::rate::Rates;
use crate::flow::{ClientLimit, policy};
use crate::nfs3::TRANSFER_MAX;
use crate::rdma::reverse::CALLS_MAX;
use crate::rdma::{self, Ccp, ExposureLimits, FabricId, FabricSlot, Settings};
use crate::service::devices::{self, Devices};
use crate::service::providers::ProviderKindCounters;
use crate::service::{clusters, folders};
use crate::transfer::TransferLimits;

/// Send queue entries of a connection: several replies with the most segments of a header and the
/// most pieces of a file's range.
const SEND_DEPTH: u32 = 1024;

/// RDMA Reads that a client may have open towards us: none is needed without exposed memory, but a
/// ready-to-receive indication may be one (RFC 6581 section 9.2).
const INBOUND_READS: u16 = 1;

/// The same in classic mode, where clients fetch replies.
const CLASSIC_INBOUND_READS: u16 = 32;

/// RDMA Reads that we have open towards a client at once; fewer if the client serves fewer.
const OUTBOUND_READS: u16 = 128;

/// The store of the configuration's export with this index: an empty one in memory, or its folder.
/// Mapping memory takes time, and folders may be on a file system that hangs.
///
/// # Errors
/// There is not enough memory, or no such folder: the key, and the reason.
pub fn volume(
    config: &Config,
    index: usize,
    registry: &Registry,
) -> Result<AnyVolume, ConfigProblem> {
    let export = &config.exports[index];
    match &export.store {
        config::Store::Memory { size, inodes } => {
            let store = in_memory(export, *size, *inodes, registry);
            store.map(AnyVolume::Memory).map_err(|error| {
                let path = KeyPath::root().key("exports").index(index);
                ConfigProblem::new(path.key("store").key("size"), error.to_string())
            })
        }
        config::Store::Posix(posix) => {
            // A right checked before may have been dropped since, by `--user` for example.
            folders::entitlement(index, export, posix, privileged())?;
            let volume = folders::open(config, export, posix);
            volume.map(AnyVolume::Posix).map_err(|error| {
                let path = folders::root_key(index);
                ConfigProblem::new(path, error.to_string())
            })
        }
        config::Store::Ceph(ceph) => clusters::open(config, index, ceph),
    }
}

fn in_memory(
    export: &config::Export,
    size: ByteSize,
    inodes: Option<u32>,
    registry: &Registry,
) -> Result<MemoryStore, ArenaError> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let memory = MemoryConfig {
        size_bytes: size.bytes(),
        inodes: inodes.map(u64::from),
        file_system: ExportId::of(&export.path).0,
        epoch: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        // Usable by all users from the start, also if clients' root is squashed; a client's root
        // may restrict it.
        root_mode: 0o1777,
        root_uid: 0,
        root_gid: 0,
    };
    MemoryStore::new(registry, memory)
}

fn networks(clients: &[config::Network]) -> Vec<IpNet> {
    clients.iter().map(|network| network.0).collect()
}

/// The limits of clients and of exports.
pub fn rates(config: &Config) -> (Vec<ClientLimit>, Vec<(ExportId, Rates)>) {
    let clients = config.limits.iter().map(|entry| ClientLimit {
        networks: networks(&entry.clients),
        rates: Rates {
            iops: entry.iops,
            bandwidth: entry.bandwidth.map(|bandwidth| bandwidth.0),
        },
    });
    let exports = config.exports.iter().filter_map(|export| {
        let limits = export.limits.as_ref()?;
        let rates = Rates {
            iops: limits.iops,
            bandwidth: limits.bandwidth.map(|bandwidth| bandwidth.0),
        };
        Some((ExportId::of(&export.path), rates))
    });
    (clients.collect(), exports.collect())
}

/// The access rules of an export.
pub fn rules(export: &config::Export) -> Rules {
    Rules {
        path: export.path.clone(),
        clients: networks(&export.clients),
        read_only: export.access == config::Access::Ro,
        security: (export.security.iter())
            .map(|security| match security {
                config::ExportSecurity::None => Security::None,
                config::ExportSecurity::Sys => Security::Sys,
                config::ExportSecurity::Krb5 => Security::Krb5,
                config::ExportSecurity::Krb5i => Security::Krb5i,
                config::ExportSecurity::Krb5p => Security::Krb5p,
            })
            .collect(),
        squash: match export.squash {
            config::Squash::None => Squash::None,
            config::Squash::Root => Squash::Root,
            config::Squash::All => Squash::All,
        },
        anonymous_uid: export.anon_uid,
        anonymous_gid: export.anon_gid,
    }
}

/// The versions of NFS that are served.
pub fn versions(config: &Config) -> Vec<u32> {
    let three = config.nfs3.is_on().then_some(nfs3::VERSION);
    let four = (!config.nfs4.minor_versions.is_empty()).then_some(nfs4::VERSION);
    three.into_iter().chain(four).collect()
}

/// The settings of RPC-over-RDMA.
pub fn settings(config: &Config) -> Settings {
    let rpcrdma = &config.rpcrdma;
    let inline = usize::try_from(rpcrdma.inline.bytes()).unwrap_or(usize::MAX);
    let padding = rpcrdma.padding.is_on();
    let mut settings = Settings {
        exposures: exposures(&config.flow),
        transfers: TransferLimits {
            least: config.flow.transfer_least.bytes(),
            window: config.flow.transfer_window,
        },
        ccp: rpcrdma.ccp.is_on().then_some(Ccp {
            program: rpcrdma.ccp_program,
            anonymous: rpcrdma.ccp_flavor == config::CcpFlavor::None,
        }),
        ..Settings::new(inline, config.flow.credits, TRANSFER_MAX, padding)
    };
    settings.rules.same_xid = rpcrdma.same_xid == config::SameXid::Strict;
    let numbers = rpcrdma.versions.iter();
    let versions = numbers.filter_map(|&number| Version::from_number(number));
    let (low, high) = (versions.clone().min(), versions.max());
    match (low, high) {
        (Some(low), Some(high)) => settings.serving(Versions::new(low, high)),
        _ => settings,
    }
}

/// The limits of replies with read chunks.
fn exposures(flow: &config::Flow) -> ExposureLimits {
    ExposureLimits {
        window: flow.done_window,
        close: flow.on_window_end == config::WindowEnd::Close,
        connection: flow.max_exposures,
        client: flow.max_client_exposures,
        total: flow.max_total_exposures,
        bytes: flow.max_exposed_bytes.bytes(),
    }
}

/// The limits of a listener's connections.
pub fn limits(config: &Config, fabric: &config::Fabric) -> QueuePairLimits {
    let receive_size = u32::try_from(settings(config).receive_size()).unwrap_or(u32::MAX);
    let classic = fabric.is_classic(config.rpcrdma.read_chunk_replies);
    let replies = if classic {
        config.flow.max_exposures
    } else {
        0
    };
    // Receives beyond those for credits.
    let beyond = rdma::dones_most(replies).saturating_add(CALLS_MAX);
    QueuePairLimits {
        send_depth: SEND_DEPTH,
        receive_depth: policy::receives_most(config.flow.credits, beyond),
        ird: if classic {
            CLASSIC_INBOUND_READS
        } else {
            INBOUND_READS
        },
        ord: OUTBOUND_READS,
        exposures: rdma::keys_most(replies),
        receive_size,
    }
}

/// The polling mode of reactors.
pub fn poll_mode(reactors: &config::Reactors) -> PollMode {
    match reactors.poll {
        config::PollMode::Busy => PollMode::Busy,
        config::PollMode::Adaptive => PollMode::Adaptive {
            idle_after: reactors.idle_after,
        },
    }
}

/// The reactor of a provider.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "verbs"), allow(dead_code))] // Only devices have a place themselves.
pub struct ProviderCore {
    /// The number of its reactor.
    pub index: usize,
    /// The core that the reactor is pinned to.
    pub core: Option<usize>,
}

/// The counters of a listener's provider on one reactor.
pub type ProviderCounters = (FabricId, &'static str, ProviderKindCounters);

/// A listener's provider on one reactor, which does not listen yet. One on devices uses the open
/// devices.
///
/// # Errors
/// The system gives no descriptor, or no devices are open.
pub fn provider(
    id: FabricId,
    fabric: &config::Fabric,
    limits: QueuePairLimits,
    provider_core: ProviderCore,
    devices: Option<&Devices>,
) -> std::io::Result<(FabricSlot, ProviderCounters)> {
    let (provider, counters) = match fabric.provider {
        config::Provider::Iwarp => iwarp(fabric)?,
        config::Provider::Verbs => {
            let devices = devices.ok_or(std::io::ErrorKind::NotConnected)?;
            devices::provider(devices, fabric, provider_core)?
        }
    };
    let counters = (id, provider.name(), counters);
    let slot = FabricSlot::new(Rc::new(RefCell::new(provider)), limits, None).named(id);
    Ok((slot, counters))
}

fn iwarp(fabric: &config::Fabric) -> std::io::Result<(AnyProvider, ProviderKindCounters)> {
    let crc = match fabric.crc.unwrap_or(config::CrcPolicy::Auto) {
        config::CrcPolicy::Auto => CrcPolicy::Auto,
        config::CrcPolicy::Required => CrcPolicy::Required,
        config::CrcPolicy::Off => CrcPolicy::Off,
    };
    let provider = Iwarp::new(IwarpConfig {
        crc,
        ..IwarpConfig::default()
    })?;
    let counters = ProviderKindCounters::Iwarp(provider.counters());
    Ok((AnyProvider::Iwarp(Box::new(provider)), counters))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use millrace_mempool::HugepagePolicy;
    use millrace_store::{Namespace, Store};

    use super::*;

    #[test]
    fn an_export_in_memory_has_as_many_files_as_the_key_says() {
        let registry = Registry::new(HugepagePolicy::Off);
        for (inodes, most) in [("", 16 * 1024), (", inodes: 7", 7)] {
            let text = format!(
                "exports: [{{ path: /a, store: {{ kind: memory, size: 16MiB{inodes} }} }}]"
            );
            let config = config::parse(&text, "a.yaml").unwrap();
            let Ok(AnyVolume::Memory(store)) = volume(&config, 0, &registry) else {
                panic!("it is in memory");
            };
            let taken = store.usage().inodes;
            let told = pin!(store.statistics(store.root()));
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(Ok(told)) = told.poll(&mut context) else {
                panic!("memory tells it at once");
            };
            assert_eq!((taken, told.total_inodes), (1, most));
        }
    }

    #[test]
    fn rr1_done_01_only_listeners_in_classic_mode_can_expose() {
        let mut config = Config::default();
        let plain = limits(&config, &config.fabric[0]);
        assert_eq!((plain.exposures, plain.ird), (0, INBOUND_READS));
        config.fabric[0].read_chunk_replies = Some(config::Switch::On);
        let classic = limits(&config, &config.fabric[0]);
        // Space for every reply's keys, and for every RDMA_DONE that may arrive for them.
        assert_eq!(classic.exposures, 16 * 8);
        assert_eq!(classic.ird, CLASSIC_INBOUND_READS);
        assert_eq!(classic.receive_depth, plain.receive_depth + 2 * 16);
        assert_eq!(
            settings(&config).exposures,
            ExposureLimits::default(),
            "the defaults of the configuration"
        );
    }
}
