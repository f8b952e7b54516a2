//! What the log says at start: what is served where, and how to mount it.

use std::net::SocketAddr;

use millrace::service::Addresses;
use millrace_admin::config::{Config, Rpcbind};

/// Says it.
pub fn served(config: &Config, addresses: &Addresses, admin: SocketAddr) {
    for (fabric, address) in config.fabric.iter().zip(&addresses.fabric) {
        let classic = fabric.is_classic(config.rpcrdma.read_chunk_replies);
        tracing::info!(
            provider = fabric.provider.name(),
            %address,
            read_chunk_replies = classic,
            "NFS over RDMA"
        );
    }
    let rpcrdma = &config.rpcrdma;
    tracing::info!(
        versions = ?rpcrdma.versions,
        inline = %rpcrdma.inline,
        credits = config.flow.credits,
        padding = rpcrdma.padding.is_on(),
        ccp = rpcrdma.ccp.is_on(),
        "RPC-over-RDMA"
    );
    for entry in &config.limits {
        let networks: Vec<String> = entry.clients.iter().map(ToString::to_string).collect();
        let bandwidth = entry.bandwidth.map(tracing::field::display);
        tracing::info!(clients = ?networks, iops = entry.iops, bandwidth, "limit of each client");
    }
    if let Some(address) = addresses.rpc {
        tracing::info!(%address, "NFS and MOUNT over TCP");
    }
    tracing::info!("admin plane at http://{admin}/ (metrics at /metrics)");
    for export in &config.exports {
        let bandwidth = export.limits.as_ref().and_then(|limits| limits.bandwidth);
        tracing::info!(
            path = export.path,
            store = export.store.kind(),
            access = ?export.access,
            squash = ?export.squash,
            iops = export.limits.as_ref().and_then(|limits| limits.iops),
            bandwidth = bandwidth.map(tracing::field::display),
            "export"
        );
        for address in &addresses.fabric {
            tracing::info!(
                "mount it: {}",
                mount_command(config, addresses, *address, &export.path)
            );
        }
    }
}

/// The command that mounts an export through one fabric address.
fn mount_command(config: &Config, addresses: &Addresses, fabric: SocketAddr, path: &str) -> String {
    let host = match fabric.ip() {
        address if address.is_unspecified() => "HOST".to_owned(),
        std::net::IpAddr::V6(address) => format!("[{address}]"),
        address => address.to_string(),
    };
    let mut options = format!("vers=3,proto=rdma,port={},nolock", fabric.port());
    // Without a port mapper the client has to be told where MOUNT is.
    if let (Rpcbind::Off, Some(rpc)) = (config.rpc.rpcbind, addresses.rpc) {
        options += &format!(",mountproto=tcp,mountport={}", rpc.port());
    }
    format!("mount -t nfs -o {options} {host}:{path} /mnt")
}
