//! Parameters of a load.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use millrace_wire::nfs3::Stability;

use super::calls::LoadCall;
use crate::units::show_size;

/// Which procedures are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// READ.
    Read,
    /// WRITE, unstable unless the load is stable.
    Write,
    /// GETATTR.
    Getattr,
    /// LOOKUP of a file by its name.
    Lookup,
    /// OPEN and CLOSE of a file in one call, in version 4.
    Open,
    /// Files made and removed in turns, each by a call, in version 3.
    Create,
    /// Seven READs to three WRITEs.
    Mixed,
    /// The files for LOOKUPs are made.
    #[value(skip)]
    Fill,
    /// They are removed.
    #[value(skip)]
    Clear,
}

/// What a load does while nothing arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdlePolicy {
    /// It polls, and offers the processor to others.
    #[default]
    Yield,
    /// It polls and keeps the processor: who yields on a busy machine gets it back after
    /// milliseconds. For clients that have a core of their own.
    Spin,
    /// It sleeps, so that others have the core.
    Sleep,
}

impl Operation {
    /// Whether its calls have a size.
    #[must_use]
    pub const fn moves_data(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Mixed)
    }

    /// Its call, if it is for one of many files.
    pub(super) const fn in_tree(self) -> Option<LoadCall> {
        match self {
            Self::Fill => Some(LoadCall::Create),
            Self::Lookup => Some(LoadCall::Lookup),
            Self::Clear => Some(LoadCall::Remove),
            _ => None,
        }
    }
}

/// The version of NFS that a load calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NfsVersion {
    /// Version 3.
    #[default]
    #[value(name = "3")]
    Three,
    /// Version 4, minor version 1.
    #[value(name = "4.1")]
    FourOne,
    /// Version 4, minor version 2.
    #[value(name = "4.2")]
    FourTwo,
}

impl NfsVersion {
    /// The minor version of version 4.
    #[must_use]
    pub const fn minor_version(self) -> Option<u32> {
        match self {
            Self::Three => None,
            Self::FourOne => Some(1),
            Self::FourTwo => Some(2),
        }
    }
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this time.
    Time(Duration),
    /// After so many operations.
    Count(u64),
}

/// One load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The operation.
    pub operation: Operation,
    /// Bytes of a READ or WRITE.
    pub size: usize,
    /// Calls in flight on each connection.
    pub depth: usize,
    /// Random offsets.
    pub random: bool,
    /// Compare all data.
    pub verify: bool,
    /// WRITEs are durable when they are answered.
    pub stable: bool,
    /// When to stop.
    pub until: Until,
}

impl Workload {
    /// A load for a time, in order, without comparing data.
    #[must_use]
    pub const fn new(operation: Operation, size: usize, depth: usize, time: Duration) -> Self {
        Self {
            operation,
            size,
            depth,
            random: false,
            verify: false,
            stable: false,
            until: Until::Time(time),
        }
    }

    /// A load of so many operations without data.
    pub(super) const fn counted(operation: Operation, depth: usize, count: u64) -> Self {
        Self {
            until: Until::Count(count),
            ..Self::new(operation, 0, depth, Duration::ZERO)
        }
    }

    /// The short tour: five loads of a second.
    #[must_use]
    pub fn tour() -> Vec<Self> {
        let second = Duration::from_secs(1);
        vec![
            Self::new(Operation::Read, 4096, 32, second),
            Self::new(Operation::Write, 4096, 32, second),
            Self::new(Operation::Read, 1 << 20, 16, second),
            Self::new(Operation::Write, 1 << 20, 16, second),
            Self::new(Operation::Getattr, 0, 32, second),
        ]
    }

    /// The stability of its WRITEs.
    pub(super) const fn stability(&self) -> Stability {
        match self.stable {
            true => Stability::FileSync,
            false => Stability::Unstable,
        }
    }

    /// A short description.
    #[must_use]
    pub fn name(&self) -> String {
        let what = match self.operation {
            Operation::Read => "READ",
            Operation::Write => "WRITE",
            Operation::Getattr => return format!("GETATTR x{}", self.depth),
            Operation::Lookup => return format!("LOOKUP x{}", self.depth),
            Operation::Open => return format!("OPEN, CLOSE x{}", self.depth),
            Operation::Create => return format!("CREATE, REMOVE x{}", self.depth),
            Operation::Mixed => "MIXED",
            Operation::Fill => return format!("CREATE x{}", self.depth),
            Operation::Clear => return format!("REMOVE x{}", self.depth),
        };
        format!("{what} {} x{}", show_size(self.size), self.depth)
    }

    /// Refuses parameters out of range.
    ///
    /// # Errors
    /// An error text.
    pub fn check(&self, file_size: usize) -> Result<()> {
        if !(1..=4096).contains(&self.depth) {
            bail!("--depth takes 1 to 4096");
        }
        if self.operation.moves_data() {
            if !(1..=1 << 20).contains(&self.size) {
                bail!("--size takes 1 byte to 1 MiB");
            }
            if self.size > file_size {
                bail!("--file-size is smaller than --size");
            }
        }
        Ok(())
    }
}
