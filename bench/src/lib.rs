//! The requester library, the load generator and the proofs against foreign peers.
