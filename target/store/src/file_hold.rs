//! Files that stay when their last name is removed.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Holds a file that clients have open ([`Namespace::hold`](crate::Namespace::hold)). It ends when
/// the last clone is dropped, on whichever thread.
#[derive(Clone, Default)]
pub struct FileHold {
    held: Option<Arc<dyn Any + Send + Sync>>,
}

impl FileHold {
    /// A hold that ends when `held` is dropped. That must not block.
    #[must_use]
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self {
            held: Some(Arc::new(held)),
        }
    }
}

impl fmt::Debug for FileHold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_empty = self.held.is_none();
        let mut shown = formatter.debug_struct("FileHold");
        shown.field("is_empty", &is_empty).finish()
    }
}
