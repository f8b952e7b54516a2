//! Access control lists as POSIX.1e has them (acl(5)).

use crate::Caller;

/// Most entries for users and groups of a list.
pub const ACCESS_ENTRIES_MAX: usize = 1024;

/// Rights of a class of users: read 4, write 2, execute 1.
pub type Rights = u8;

/// A list. Without entries for users and groups it says the same as permission bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    /// Rights of the owner.
    pub owner: Rights,
    /// Rights of other users, by user.
    pub users: Vec<(u32, Rights)>,
    /// Rights of the owning group.
    pub group: Rights,
    /// Rights of other groups, by group.
    pub groups: Vec<(u32, Rights)>,
    /// The most that other users, the owning group and other groups have, if there are entries for
    /// them.
    pub mask: Option<Rights>,
    /// Rights of everybody else.
    pub other: Rights,
}

impl AccessList {
    /// What permission bits say.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        let class = |shift: u32| Rights::try_from(mode >> shift & 7).unwrap_or(0);
        Self {
            owner: class(6),
            group: class(3),
            other: class(0),
            ..Self::default()
        }
    }

    /// The permission bits that show it: those of the group show the mask.
    #[must_use]
    pub fn mode(&self) -> u32 {
        let group = self.mask.unwrap_or(self.group);
        u32::from(self.owner & 7) << 6 | u32::from(group & 7) << 3 | u32::from(self.other & 7)
    }

    /// Permission bits that give nobody more than the list does, without its other entries.
    #[must_use]
    pub fn least_mode(&self) -> u32 {
        let group = self.group & self.mask.unwrap_or(7);
        let least = Self {
            group,
            mask: None,
            ..self.clone()
        };
        least.mode()
    }

    /// Whether it has entries for users or groups.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }

    /// Entries for users and groups.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.users.len() + self.groups.len()
    }

    /// The same with permission bits of these, as after a change of the mode.
    #[must_use]
    pub fn with_mode(mut self, mode: u32) -> Self {
        let plain = Self::of_mode(mode);
        (self.owner, self.other) = (plain.owner, plain.other);
        match &mut self.mask {
            Some(mask) => *mask = plain.group,
            None => self.group = plain.group,
        }
        self
    }

    /// Whether the list, with permission bits as they are now, gives a caller all `wanted` rights.
    /// `owner` has the user and the group that own the object.
    #[must_use]
    pub fn allows(&self, caller: &Caller, owner: (u32, u32), mode: u32, wanted: u32) -> bool {
        let gives = |rights: u32| rights & wanted == wanted;
        if caller.uid == owner.0 {
            return gives(mode >> 6);
        }
        let mask = mode >> 3;
        let mut users = self.users.iter();
        if let Some((_, rights)) = users.find(|(user, _)| *user == caller.uid) {
            return gives(u32::from(*rights) & mask);
        }
        let own = caller.in_group(owner.1).then_some(self.group);
        let named = self.groups.iter();
        let named = named.filter(|(group, _)| caller.in_group(*group));
        let mut of_groups = own.into_iter().chain(named.map(|(_, rights)| *rights));
        match of_groups.next() {
            None => gives(mode),
            Some(first) => {
                let mut all = std::iter::once(first).chain(of_groups);
                all.any(|rights| gives(u32::from(rights) & mask))
            }
        }
    }

    /// What an object that is made with a mode inherits of this default list.
    #[must_use]
    pub fn inherited(&self, mode: u32) -> Self {
        self.clone().with_mode(self.mode() & mode)
    }
}

/// The lists of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLists {
    /// The one that decides about access.
    pub access: AccessList,
    /// The one that new objects in a directory begin with.
    pub default: Option<AccessList>,
}
