//! Checks that the addresses of listeners exist on this machine, and that their ports are free.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use millrace_admin::config::{Config, ConfigProblem, KeyPath, Provider, Rpcbind};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};

use crate::service::InheritedListeners;
use crate::service::build::RPCBIND_PORT;

/// Those of TCP, and of the port mapper's datagrams. RDMA devices have ports of their own, which
/// only their connection manager knows.
pub fn problems(config: &Config, inherited: &InheritedListeners) -> Vec<ConfigProblem> {
    let root = KeyPath::root();
    let fabrics = config.fabric.iter().enumerate();
    let fabrics = fabrics.filter(|(_, fabric)| fabric.provider == Provider::Iwarp);
    let mut wanted: Vec<_> = fabrics
        .map(|(index, fabric)| {
            let path = root.key("fabric").index(index).key("listen");
            (path, fabric.listen)
        })
        .collect();
    wanted.push((root.key("rpc").key("listen"), config.rpc.listen));
    wanted.push((root.key("admin").key("listen"), config.admin.listen));
    let refused = |(path, address): (KeyPath, SocketAddr)| {
        if inherited.has(address) {
            return None;
        }
        let error = stream(address).err()?;
        Some(ConfigProblem::new(path, words(address, &error)))
    };
    let mut problems: Vec<_> = wanted.into_iter().filter_map(refused).collect();
    if config.rpc.rpcbind == Rpcbind::Embedded {
        let address = SocketAddr::new(config.rpc.listen.ip(), RPCBIND_PORT);
        let datagrams = || UdpSocket::bind(address).map(drop);
        if let Err(error) = stream(address).and_then(|()| datagrams()) {
            let message = format!(
                "{}; where another port mapper runs, use `register`",
                words(address, &error)
            );
            problems.push(ConfigProblem::new(root.key("rpc").key("rpcbind"), message));
        }
    }
    problems
}

/// Binds like a listener, and closes before any client could connect.
fn stream(address: SocketAddr) -> io::Result<()> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(bind(&socket, &address)?)
}

fn words(address: SocketAddr, error: &io::Error) -> String {
    let why = match error.kind() {
        ErrorKind::AddrInUse => "the port is in use; `ss -ltnp` shows by which process".to_owned(),
        ErrorKind::AddrNotAvailable => {
            "this machine has no such address; `ip address` lists those it has".to_owned()
        }
        ErrorKind::PermissionDenied => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE".to_owned()
        }
        _ => error.to_string(),
    };
    format!("cannot listen on {address}: {why}")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn config() -> Config {
        let mut config = Config::default();
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        config.fabric[0].listen = free;
        config.rpc.listen = free;
        config.admin.listen = free;
        config
    }

    fn told(config: &Config) -> Vec<String> {
        let problems = problems(config, &InheritedListeners::default());
        problems
            .iter()
            .map(|problem| format!("{}: {}", problem.path, problem.message))
            .collect()
    }

    #[test]
    fn a_port_in_use_is_told_of_every_listener_and_free_once_it_is() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = held.local_addr().unwrap();
        assert_eq!(told(&config()), [""; 0]);
        let mut all = config();
        all.fabric[0].listen = taken;
        all.rpc.listen = taken;
        all.admin.listen = taken;
        let lines = told(&all);
        for (line, key) in lines
            .iter()
            .zip(["fabric[0].listen", "rpc.listen", "admin.listen"])
        {
            let begin = format!("{key}: cannot listen on {taken}: the port is in use;");
            assert!(line.starts_with(&begin), "{line}");
        }
        assert_eq!(lines.len(), 3);
        drop(held);
        assert_eq!(told(&all), [""; 0]);
    }

    #[test]
    fn an_address_of_another_machine_is_told_but_for_devices() {
        let mut config = config();
        // Documentation addresses (RFC 5737), which no machine has.
        config.fabric[0].listen = "192.0.2.77:20049".parse().unwrap();
        let lines = told(&config);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("fabric[0].listen: "), "{lines:?}");
        assert!(
            lines[0].contains("this machine has no such address"),
            "{lines:?}"
        );
        config.fabric[0].provider = Provider::Verbs;
        assert_eq!(told(&config), [""; 0]);
    }
}
