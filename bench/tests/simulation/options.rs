//! What a seed decides before it begins.

use std::time::Duration;

use millrace::rdma::Settings as ServerSettings;
use millrace_bench::requester::{Alignment, Ccp, Identity, Settings};
use millrace_reactor::fabric::loopback::Faults;
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpcrdma::Versions;

use super::dice::Dice;

/// One client.
pub struct ClientOptions {
    pub settings: Settings,
    /// Calls that it makes.
    pub operations: usize,
    /// Most calls of its own that it has under way.
    pub depth: usize,
    /// Once in so many turns with calls under way it breaks its connection.
    pub breaks: usize,
    /// Once in so many calls it cancels one.
    pub cancels: usize,
    /// It sends no RDMA_DONE.
    pub forgets_dones: bool,
    /// The window of exposures, where those of earlier replies may keep later ones waiting.
    pub window: Option<Duration>,
    /// Longest pause before it connects again, in microseconds.
    pub pause: usize,
    /// How long it waits for anything to happen before it gives its connection up.
    pub timeout: Duration,
}

/// The server.
pub struct ServerOptions {
    pub settings: ServerSettings,
    /// Bytes of its memory, beyond the least.
    pub grow: usize,
    pub send_depth: u32,
    /// RDMA Reads that it opens at once.
    pub ord: u16,
    /// Whether replies may have read chunks.
    pub classic: bool,
    /// Whether there are limits, which change.
    pub limits: bool,
}

/// A whole world.
pub struct Options {
    pub faults: Faults,
    pub server: ServerOptions,
    pub clients: Vec<ClientOptions>,
}

impl Options {
    pub fn new(dice: &mut Dice) -> Self {
        let faults = faults(dice);
        let server = server(dice);
        let clients = (0..1 + dice.below(3)).map(|index| client(dice, index, &server));
        let clients = clients.collect();
        Self {
            faults,
            server,
            clients,
        }
    }
}

fn faults(dice: &mut Dice) -> Faults {
    if dice.once_in(8) {
        return Faults::default();
    }
    // Resets are what shows the most, but calls must get through between them.
    let harsh = dice.pick(&[1, 1, 4]);
    Faults {
        delay: Duration::from_micros(u64::from(dice.maybe(3000))),
        reorder: !dice.once_in(4),
        stalls: dice.maybe(20_000),
        early_completions: dice.maybe(1_000_000),
        resets: harsh * dice.maybe(4000),
        refused_connections: harsh * dice.maybe(100_000),
        refused_reads: harsh * dice.maybe(10_000),
        missing_receives: harsh * dice.maybe(5000),
        late_slots: dice.maybe(1_000_000),
        late_revocations: dice.maybe(1_000_000),
        withheld_completions: harsh * dice.maybe(2000),
    }
}

fn server(dice: &mut Dice) -> ServerOptions {
    let inline = dice.pick(&[1024, 2048, 4096, 4096, 8192]);
    let credits = dice.pick(&[1, 2, 4, 16, 32]);
    let padding = dice.once_in(2);
    let versions = dice.pick(&[Versions::ONE, Versions::BOTH, Versions::BOTH]);
    let mut settings = ServerSettings::new(inline, credits, 1 << 20, padding).serving(versions);
    settings.exposures.window = Duration::from_millis(dice.pick(&[2, 50, 10_000]));
    settings.exposures.close = dice.once_in(2);
    settings.exposures.connection = dice.pick(&[1, 3, 16]);
    ServerOptions {
        settings,
        // Receives of more than 4 KiB take a lot.
        grow: if inline > 4096 {
            4 << 20
        } else {
            dice.pick(&[0, 0, 4 << 20])
        },
        send_depth: dice.pick(&[4, 8, 64, 256]),
        ord: dice.pick(&[1, 2, 16]),
        classic: dice.once_in(2),
        limits: dice.once_in(3),
    }
}

fn client(dice: &mut Dice, index: usize, server: &ServerOptions) -> ClientOptions {
    let size = dice.pick(&[1024, 2048, 4096, 4096, 8192]);
    let private_data = (!dice.once_in(4)).then_some(PrivateData {
        remote_invalidation: dice.once_in(2),
        send_size: size,
        receive_size: size,
    });
    let versions = match server.settings.rules.versions {
        Versions::ONE => dice.pick(&[Versions::ONE, Versions::BOTH]),
        _ => dice.pick(&[Versions::ONE, Versions::TWO, Versions::BOTH]),
    };
    let ccp = dice.once_in(3).then(|| Ccp {
        call_size: dice.pick(&[1024, 3000, 4096]),
        reply_size: dice.pick(&[1024, 3000, 4096]),
        ..Ccp::default()
    });
    let alignment = match dice.below(4) {
        0 => Alignment::Learnt { threshold: 100 },
        1 if server.settings.rules.padding => Alignment::Fixed {
            align: dice.pick(&[0, 4, 64, 512]),
            threshold: 100,
        },
        _ => Alignment::Off,
    };
    let settings = Settings {
        versions,
        ccp,
        alignment,
        remote_invalidation: dice.once_in(2),
        reverse_credits: dice.pick(&[0, 0, 2]),
        ord: dice.pick(&[1, 16]),
        expect_read_chunks: server.classic && dice.once_in(2),
        offer_results: !server.classic || !dice.once_in(3),
        private_data,
        credits: dice.pick(&[1, 2, 5, 16]),
        calls: dice.pick(&[4, 16]),
        spare_receives: dice.pick(&[0, 1, 8]),
        segments: dice.pick(&[1, 2, 16]),
        reply_segments: dice.pick(&[1, 1, 3]),
        chunk_above: dice.pick(&[0, 500, usize::MAX]),
        long_calls: dice.once_in(6),
        room_for_pad: dice.once_in(2),
        timeout: Duration::from_secs(3600),
        negotiation: Duration::from_millis(dice.pick(&[20, 10_000])),
        settle: Duration::from_millis(dice.pick(&[0, 100])),
        keep_calls: true,
        ird: dice.pick(&[0, 1, 1, 2, 16, 16, 16, 16]),
        identity: Identity::system("simulated", 0, 0, &[]),
        first_xid: Some((index as u32 + 1) << 24),
        ..Settings::default()
    };
    let mut options = ClientOptions {
        settings,
        operations: 12 + dice.below(28),
        depth: dice.pick(&[1, 3, 8, 16]),
        breaks: dice.pick(&[20, 100, 1_000_000]),
        cancels: dice.pick(&[30, 1_000_000, 1_000_000]),
        forgets_dones: dice.once_in(5),
        window: None,
        pause: dice.pick(&[50, 5000, 20_000]),
        timeout: Duration::from_millis(300),
    };
    if server.classic && options.forgets_dones && !options.settings.offer_results {
        options.window = Some(server.settings.exposures.window);
    }
    options
}
