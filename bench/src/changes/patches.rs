//! Changes of every kind, in turn.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::spawn::networks;

/// Kinds of changes.
const KINDS: usize = 8;

/// Makes merge patches (RFC 7396), each different from the configuration in force.
pub struct Patches {
    provider: &'static str,
    rdma: SocketAddr,
    export: String,
    extra_export: bool,
    extra_listener: bool,
    crc_off: bool,
}

impl Patches {
    /// For a target with one listener, of this provider, and one export.
    pub fn new(provider: &'static str, rdma: SocketAddr, export: &str) -> Self {
        Self {
            provider,
            rdma,
            export: export.to_owned(),
            extra_export: false,
            extra_listener: false,
            crc_off: false,
        }
    }

    /// The change of this number.
    pub fn next(&mut self, number: usize) -> Value {
        let odd = (number / KINDS).is_multiple_of(2);
        match number % KINDS {
            0 => json!({ "flow": { "credits": if odd { 16 } else { 128 } } }),
            1 => {
                self.extra_export = odd;
                self.exports(number)
            }
            2 => {
                self.extra_listener = odd;
                self.listeners()
            }
            3 => {
                self.crc_off = odd;
                self.listeners()
            }
            4 => {
                let iops = if odd { 10_000_000 } else { 20_000_000 };
                json!({ "limits": [{ "clients": ["127.0.0.0/8"], "iops": iops }] })
            }
            5 => {
                let poll = if odd { "adaptive" } else { "busy" };
                json!({ "reactors": { "poll": poll } })
            }
            6 => {
                let padding = if odd { "off" } else { "on" };
                json!({ "rpcrdma": { "padding": padding }, "log": if odd { "warn" } else { "error" } })
            }
            _ => self.exports(number),
        }
    }

    fn exports(&self, number: usize) -> Value {
        let export = |path: &str, size: &str| {
            json!({
                "path": path,
                "store": { "kind": "memory", "size": size },
                "clients": networks(self.rdma.ip()),
                "anon_uid": 60_000 + number % 1000,
            })
        };
        let mut exports = vec![export(&self.export, "512MiB")];
        if self.extra_export {
            exports.push(export("/extra", "1MiB"));
        }
        json!({ "exports": exports })
    }

    fn listeners(&self) -> Value {
        let crc = if self.crc_off { "off" } else { "auto" };
        let mut own = json!({ "provider": self.provider, "listen": self.rdma.to_string() });
        let mut extra = json!({ "provider": "iwarp", "listen": "127.0.0.2:0", "crc": "auto" });
        // Devices protect the integrity of their data themselves.
        let changing = if self.provider == "iwarp" {
            &mut own
        } else {
            &mut extra
        };
        changing["crc"] = crc.into();
        let mut fabric = vec![own];
        if self.extra_listener {
            fabric.push(extra);
        }
        json!({ "fabric": fabric })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_each_kind_differs_from_the_one_before() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        for provider in ["iwarp", "verbs"] {
            let mut patches = Patches::new(provider, address, "/scratch");
            let made: Vec<_> = (0..2 * KINDS).map(|number| patches.next(number)).collect();
            for number in 0..KINDS {
                assert_ne!(made[number], made[number + KINDS], "kind {number}");
            }
        }
    }
}
