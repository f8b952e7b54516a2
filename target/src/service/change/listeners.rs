//! Which listeners are kept, added and removed.

use std::net::SocketAddr;

use millrace_admin::config::{Fabric, Provider};
use millrace_admin::status::ListenerStatus;

use crate::rdma::FabricId;
use crate::service::control::ReactorParts;

/// A listener in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its identifier.
    pub id: FabricId,
    /// Its configuration.
    pub fabric: Fabric,
    /// Its address, with the actual port.
    pub address: SocketAddr,
}

/// The assignment of listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// For each of the next configuration: the existing one.
    pub kept: Vec<Option<FabricId>>,
    /// Those to be removed.
    pub removed: Vec<FabricId>,
    /// For each of the next configuration: the removed one whose socket it takes over, if both have
    /// sockets.
    pub replaces: Vec<Option<FabricId>>,
}

/// Matches the listeners of the next configuration with the existing ones. Classic mode is a limit
/// of connections, so it may change without a new listener; check values and shared receives belong
/// to the provider.
pub fn matched(before: &[Listener], next: &[Fabric]) -> Matched {
    let mut left: Vec<&Listener> = before.iter().collect();
    let mut take = |same: &dyn Fn(&Fabric) -> bool| {
        let at = left.iter().position(|listener| same(&listener.fabric))?;
        Some(left.remove(at).id)
    };
    let kept: Vec<_> = next
        .iter()
        .map(|fabric| {
            take(&|other: &Fabric| {
                let of = |one: &Fabric| (one.provider, one.listen, one.crc, one.shared_receives);
                of(other) == of(fabric)
            })
        })
        .collect();
    let removed: Vec<_> = left.iter().map(|listener| listener.id).collect();
    let replaces = next.iter().zip(&kept).map(|(fabric, kept)| {
        if kept.is_some() {
            return None;
        }
        let of = |one: &Fabric| (one.provider, one.listen);
        let same = |listener: &Listener| of(&listener.fabric) == (Provider::Iwarp, fabric.listen);
        let at = left.iter().position(|listener| same(listener));
        let at = at.filter(|_| fabric.provider == Provider::Iwarp)?;
        Some(left.remove(at).id)
    });
    Matched {
        replaces: replaces.collect(),
        kept,
        removed,
    }
}

/// The status of listeners: those of the configuration in its order, removed ones (`former`) while
/// they have connections, and RPC over TCP.
pub fn listener_status(
    listeners: &[Listener],
    former: &[Listener],
    rpc: Option<SocketAddr>,
    accepting: bool,
    parts: &[ReactorParts],
) -> Vec<ListenerStatus> {
    let status = |listener: &Listener, index: Option<usize>| {
        let blocks = parts.iter().filter_map(|one| one.providers.of(listener.id));
        let (connections, accepted) = blocks.fold((0, 0), |(connections, accepted), block| {
            (
                connections + block.fabric().connections.get(),
                accepted + block.fabric().established.get(),
            )
        });
        ListenerStatus {
            index,
            provider: listener.fabric.provider.name().to_owned(),
            address: listener.address.to_string(),
            accepting: accepting && index.is_some(),
            connections,
            accepted,
        }
    };
    let configured = listeners.iter().enumerate();
    let configured = configured.map(|(index, listener)| status(listener, Some(index)));
    let former = former.iter().map(|listener| status(listener, None));
    let tcp = rpc.map(|address| {
        // Ended connections are read first, so that they never exceed the accepted ones.
        let ended: u64 = parts.iter().map(|one| one.tcp.ended.get()).sum();
        let accepted: u64 = parts.iter().map(|one| one.tcp.accepted.get()).sum();
        ListenerStatus {
            index: None,
            provider: "tcp".to_owned(),
            address: address.to_string(),
            accepting,
            connections: accepted.saturating_sub(ended),
            accepted,
        }
    });
    configured
        .chain(former.filter(|status| status.connections > 0))
        .chain(tcp)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_admin::config::{CrcPolicy, Switch};

    fn fabric(port: u16, crc: CrcPolicy) -> Fabric {
        Fabric {
            listen: SocketAddr::from(([127, 0, 0, 1], port)),
            crc: Some(crc),
            ..Fabric::default()
        }
    }

    fn listeners(fabrics: &[Fabric]) -> Vec<Listener> {
        let listener = |(id, fabric): (u64, &Fabric)| Listener {
            id: FabricId(id),
            fabric: fabric.clone(),
            address: fabric.listen,
        };
        (0..).zip(fabrics).map(listener).collect()
    }

    #[test]
    fn listeners_are_found_again_wherever_they_stand() {
        let [one, two] = [1, 2].map(|port| fabric(port, CrcPolicy::Auto));
        let before = listeners(&[one.clone(), two.clone()]);
        let classic = Fabric {
            read_chunk_replies: Some(Switch::On),
            ..one
        };
        let matched = matched(&before, &[two, classic]);
        assert_eq!(matched.kept, [Some(FabricId(1)), Some(FabricId(0))]);
        assert_eq!(matched.removed, []);
    }

    #[test]
    fn a_listener_that_changes_takes_over_from_the_one_at_its_address() {
        let one = fabric(1, CrcPolicy::Auto);
        let before = listeners(&[one.clone(), fabric(2, CrcPolicy::Auto)]);
        let next = [fabric(1, CrcPolicy::Off), fabric(3, CrcPolicy::Auto), one];
        let first = matched(&before, &next[..2]);
        assert_eq!(first.kept, [None, None]);
        assert_eq!(first.removed, [FabricId(0), FabricId(1)]);
        assert_eq!(first.replaces, [Some(FabricId(0)), None]);
        // No socket of a kept listener is taken over.
        assert_eq!(matched(&before, &next).replaces, [None, None, None]);
    }

    #[test]
    fn no_socket_goes_between_providers_or_from_one_on_devices() {
        let iwarp = fabric(1, CrcPolicy::Auto);
        let verbs = |shared| Fabric {
            provider: Provider::Verbs,
            crc: None,
            shared_receives: Some(shared),
            ..iwarp.clone()
        };
        for (before, next) in [
            (iwarp.clone(), verbs(Switch::Off)),
            (verbs(Switch::Off), iwarp.clone()),
            (verbs(Switch::Off), verbs(Switch::On)),
        ] {
            let found = matched(&listeners(&[before]), &[next]);
            assert_eq!(found.kept, [None]);
            assert_eq!(found.removed, [FabricId(0)]);
            assert_eq!(found.replaces, [None]);
        }
        let kept = matched(&listeners(&[verbs(Switch::On)]), &[verbs(Switch::On)]);
        assert_eq!(kept.kept, [Some(FabricId(0))]);
    }

    #[test]
    fn two_at_ports_that_the_system_chooses_are_two() {
        let any = fabric(0, CrcPolicy::Auto);
        let before = listeners(&[any.clone(), any.clone()]);
        let both = matched(&before, &[any.clone(), any.clone()]);
        assert_eq!(both.kept, [Some(FabricId(0)), Some(FabricId(1))]);
        let one = matched(&before, &[any]);
        assert_eq!(one.removed, [FabricId(1)]);
    }
}
