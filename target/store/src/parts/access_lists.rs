//! Access control lists.

use crate::{AccessLists, Caller, Handle, Modified, Result};

part! { $
/// Access control lists of files and directories; symbolic links have none
/// ([`StoreError::NotSupported`](crate::StoreError::NotSupported)). A store whose
/// [`Properties::access_lists`](crate::Properties::access_lists) is false answers that as well. Lists
/// and permission bits always agree: a change of one changes the other.
pub trait AccessControl, forwarded by forward_access_control, with {} {
    /// The lists of an object, which follow from its permission bits if it has no others.
    async fn access_lists(&self, object: Handle) -> Result<AccessLists>;

    /// Replaces the lists of an object.
    async fn set_access_lists(&self, caller: &Caller, object: Handle, lists: &AccessLists) -> Modified<()>;
}
}
