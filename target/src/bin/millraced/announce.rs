//! What the log says at start: what is served where, and how to mount it.

use std::net::SocketAddr;

use millrace::service::Addresses;
use millrace_admin::config::{Config, Rpcbind};

/// Says it.
pub fn served(config: &Config, addresses: &Addresses, admin: SocketAddr) {
    for (fabric, address) in config.fabric.iter().zip(&addresses.fabric) {
        tracing::info!(provider = fabric.provider.name(), %address, "NFS over RDMA");
    }
    if let Some(address) = addresses.rpc {
        tracing::info!(%address, "NFS and MOUNT over TCP");
    }
    tracing::info!("admin plane at http://{admin}/ (metrics at /metrics)");
    for export in &config.exports {
        tracing::info!(
            path = export.path,
            store = export.store.kind(),
            access = ?export.access,
            squash = ?export.squash,
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
