//! Random work, with calls that are cut short.

use millrace_reactor::fabric::iwarp::{CrcPolicy, IwarpConfig};

use crate::pair::soak::{self, SOAK_LIMITS};
use crate::with_limits;

fn configuration(crc: CrcPolicy, ulpdu: usize) -> IwarpConfig {
    IwarpConfig {
        crc,
        ulpdu,
        // Small buffers, so that calls are cut short.
        send_buffer: Some(40_000),
        receive_buffer: Some(40_000),
        ..IwarpConfig::default()
    }
}

#[test]
fn random_work_arrives_and_is_accounted_for() {
    for (seed, crc, ulpdu) in [
        (1, CrcPolicy::Off, 65_520),
        (2, CrcPolicy::Required, 65_520),
        (3, CrcPolicy::Off, 1_440),
        (4, CrcPolicy::Required, 600),
    ] {
        let config = configuration(crc, ulpdu);
        let pair = with_limits(config.clone(), config, SOAK_LIMITS);
        soak::random_work_arrives_and_is_accounted_for(seed, pair, false);
    }
}
