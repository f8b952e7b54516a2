//! Effects of a valid configuration that an operator may not expect.

use std::path::Path;

use super::{
    ByteSize, CcpFlavor, ClientAuth, Config, Fabric, Provider, ReadToken, SyncMode, ceph, clash,
    gateways, gss, nfs4, posix,
};

/// The inline bytes that every peer of version 2 accepts.
const TWO_INLINE: u64 = 4096;

impl Config {
    /// Sentences for the log at start, each naming its key; empty for most configurations.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.rpcrdma.versions.contains(&1) {
            notes.push(
                "rpcrdma.versions: version 1 is not served, and most clients know no other"
                    .to_owned(),
            );
        }
        if self.rpcrdma.versions.contains(&2) && self.rpcrdma.inline.bytes() < TWO_INLINE {
            notes.push(format!(
                "rpcrdma.inline: receive buffers still have {}, as version 2 requires them; it is \
                 not served with versions: [1]",
                ByteSize(TWO_INLINE)
            ));
        }
        if self.rpcrdma.ccp.is_on() && self.rpcrdma.ccp_flavor == CcpFlavor::None {
            notes.push(
                "rpcrdma.ccp_flavor: none lets any user of a connection set its limits; RFC 5666 \
                 section 11 requires sys or better"
                    .to_owned(),
            );
        }
        if !self.rpcrdma.versions.contains(&1) {
            let classic = |fabric: &&Fabric| fabric.is_classic(self.rpcrdma.read_chunk_replies);
            for fabric in self.fabric.iter().filter(classic) {
                notes.push(format!(
                    "rpcrdma.read_chunk_replies: version 1 is not served, and version 2 has no \
                     such replies; it has no effect on {}",
                    fabric.listen
                ));
            }
        }
        notes.extend(self.folders());
        notes.extend(self.clusters());
        notes.extend(gss::notes(self));
        notes.extend(nfs4::notes(self));
        let flow = &self.flow;
        let classic = |fabric: &Fabric| fabric.is_classic(self.rpcrdma.read_chunk_replies);
        if self.fabric.iter().any(classic) && flow.max_exposures > flow.max_client_exposures {
            notes.push(format!(
                "flow.max_exposures: more than flow.max_client_exposures, so {} is the most on one \
                 connection, too",
                flow.max_client_exposures
            ));
        }
        for (index, entry) in self.limits.iter().enumerate() {
            for network in &entry.clients {
                let earlier = self.limits[..index]
                    .iter()
                    .position(|earlier| earlier.clients.contains(network));
                if let Some(earlier) = earlier {
                    notes.push(format!(
                        "limits[{index}].clients: {network} is in limits[{earlier}], which takes \
                         precedence; it has no effect here"
                    ));
                }
            }
        }
        if self.exports.is_empty() {
            notes.push("exports: there are none, so clients cannot mount anything".to_owned());
        }
        if self.fabric.is_empty() {
            notes.push("fabric: there are no listeners, so nothing is served by RDMA".to_owned());
        }
        let has_secret = self.state_directory.is_some() || self.handle_secret.is_some();
        if !has_secret && !self.exports.is_empty() {
            notes.push(
                "state_directory: not set, so file handles become stale at each start, and clients \
                 have to mount again"
                    .to_owned(),
            );
        }
        notes.extend(gateways::notes(self));
        notes.extend(self.exposure());
        notes.extend(self.shared_ports());
        let fabrics = self.fabric.iter().map(|fabric| ("fabric", fabric.listen));
        let others = [
            ("rpc.listen", self.rpc.listen),
            ("admin.listen", self.admin.listen),
        ];
        for (key, listen) in fabrics
            .chain(others)
            .filter(|(_, listen)| listen.port() == 0)
        {
            notes.push(format!(
                "{key}: {listen} takes a free port, another one at each start"
            ));
        }
        notes
    }

    /// Ports used by RDMA and TCP at the same address.
    fn shared_ports(&self) -> Vec<String> {
        let of = |provider| {
            let fabrics = self.fabric.iter().enumerate();
            fabrics.filter(move |(_, fabric)| fabric.provider == provider)
        };
        let sockets = of(Provider::Iwarp).map(|(index, fabric)| {
            let key = format!("fabric[{index}].listen");
            (key, fabric.listen)
        });
        let others = [
            ("rpc.listen".to_owned(), self.rpc.listen),
            ("admin.listen".to_owned(), self.admin.listen),
        ];
        let sockets: Vec<_> = sockets.chain(others).collect();
        let mut notes = Vec::new();
        for (index, fabric) in of(Provider::Verbs) {
            for (key, _) in sockets.iter().filter(|(_, at)| clash(*at, fabric.listen)) {
                notes.push(format!(
                    "fabric[{index}].listen: {} is also the TCP port of {key}; InfiniBand and RoCE \
                     devices have ports of their own, but iWARP devices (siw among them) take \
                     TCP's, and there only one of the two can listen",
                    fabric.listen
                ));
            }
        }
        notes
    }

    /// Unexpected effects of exports in CephFS.
    fn clusters(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (index, ceph) in ceph::stores(self) {
            if ceph.sync == SyncMode::Relaxed {
                notes.push(format!(
                    "exports[{index}].store.sync: relaxed answers changes of names and attributes \
                     before they are durable, so a failure of the cluster and the server together \
                     may undo the latest; RFC 1813 section 4.8 requires strict"
                ));
            }
            if self.state_directory.is_none() {
                notes.push(format!(
                    "exports[{index}].store: without state_directory the cluster keeps the session \
                     of a server that crashed until it times out, and holds up others meanwhile"
                ));
            }
        }
        notes
    }

    /// Unexpected effects of exports of folders.
    fn folders(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (index, posix) in posix::folders(self) {
            if posix.root == Path::new("/") {
                notes.push(format!(
                    "exports[{index}].store.root: `/` serves everything of this host's root file \
                     system, its configuration and secrets included"
                ));
            }
            if posix.sync == SyncMode::Relaxed {
                notes.push(format!(
                    "exports[{index}].store.sync: relaxed answers changes of names and attributes \
                     before they are durable, so a crash of the host may undo the latest; RFC \
                     1813 section 4.8 requires strict"
                ));
            }
            if self.state_directory.is_none() {
                notes.push(format!(
                    "exports[{index}].store: without state_directory a restart looks like a crash \
                     to clients, which write again what they had not committed"
                ));
            }
        }
        notes
    }

    /// Hosts that can read through the management plane, if beyond this host.
    fn exposure(&self) -> Option<String> {
        let admin = &self.admin;
        if admin.listen.ip().to_canonical().is_loopback() {
            return None;
        }
        let listen = admin.listen;
        match &admin.tls {
            None => Some(format!(
                "admin.plain_http: {listen} accepts plain HTTP from other hosts; every host that \
                 reaches it can read configuration, clients and metrics, and the token can be \
                 read on the network"
            )),
            Some(tls)
                if tls.client_auth != ClientAuth::Required
                    && admin.read_token == ReadToken::None =>
            {
                Some(format!(
                    "admin.listen: {listen} is not loopback; every host that reaches it can read \
                     configuration, clients and metrics, as neither admin.tls.client_auth nor \
                     admin.read_token is required"
                ))
            }
            Some(_) => None,
        }
    }
}
