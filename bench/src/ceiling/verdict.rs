//! What contests came to, and how it is printed.

use super::contest::{Contest, Figure, Goal};
use super::raw::RawRate;
use super::variant::Variant;
use crate::load::{Limit, Measurement};
use crate::table::Table;

/// One goal's outcome.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct GoalOutcome {
    /// What was wanted.
    #[serde(flatten)]
    pub goal: Goal,
    /// The measured value: the median of the turns. `None` without the server's metrics.
    pub measured: Option<f64>,
    /// Whether the target was met.
    pub met: bool,
    /// Whether the bar of --strict was reached, if there is one.
    pub reached: bool,
}

/// One contest's outcome. All figures are medians of the turns.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verdict {
    /// The name of the load.
    pub name: String,
    /// The fastest way of making the raw exchange.
    pub variant: Variant,
    /// The same in words: messages read at a time by server and client, and so on.
    pub variant_text: String,
    /// Operations per second of the raw exchange.
    pub raw: f64,
    /// Operations per second of NFS.
    pub nfs: f64,
    /// NFS by raw, of each turn.
    pub ratio: f64,
    /// All turns: raw, NFS.
    pub rounds: Vec<(f64, f64)>,
    /// The goals and their outcomes.
    pub goals: Vec<GoalOutcome>,
    /// Median latency of NFS in microseconds.
    pub p50_us: f64,
    /// The client's processor time per operation, in microseconds.
    pub client_cpu_us: Option<f64>,
    /// The server's processor time per operation, in microseconds.
    pub server_cpu_us: Option<f64>,
    /// The client's busy time per operation, in microseconds.
    pub client_busy_us: f64,
    /// The server's busy time per operation, in microseconds.
    pub server_busy_us: Option<f64>,
    /// Share of the time in which the client had work, 0 to 1.
    pub client_share: f64,
    /// The same of the server.
    pub server_share: Option<f64>,
    /// The raw client's busy time per operation, in microseconds.
    pub raw_client_busy_us: f64,
    /// The raw server's busy time per operation, in microseconds.
    pub raw_server_busy_us: f64,
    /// Share of the time in which the raw client had work, 0 to 1.
    pub raw_client_share: f64,
    /// The same of the raw server.
    pub raw_server_share: f64,
    /// What limits the rate of NFS.
    pub limit: Limit,
}

/// One turn: the raw exchange, then NFS.
pub type Round = (RawRate, Measurement);

impl Verdict {
    /// Of the turns of a contest.
    #[must_use]
    pub fn new(contest: &Contest, variant: Variant, rounds: &[Round]) -> Self {
        let of = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
        let known = |figure: fn(&Round) -> Option<f64>| {
            let values: Option<Vec<f64>> = rounds.iter().map(figure).collect();
            values.map(|values| median(values.into_iter()))
        };
        let goals = contest.goals.iter().map(|goal| {
            let measured = known(match goal.figure {
                Figure::Rate => |(raw, nfs)| Some(nfs.operations_per_second / raw.rate),
                Figure::Latency => |(raw, nfs)| Some(nfs.p50_us / raw.p50_us),
                Figure::ServerBusy => |(raw, nfs)| Some(nfs.server_busy_us? / raw.server_busy_us),
                Figure::RequesterBusy => |(_, nfs)| Some(nfs.client_busy_us / nfs.server_busy_us?),
            });
            let keeps = |measured: f64, wanted| match goal.figure.is_floor() {
                true => measured >= wanted,
                false => measured <= wanted,
            };
            GoalOutcome {
                goal: *goal,
                measured,
                met: measured.is_some_and(|measured| keeps(measured, goal.target)),
                reached: goal
                    .bar
                    .is_none_or(|bar| measured.is_some_and(|measured| keeps(measured, bar))),
            }
        });
        let (client_share, server_share) = (
            of(|(_, nfs)| nfs.client_share),
            known(|(_, nfs)| nfs.server_share),
        );
        Self {
            name: contest.name(),
            variant,
            variant_text: variant.to_string(),
            raw: of(|(raw, _)| raw.rate),
            nfs: of(|(_, nfs)| nfs.operations_per_second),
            ratio: of(|(raw, nfs)| nfs.operations_per_second / raw.rate),
            rounds: rounds
                .iter()
                .map(|(raw, nfs)| (raw.rate, nfs.operations_per_second))
                .collect(),
            goals: goals.collect(),
            p50_us: of(|(_, nfs)| nfs.p50_us),
            client_cpu_us: known(|(_, nfs)| nfs.client_cpu_us),
            server_cpu_us: known(|(_, nfs)| nfs.server_cpu_us),
            client_busy_us: of(|(_, nfs)| nfs.client_busy_us),
            server_busy_us: known(|(_, nfs)| nfs.server_busy_us),
            client_share,
            server_share,
            raw_client_busy_us: of(|(raw, _)| raw.client_busy_us),
            raw_server_busy_us: of(|(raw, _)| raw.server_busy_us),
            raw_client_share: of(|(raw, _)| raw.client_share),
            raw_server_share: of(|(raw, _)| raw.server_share),
            limit: Limit::of(client_share, server_share),
        }
    }

    /// Whether all bars were reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.goals.iter().all(|goal| goal.reached)
    }
}

/// The median, or zero of none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn busy(time: Option<f64>, share: Option<f64>) -> String {
    match (time, share) {
        (Some(time), Some(share)) => format!("{time:.2} ({:.0} %)", share * 100.0),
        _ => "-".to_owned(),
    }
}

/// All contests: rates, and how busy both sides were.
#[must_use]
pub fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&[
        "load",
        "raw TCP /s",
        "NFS /s",
        "ratio",
        "target",
        "bar",
        "",
        "raw client us",
        "raw server us",
        "client busy us",
        "server busy us",
        "limited by",
        "raw variant (server/client)",
    ]);
    for verdict in verdicts {
        let rate = verdict
            .goals
            .iter()
            .find(|outcome| outcome.goal.figure == Figure::Rate);
        let (raw_client, raw_server) = (verdict.raw_client_busy_us, verdict.raw_server_busy_us);
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value}"));
        table.row(&[
            verdict.name.clone(),
            format!("{:.0}", verdict.raw),
            format!("{:.0}", verdict.nfs),
            format!("{:.2}", verdict.ratio),
            number(rate.map(|outcome| outcome.goal.target)),
            number(rate.and_then(|outcome| outcome.goal.bar)),
            if verdict.reached() { "" } else { "MISSED" }.to_owned(),
            busy(Some(raw_client), Some(verdict.raw_client_share)),
            busy(Some(raw_server), Some(verdict.raw_server_share)),
            busy(Some(verdict.client_busy_us), Some(verdict.client_share)),
            busy(verdict.server_busy_us, verdict.server_share),
            verdict.limit.text().to_owned(),
            verdict.variant_text.clone(),
        ]);
    }
    table
}

/// All targets in Markdown.
#[must_use]
pub fn targets(verdicts: &[Verdict]) -> String {
    let mut lines = vec![
        "| load | figure | target | measured | met | limited by |".to_owned(),
        "| --- | --- | --- | --- | --- | --- |".to_owned(),
    ];
    for verdict in verdicts {
        for outcome in &verdict.goals {
            let figure = outcome.goal.figure;
            let measured = outcome.measured;
            lines.push(format!(
                "| {} | {} | {} {:.2} | {} | {} | {} |",
                verdict.name,
                figure.text(),
                if figure.is_floor() { "≥" } else { "≤" },
                outcome.goal.target,
                measured.map_or("-".to_owned(), |measured| format!("{measured:.2}")),
                if outcome.met { "yes" } else { "no" },
                verdict.limit.text(),
            ));
        }
    }
    lines.join("\n")
}
