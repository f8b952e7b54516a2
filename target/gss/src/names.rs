//! The user behind a principal.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};
use std::{fs, io};

use crate::remembered::Remembered;
use crate::{GssCounters, Identity, MachinePolicy, Settings, User, sys};

/// First components of the principals of machines.
const MACHINES: [&str; 3] = ["host", "nfs", "root"];

/// The host's users. Called on helper threads; may block.
pub trait Directory: Send + Sync + 'static {
    /// A user by name with the groups, at most `groups_max`; `None`: unknown.
    ///
    /// # Errors
    ///
    /// The database cannot be asked now.
    fn user(&self, name: &str, groups_max: usize) -> io::Result<Option<User>>;
}

/// The database of the C library, which asks what the host is configured for.
#[derive(Debug, Default)]
pub struct SystemDirectory;

impl Directory for SystemDirectory {
    fn user(&self, name: &str, groups_max: usize) -> io::Result<Option<User>> {
        sys::user(name, groups_max)
    }
}

/// The rules by which principals become users, and what they gave.
pub struct UserNames {
    directory: Box<dyn Directory>,
    realms: Vec<String>,
    machine: MachinePolicy,
    groups_max: usize,
    map_path: Option<PathBuf>,
    map: Mutex<PrincipalMap>,
    remembered: Remembered<String, User>,
    counters: Arc<GssCounters>,
}

/// Users by principals, from a file.
#[derive(Default)]
struct PrincipalMap {
    users: HashMap<String, String>,
    changed: Option<SystemTime>,
}

/// What the rules say of a principal, before the directory is asked.
#[derive(Debug, PartialEq, Eq)]
enum Rule<'a> {
    /// A user of this name. User 0 only if the map says so.
    Named { name: &'a str, is_mapped: bool },
    /// User 0 of a machine.
    Root,
    /// Nobody known.
    Anonymous,
}

impl UserNames {
    pub fn new(
        settings: &Settings,
        directory: Box<dyn Directory>,
        counters: Arc<GssCounters>,
    ) -> Self {
        let names = Self {
            directory,
            realms: settings.realms.clone(),
            machine: settings.machine,
            groups_max: settings.groups_max,
            map_path: settings.map.clone(),
            map: Mutex::default(),
            remembered: Remembered::default(),
            counters,
        };
        names.reload();
        names
    }

    /// Reads the map again if its file has changed. What cannot be read leaves the old one.
    pub fn reload(&self) {
        let Some(path) = &self.map_path else { return };
        let changed = fs::metadata(path).and_then(|about| about.modified()).ok();
        let mut map = lock(&self.map);
        if changed.is_some() && map.changed == changed {
            return;
        }
        match fs::read_to_string(path) {
            Ok(text) => {
                *map = PrincipalMap {
                    users: parse_map(&text),
                    changed,
                };
                drop(map);
                self.forget(None);
            }
            Err(error) => tracing::warn!("gss.map {} stays as it was: {error}", path.display()),
        }
    }

    /// Forgets the user of a principal, or all.
    pub fn forget(&self, principal: Option<&str>) {
        match principal {
            Some(principal) => self.remembered.forget(principal),
            None => self.remembered.clear(),
        }
    }

    /// A principal with its user. `realms` are those of the keytab, used if none are configured.
    ///
    /// # Errors
    ///
    /// The directory cannot be asked now.
    pub fn identify(&self, principal: &str, realms: &[String]) -> io::Result<Identity> {
        let user = match self.remembered.get(principal, Instant::now()) {
            Some(user) => user,
            None => self.look_up(principal, realms)?,
        };
        Ok(Identity {
            principal: principal.into(),
            user,
        })
    }

    fn look_up(&self, principal: &str, realms: &[String]) -> io::Result<Option<User>> {
        let mapped = lock(&self.map).users.get(principal).cloned();
        let realms = if self.realms.is_empty() {
            realms
        } else {
            &self.realms
        };
        let user = match rule(principal, mapped.as_deref(), realms, self.machine) {
            Rule::Anonymous => return Ok(None),
            Rule::Root => {
                return Ok(Some(User {
                    uid: 0,
                    gid: 0,
                    groups: [].into(),
                }));
            }
            Rule::Named { name, is_mapped } => {
                let begun = Instant::now();
                let found = self.directory.user(name, self.groups_max);
                self.counters.observe_name_lookup(begun.elapsed());
                found?.filter(|user| is_mapped || user.uid != 0)
            }
        };
        if user.is_none() {
            self.counters.names_unknown.increment();
        }
        let now = Instant::now();
        self.remembered.put(principal.to_owned(), user.clone(), now);
        Ok(user)
    }
}

/// What a principal is. A user's short name counts in the own realms only; another realm's has to
/// be known by its full name.
fn rule<'a>(
    principal: &'a str,
    mapped: Option<&'a str>,
    realms: &[String],
    machine: MachinePolicy,
) -> Rule<'a> {
    if let Some(name) = mapped {
        let is_mapped = true;
        return Rule::Named { name, is_mapped };
    }
    let Some((name, realm)) = principal.rsplit_once('@') else {
        return Rule::Anonymous;
    };
    let is_own = realms.iter().any(|own| own == realm);
    let service = name.split_once('/').map(|(service, _)| service);
    if service.is_some_and(|service| MACHINES.contains(&service)) || name.ends_with('$') {
        return match machine {
            MachinePolicy::Root if is_own => Rule::Root,
            _ => Rule::Anonymous,
        };
    }
    // The library escapes separators within a component: such a name is not what it looks like.
    if name.is_empty() || name.contains(['/', '\\', '@', '\0']) {
        return Rule::Anonymous;
    }
    Rule::Named {
        name: if is_own { name } else { principal },
        is_mapped: false,
    }
}

/// Lines of principal and user; `#` begins a comment.
fn parse_map(text: &str) -> HashMap<String, String> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let pairs = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    });
    pairs.collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
