//! How calls are authenticated and protected: AUTH_SYS, or Kerberos.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use millrace_gss::{ContextFlags, Initiator};
use millrace_wire::rpc::GssService;

use crate::client::Client;
use crate::requester::{GssContext, Session};

/// How calls are authenticated and protected, by the names of the mount option `sec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Security {
    /// AUTH_SYS: the server believes the numbers of user and group
    #[default]
    Sys,
    /// Kerberos: each call and reply is signed, their data is not
    Krb5,
    /// Kerberos with integrity: data is signed, too
    Krb5i,
    /// Kerberos with privacy: data is encrypted
    Krb5p,
}

impl Security {
    /// How the bodies of calls are protected; `None` without Kerberos.
    #[must_use]
    pub const fn service(self) -> Option<GssService> {
        match self {
            Self::Sys => None,
            Self::Krb5 => Some(GssService::None),
            Self::Krb5i => Some(GssService::Integrity),
            Self::Krb5p => Some(GssService::Privacy),
        }
    }

    /// Whether data is copied into protected messages, which are limited to the size of a buffer.
    #[must_use]
    pub const fn protects_data(self) -> bool {
        matches!(self, Self::Krb5i | Self::Krb5p)
    }
}

impl Client {
    /// The name of the server's service that tickets are for.
    fn service_name(&self) -> String {
        let named = self.options.principal.clone();
        named.unwrap_or_else(|| format!("nfs@{}", host_of(&self.place.target)))
    }

    /// A context for one connection, made by calls of a session; `None` without Kerberos.
    ///
    /// # Errors
    /// If there are no tickets, or the server refuses.
    pub fn create_context(&self, session: &mut Session) -> Result<Option<Arc<GssContext>>> {
        let Some(service) = self.options.security.service() else {
            return Ok(None);
        };
        let name = self.service_name();
        let context = Initiator::new(None, &name, ContextFlags::MUTUAL)
            .map_err(anyhow::Error::from)
            .and_then(|initiator| Ok(session.create_context(initiator, service)?))
            .with_context(|| format!("--security: no Kerberos context with {name}"))?;
        Ok(Some(context))
    }

    /// Refuses Kerberos where calls are made over TCP.
    ///
    /// # Errors
    /// If it is wanted.
    pub fn check_tcp_security(&self) -> Result<()> {
        if self.options.security != Security::Sys {
            bail!("--security: calls over TCP are made with AUTH_SYS");
        }
        Ok(())
    }
}

/// A host without its port.
fn host_of(target: &str) -> &str {
    match target.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => match target.split_once(':') {
            Some((host, port)) if !port.contains(':') => host,
            _ => target,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_named_by_the_host_of_the_target() {
        for (target, host) in [
            ("server.test", "server.test"),
            ("server.test:20049", "server.test"),
            ("10.0.0.1:20049", "10.0.0.1"),
            ("fe80::1", "fe80::1"),
            ("[fe80::1]:20049", "fe80::1"),
        ] {
            assert_eq!(host_of(target), host);
        }
    }
}
