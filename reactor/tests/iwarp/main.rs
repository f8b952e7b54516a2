//! Two software iWARP providers over 127.0.0.1, in one thread.

mod ending;
mod pair;
mod soak;
mod transfer;
