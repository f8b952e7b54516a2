//! Checks for sufficient memory before a start or change touches any: if a process touches memory
//! that the host does not have, some process is killed.

mod demand;
mod room;

use std::path::Path;

use millrace_admin::config::{ByteSize, Config, ConfigProblem};

use demand::Demand;
use room::{MemoryRoom, MemoryShortage};

/// The root of the kernel's files.
const ROOT: &str = "/";

/// Checks the memory of a whole configuration, with this number of reactors. `freed` is memory of a
/// process that will have ended.
///
/// # Errors
/// The system or a control group has not enough memory left: the key that needs most. If the system
/// does not report its memory, nothing is refused.
pub fn check_start(config: &Config, reactors: usize, freed: Freed) -> Result<(), ConfigProblem> {
    check(
        config,
        &demand::of(config, reactors),
        freed,
        Path::new(ROOT),
    )
}

/// Checks the memory of a change.
///
/// # Errors
/// As those of [`check_start`].
pub fn check_growth(before: &Config, next: &Config, reactors: usize) -> Result<(), ConfigProblem> {
    let demands = demand::of_change(before, next, reactors);
    check(next, &demands, Freed::default(), Path::new(ROOT))
}

/// Memory of a process that will have ended before the requested memory is allocated, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// In small pages.
    pub small: u64,
    /// In huge pages.
    pub huge: u64,
}

/// `root` is the folder of `proc` and `sys`.
fn check(
    config: &Config,
    demands: &[Demand],
    freed: Freed,
    root: &Path,
) -> Result<(), ConfigProblem> {
    let Some(most) = demands.iter().max_by_key(|demand| demand.bytes()) else {
        return Ok(());
    };
    let Some(room) = MemoryRoom::read(root) else {
        return Ok(());
    };
    let room = room.with(freed);
    let Some(shortage) = room.shortage(demands, config.mempool.hugepages) else {
        return Ok(());
    };
    let asked = demands.iter().map(Demand::bytes);
    let asked = asked.fold(0, u64::saturating_add);
    let (path, alone) = (most.path.clone(), shown(most.bytes()));
    let asks = match most.bytes() == asked {
        true => format!("{alone} are asked for"),
        false => format!("{alone} are asked for, and {} in all", shown(asked)),
    };
    Err(ConfigProblem::new(path, format!("{asks}; {shortage}")))
}

impl std::fmt::Display for MemoryShortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HugePages { free, command } => write!(
                f,
                "{} are free in huge pages, which mempool.hugepages: required asks for; run \
                 `{command}`, or use mempool.hugepages: auto",
                shown(*free)
            ),
            Self::NoHugePages => {
                f.write_str("this kernel has no huge pages; set mempool.hugepages to auto or off")
            }
            Self::System { free, huge } => {
                write!(f, "{} are available", shown(*free))?;
                if *huge > 0 {
                    write!(f, " (and {} in free huge pages)", shown(*huge))?;
                }
                f.write_str(
                    "; make the exports in memory or mempool.size smaller, or free memory on this \
                     host",
                )
            }
            Self::Group { file, free } => write!(
                f,
                "{} are left in the control group ({}); make the exports in memory or mempool.size \
                 smaller, or raise that limit (MemoryMax= of a systemd unit, --memory of a \
                 container)",
                shown(*free),
                file.display()
            ),
        }
    }
}

/// Rounded down, for display.
fn shown(bytes: u64) -> ByteSize {
    let unit = if bytes >= 10 << 30 { 30 } else { 20 };
    ByteSize(bytes >> unit << unit)
}

#[cfg(test)]
mod tests;
