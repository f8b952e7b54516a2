//! The log lines at start: exports, addresses, features, limits, and how to mount.

use std::net::SocketAddr;

use millrace::service::Addresses;
use millrace_admin::config::{Bandwidth, Config, ExportSecurity, Limits, Rpcbind, Rpcrdma, Switch};
use millrace_wire::nfs3::RDMA_PORT;

/// Logs them.
pub fn served(config: &Config, addresses: &Addresses, admin: SocketAddr) {
    for (fabric, address) in config.fabric.iter().zip(&addresses.fabric) {
        let classic = fabric.is_classic(config.rpcrdma.read_chunk_replies);
        tracing::info!(
            provider = fabric.provider.name(),
            %address,
            read_chunk_replies = on_or_off(classic),
            "NFS over RDMA"
        );
    }
    features(&config.rpcrdma);
    if let Some(address) = addresses.rpc {
        tracing::info!(%address, "NFS over TCP");
    }
    let scheme = scheme(config);
    tracing::info!("admin plane at {scheme}://{admin}/ (metrics at /metrics)");
    for export in &config.exports {
        tracing::info!(
            path = export.path,
            store = export.store.kind(),
            access = export.access.name(),
            squash = export.squash.name(),
            security = security(&export.security),
            "export"
        );
        if let Some(Limits { iops, bandwidth }) = export.limits {
            let limits = limits(iops, bandwidth);
            tracing::info!(path = export.path, %limits, "limits of all its clients together");
        }
        for address in &addresses.fabric {
            tracing::info!(
                "mount it: {}",
                mount_command(config, addresses, *address, &export.path)
            );
        }
    }
    for entry in &config.limits {
        let networks: Vec<_> = entry.clients.iter().map(ToString::to_string).collect();
        let (clients, limits) = (networks.join(" "), limits(entry.iops, entry.bandwidth));
        tracing::info!(%clients, %limits, "limits of each client");
    }
}

/// The exports and addresses of a configuration, one line each: `--check` prints it, and
/// `deploy/quickstart` reads it.
pub fn summary(config: &Config) -> String {
    let mut text = String::new();
    for fabric in &config.fabric {
        let (address, provider) = (fabric.listen, fabric.provider.name());
        text += &format!("NFS over RDMA: {address} ({provider})\n");
    }
    text += &format!("NFS and MOUNT over TCP: {}\n", config.rpc.listen);
    text += &format!("management: {}://{}\n", scheme(config), config.admin.listen);
    for export in &config.exports {
        let (store, access) = (export.store.kind(), export.access.name());
        text += &format!("export: {} ({store}, {access})\n", export.path);
    }
    text
}

/// The URL scheme of the management plane.
fn scheme(config: &Config) -> &'static str {
    match config.admin.tls {
        Some(_) => "https",
        None => "http",
    }
}

/// All of it in one line, for the service manager.
pub fn status(config: &Config, addresses: &Addresses, admin: SocketAddr) -> String {
    let fabric: Vec<_> = addresses.fabric.iter().map(ToString::to_string).collect();
    let exports = match config.exports.len() {
        1 => "1 export".to_owned(),
        count => format!("{count} exports"),
    };
    let fabric = fabric.join(" ");
    format!("serving {exports} over RDMA at {fabric}; admin plane at {admin}")
}

/// The features of RPC-over-RDMA available to clients.
fn features(rpcrdma: &Rpcrdma) {
    let versions: Vec<_> = rpcrdma.versions.iter().map(ToString::to_string).collect();
    tracing::info!(
        versions = versions.join(","),
        inline = %rpcrdma.inline,
        padding = rpcrdma.padding.name(),
        ccp = rpcrdma.ccp.name(),
        "RPC-over-RDMA"
    );
}

fn on_or_off(on: bool) -> &'static str {
    if on { Switch::On } else { Switch::Off }.name()
}

/// As text.
fn limits(iops: Option<u64>, bandwidth: Option<Bandwidth>) -> String {
    let iops = iops.map(|iops| format!("{iops} requests/s"));
    let bandwidth = bandwidth.map(|bandwidth| bandwidth.to_string());
    let both: Vec<_> = iops.into_iter().chain(bandwidth).collect();
    both.join(", ")
}

/// The server as a mount command names it.
fn host(fabric: SocketAddr) -> String {
    match fabric.ip() {
        address if address.is_unspecified() => "HOST".to_owned(),
        std::net::IpAddr::V6(address) => format!("[{address}]"),
        address => address.to_string(),
    }
}

/// What an export takes, best first.
fn security(list: &[ExportSecurity]) -> String {
    let names: Vec<_> = list.iter().map(|security| security.name()).collect();
    names.join(" ")
}

/// The command that mounts an export through one fabric address.
fn mount_command(config: &Config, addresses: &Addresses, fabric: SocketAddr, path: &str) -> String {
    let host = host(fabric);
    if !config.nfs4.minor_versions.is_empty() {
        let port = match fabric.port() {
            RDMA_PORT => String::new(),
            port => format!(",port={port}"),
        };
        return format!("mount -t nfs -o rdma{port} {host}:{path} /mnt");
    }
    let mut options = format!("vers=3,proto=rdma,port={},nolock", fabric.port());
    // Without a port mapper the client needs the port of MOUNT.
    if let (Rpcbind::Off, Some(rpc)) = (config.rpc.rpcbind, addresses.rpc) {
        options += &format!(",mountproto=tcp,mountport={}", rpc.port());
    }
    format!("mount -t nfs -o {options} {host}:{path} /mnt")
}
