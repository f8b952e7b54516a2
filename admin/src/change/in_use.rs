//! What is in use of that which a change or an order would take from clients. One rule for
//! requests, reloads, rollbacks and the ends of connections: without `force` they are refused.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::config::{Config, Export, Network, Store};
use crate::control::{Control, ControlError};
use crate::status::{
    ConnectionStatus, ExportStatus, ListPage, Nfs4Client, Nfs4StateFilter, ResourceUse,
};

/// The most clients named for one resource, and the most connections named for one client.
const CLIENTS_MAX: usize = 16;
/// The most items of NFS version 4 of a page, and the most pages that are read.
const PAGE: usize = 1000;
const PAGES_MAX: usize = 16;

/// The resources in use that `next` takes away, compared with the configuration `before`.
pub fn taken(control: &dyn Control, before: &Config, next: &Config) -> Vec<ResourceUse> {
    let mut uses = Vec::new();
    let gone = |export: &&Export| !next.exports.iter().any(|one| one.path == export.path);
    let mut gone = before.exports.iter().filter(gone).peekable();
    if gone.peek().is_some() {
        // A store that does not answer may be in use.
        match control.exports() {
            Ok(list) => uses.extend(gone.filter_map(|export| {
                let status = list.iter().find(|one| one.path == export.path)?;
                export_use(control, export, status)
            })),
            Err(error) => uses.push(unknown("exports", &error)),
        }
    }
    if next.mempool.size < before.mempool.size {
        uses.extend(pool_use(control, next.mempool.size.bytes()));
    }
    uses
}

/// The use of a removed export.
fn export_use(
    control: &dyn Control,
    export: &Export,
    status: &ExportStatus,
) -> Option<ResourceUse> {
    let mut reasons = Vec::new();
    // The root of a store in memory counts as a file.
    let has_files = status
        .files
        .map_or(status.used_bytes > Some(0), |files| files > 1);
    if matches!(export.store, Store::Memory { .. }) && has_files {
        let bytes = status.used_bytes.unwrap_or(0);
        reasons.push(format!(
            "its files ({bytes} bytes) are in memory and would be lost"
        ));
    }
    let mut clients = BTreeSet::new();
    match state_holders(control, &export.path) {
        Ok((0, _)) => {}
        Ok((states, holders)) => {
            reasons.push(format!("{states} opens, locks or delegations of its files"));
            clients.extend(holders);
        }
        Err(error) => reasons.push(format!("its open files are not known: {error}")),
    }
    if status.requests > 0 {
        match admitted(control, &export.clients) {
            Ok(admitted) if admitted.is_empty() => {}
            Ok(admitted) => {
                let requests = status.requests;
                reasons.push(format!(
                    "{requests} requests answered, and clients that it admits are connected"
                ));
                clients.extend(admitted);
            }
            Err(error) => reasons.push(format!("its clients are not known: {error}")),
        }
    }
    (!reasons.is_empty()).then(|| ResourceUse {
        resource: format!("exports[{}]", export.path),
        message: reasons.join("; "),
        clients: clients.into_iter().take(CLIENTS_MAX).collect(),
    })
}

/// The number of states of an export's files, and the addresses of their clients.
fn state_holders(
    control: &dyn Control,
    path: &str,
) -> Result<(u64, BTreeSet<String>), ControlError> {
    let (mut count, mut holders) = (0, BTreeSet::new());
    let filter = Nfs4StateFilter {
        export: Some(path.to_owned()),
        ..Nfs4StateFilter::default()
    };
    let Some(nfs4) = control.nfs4() else {
        return Ok((count, holders));
    };
    let mut after = 0;
    for _ in 0..PAGES_MAX {
        let page = nfs4.states(&filter, ListPage { after, limit: PAGE })?;
        count += page.states.len() as u64;
        let named = page.states.into_iter();
        holders.extend(named.map(|one| one.address.unwrap_or(one.client)));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok((count, holders))
}

/// The connected clients in one of these networks.
fn admitted(control: &dyn Control, networks: &[Network]) -> Result<Vec<String>, ControlError> {
    let admits = |address: &str| {
        let address: Option<IpAddr> = address.parse().ok();
        address.is_none_or(|address| networks.iter().any(|one| one.contains(address)))
    };
    let clients = control.clients()?.into_iter();
    Ok(clients
        .filter(|one| one.connections > 0 && admits(&one.address))
        .map(|one| one.address)
        .collect())
}

/// The use of the pools, if they would be too small for it.
fn pool_use(control: &dyn Control, size: u64) -> Option<ResourceUse> {
    let pools = match control.pools() {
        Ok(pools) => pools,
        Err(error) => return Some(unknown("mempool.size", &error)),
    };
    let used = |core: Option<usize>| -> u64 {
        let own = pools.iter().filter(|one| one.core == core);
        own.map(|one| one.in_use * one.buffer_bytes).sum()
    };
    let most = pools.iter().map(|one| used(one.core)).max()?;
    (most > size).then(|| ResourceUse {
        resource: "mempool.size".to_owned(),
        message: format!(
            "{most} bytes of a reactor's pool are in use now, and {size} would be left"
        ),
        clients: Vec::new(),
    })
}

/// The use of all connections of a client.
///
/// # Errors
///
/// A reactor did not answer.
pub fn of_client(control: &dyn Control, address: IpAddr) -> Result<Vec<ResourceUse>, ControlError> {
    let of_peer = |one: &ConnectionStatus| {
        let peer: Option<SocketAddr> = one.peer.parse().ok();
        peer.is_some_and(|peer| peer.ip().to_canonical() == address)
    };
    of_connections(control, of_peer)
}

/// The use of a connection.
///
/// # Errors
///
/// A reactor did not answer.
pub fn of_connection(control: &dyn Control, id: u64) -> Result<Vec<ResourceUse>, ControlError> {
    of_connections(control, |one| one.id == id)
}

/// The use of a client of NFS version 4.
///
/// # Errors
///
/// The reactor that keeps its state did not answer.
pub fn of_nfs4_client(control: &dyn Control, id: u64) -> Result<Vec<ResourceUse>, ControlError> {
    let client = match control.nfs4() {
        Some(nfs4) => nfs4.client(id)?,
        None => None,
    };
    let held = client.and_then(|client| Some((held(&client)?, client)));
    Ok(held
        .map(|(message, client)| ResourceUse {
            resource: format!("NFS version 4 client {}", client.id),
            message,
            clients: client.address.into_iter().collect(),
        })
        .into_iter()
        .collect())
}

fn of_connections(
    control: &dyn Control,
    wanted: impl Fn(&ConnectionStatus) -> bool,
) -> Result<Vec<ResourceUse>, ControlError> {
    let connections = control.connections()?;
    let connections: Vec<_> = connections.into_iter().filter(wanted).collect();
    if connections.is_empty() {
        return Ok(Vec::new());
    }
    let holders = all_nfs4_clients(control)?;
    let used = connections.into_iter().filter_map(|one| {
        let mut reasons = Vec::new();
        if one.requests_in_flight > 0 {
            reasons.push(format!("{} requests in flight", one.requests_in_flight));
        }
        if one.exposures > 0 {
            reasons.push(format!("{} replies for the client to fetch", one.exposures));
        }
        let bound = holders
            .iter()
            .filter(|client| client.connections.contains(&one.id));
        reasons.extend(bound.filter_map(held));
        reasons.dedup();
        (!reasons.is_empty()).then(|| ResourceUse {
            resource: format!("connection {}", one.id),
            message: reasons.join("; "),
            clients: vec![one.peer],
        })
    });
    Ok(used.take(CLIENTS_MAX).collect())
}

fn all_nfs4_clients(control: &dyn Control) -> Result<Vec<Nfs4Client>, ControlError> {
    let mut all = Vec::new();
    let Some(nfs4) = control.nfs4() else {
        return Ok(all);
    };
    let mut after = 0;
    for _ in 0..PAGES_MAX {
        let page = nfs4.clients(ListPage { after, limit: PAGE })?;
        all.extend(page.clients);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok(all)
}

/// What a client of NFS version 4 has, in words.
fn held(client: &Nfs4Client) -> Option<String> {
    let Nfs4Client {
        opens,
        locked_ranges,
        delegations,
        ..
    } = client;
    (opens + locked_ranges + delegations > 0).then(|| {
        format!("{opens} open files, {locked_ranges} locked ranges, {delegations} delegations")
    })
}

fn unknown(resource: &str, error: &ControlError) -> ResourceUse {
    ResourceUse {
        resource: resource.to_owned(),
        message: format!("it is not known whether it is in use: {error}"),
        clients: Vec::new(),
    }
}
