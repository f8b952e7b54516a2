//! Sends the rows of the table of exchanges to a server.

use crate::conformance::exchanges::{ExpectedAnswer, ScriptedExchange};
use crate::conformance::message::kind;
use crate::conformance::probe::Probe;
use crate::conformance::verdict::{Done, Want, consists_of, word};

use super::error_two;

/// Sends each message. Behind it an ordinary call has to be answered, but for ERR_VERS, after which
/// a server may close.
pub(super) fn run(exchange: &ScriptedExchange, probe: &mut Probe) -> Done {
    let is_second = exchange.version == 2;
    if is_second {
        probe.needs_two()?;
    }
    let messages: Vec<_> = exchange.messages(|| probe.xid()).collect();
    for (xid, message) in messages {
        let mut peer = probe.peer()?;
        if is_second {
            error_two::lives(probe, &mut peer)?;
        }
        let version = word(&message, 1).unwrap_or_default();
        let mut error = vec![
            ("rdma_xid", Want::Is(xid)),
            ("rdma_vers", Want::Is(version)),
            ("rdma_credit", Want::AtLeast(1)),
            ("rdma_proc", Want::Is(kind::ERROR)),
        ];
        match exchange.expected {
            ExpectedAnswer::Silence => peer.send(&message)?,
            ExpectedAnswer::Error(code) => {
                error.push(("rdma_err", Want::Is(code)));
                consists_of(&peer.exchange(&message)?, &error)?;
            }
            ExpectedAnswer::Versions => {
                error.push(("rdma_err", Want::Is(1)));
                error.push(("rdma_vers_low", Want::AtLeast(1)));
                error.push(("rdma_vers_high", Want::AtLeast(1)));
                consists_of(&peer.exchange(&message)?, &error)?;
                continue;
            }
        }
        if is_second {
            error_two::lives(probe, &mut peer)?;
        } else {
            probe.lives(&mut peer)?;
        }
    }
    Ok(())
}
