//! The available memory: of the system, in huge pages, and within the limits of the process's
//! control groups.

use std::fs;
use std::path::{Component, Path, PathBuf};

use millrace_admin::config::Hugepages;

use super::{Demand, Freed};

/// Arenas are whole multiples of this.
const ARENA_UNIT: u64 = 2 << 20;

/// Small pages have an entry of 8 bytes in a table for each 4096.
const TABLES: u64 = 512;

/// Memory available without swapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    /// Bytes in small pages.
    available: u64,
    /// Pages of the default huge size.
    huge: Option<HugePages>,
    /// The rest of each limit of a control group.
    groups: Vec<GroupRoom>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HugePages {
    size: u64,
    total: u64,
    /// Those neither mapped nor reserved.
    free: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupRoom {
    /// The file that has the limit.
    file: PathBuf,
    left: u64,
}

/// The memory that is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryShortage {
    /// The system has no huge pages, but they are required.
    NoHugePages,
    /// Huge pages that are required.
    HugePages {
        /// Free bytes in them.
        free: u64,
        /// The command that reserves enough.
        command: String,
    },
    /// Memory of the system.
    System {
        /// Free bytes in small pages.
        free: u64,
        /// Free bytes in huge pages.
        huge: u64,
    },
    /// Memory within the limit of a control group.
    Group {
        /// The file that has the limit.
        file: PathBuf,
        /// Bytes left.
        free: u64,
    },
}

impl MemoryRoom {
    /// Reads the kernel's files below `root`; `None` if they do not report it.
    pub fn read(root: &Path) -> Option<Self> {
        let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
        let number = |key: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            value.split_whitespace().next()?.parse::<u64>().ok()
        };
        let huge = || {
            let free = number("HugePages_Free")?;
            Some(HugePages {
                size: number("Hugepagesize")? << 10,
                total: number("HugePages_Total")?,
                free: free.saturating_sub(number("HugePages_Rsvd").unwrap_or(0)),
            })
        };
        Some(Self {
            available: number("MemAvailable")? << 10,
            huge: huge().filter(|pages| pages.size > 0),
            groups: groups(root),
        })
    }

    /// Adds memory that a process of the same groups will have freed.
    pub fn with(mut self, freed: Freed) -> Self {
        self.available += freed.small;
        if let Some(huge) = &mut self.huge {
            huge.free = (huge.free + freed.huge / huge.size).min(huge.total);
        }
        for group in &mut self.groups {
            group.left += freed.small;
        }
        self
    }

    /// The shortage for these demands, if there is one.
    pub fn shortage(&self, demands: &[Demand], policy: Hugepages) -> Option<MemoryShortage> {
        let arenas = || {
            demands
                .iter()
                .flat_map(|demand| demand.arenas.iter().copied())
        };
        let mut small = demands
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(one.small));
        match (policy, self.huge) {
            (Hugepages::Required, None) => return Some(MemoryShortage::NoHugePages),
            (Hugepages::Required, Some(pages)) => {
                let unit = pages.size.max(ARENA_UNIT);
                let needed = arenas().fold(0, |sum: u64, (count, bytes)| {
                    sum.saturating_add(count.saturating_mul(whole(bytes, unit) / pages.size))
                });
                if needed > pages.free {
                    let total = pages.total.saturating_add(needed - pages.free);
                    return Some(MemoryShortage::HugePages {
                        free: pages.free * pages.size,
                        command: format!("sysctl vm.nr_hugepages={total}"),
                    });
                }
            }
            (Hugepages::Auto, Some(pages)) => {
                // Each arena is in huge pages as a whole, or not at all.
                let mut free = pages.free * pages.size;
                for (count, bytes) in arenas() {
                    let huge = whole(bytes, pages.size.max(ARENA_UNIT));
                    let fit = (free / huge).min(count);
                    free -= fit * huge;
                    small = small.saturating_add(in_small_pages(count - fit, bytes));
                }
            }
            (Hugepages::Auto, None) | (Hugepages::Off, _) => {
                let all = arenas().map(|(count, bytes)| in_small_pages(count, bytes));
                small = all.fold(small, u64::saturating_add);
            }
        }
        if small > self.available {
            let huge = match policy {
                Hugepages::Auto => self.huge.map_or(0, |pages| pages.free * pages.size),
                _ => 0,
            };
            return Some(MemoryShortage::System {
                free: self.available,
                huge,
            });
        }
        let least = self.groups.iter().min_by_key(|group| group.left)?;
        (small > least.left).then(|| MemoryShortage::Group {
            file: least.file.clone(),
            free: least.left,
        })
    }
}

/// The next multiple of `unit` from `bytes` on.
fn whole(bytes: u64, unit: u64) -> u64 {
    bytes.max(1).div_ceil(unit).saturating_mul(unit)
}

/// The memory of arenas in small pages.
fn in_small_pages(count: u64, bytes: u64) -> u64 {
    let bytes = count.saturating_mul(whole(bytes, ARENA_UNIT));
    bytes.saturating_add(bytes / TABLES)
}

/// The rest of the limits of this process's control groups and those above them.
fn groups(root: &Path) -> Vec<GroupRoom> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let memberships = read("proc/self/cgroup");
    let mounts = read("proc/self/mountinfo");
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(GroupMount::parse) {
        let Some(path) = membership(&memberships, mount.version) else {
            continue;
        };
        // Files of the group if it is visible, else those of the mount's own root: a container may
        // see its group there, under a name known to the host only.
        let below = Path::new(path)
            .strip_prefix(mount.root)
            .unwrap_or(Path::new(""));
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        let below = if below.components().all(is_plain) {
            below
        } else {
            Path::new("")
        };
        for group in below.ancestors() {
            let folder = Path::new(mount.point).join(group);
            found.extend(GroupRoom::read(root, &folder, mount.version));
        }
    }
    found
}

/// The two forms of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The mount point of a hierarchy that may limit memory (proc_pid_mountinfo(5)).
struct GroupMount<'a> {
    version: Version,
    /// The group that is at the mount point.
    root: &'a str,
    point: &'a str,
}

impl<'a> GroupMount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let version = match kind {
            "cgroup2" => Version::Two,
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Self {
            version,
            root,
            point,
        })
    }
}

/// The path of this process's group (cgroups(7)).
fn membership(text: &str, version: Version) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match version {
            Version::One => controllers.split(',').any(|one| one == "memory"),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        is_it.then_some(path)
    })
}

impl GroupRoom {
    /// The rest of one group's limit; `None` if it has none.
    fn read(root: &Path, folder: &Path, version: Version) -> Option<Self> {
        // Folders begin with a slash.
        let inside = folder.strip_prefix("/").unwrap_or(folder);
        let read = |file: &str| fs::read_to_string(root.join(inside).join(file)).ok();
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        let (limit, usage, caches) = match version {
            Version::One => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                ["total_inactive_file", "total_active_file"],
            ),
            Version::Two => (
                "memory.max",
                "memory.current",
                ["inactive_file", "active_file"],
            ),
        };
        // `max` is no number and means no limit.
        let most = number(limit)?;
        let used = number(usage)?;
        // The page cache is freed when memory is needed.
        let stat = read("memory.stat").unwrap_or_default();
        let value = |line: &str| {
            let (key, value) = line.split_once(' ')?;
            caches
                .contains(&key)
                .then(|| value.trim().parse::<u64>().ok())?
        };
        let cached: u64 = stat.lines().filter_map(value).sum();
        Some(Self {
            file: folder.join(limit),
            left: most.saturating_sub(used.saturating_sub(cached)),
        })
    }
}
