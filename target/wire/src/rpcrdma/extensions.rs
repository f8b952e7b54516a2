//! Registered extensions of version two, by message type (version two draft section 4.3).

use core::fmt;

use arrayvec::ArrayVec;

/// Most extensions at once, and most message types of all of them.
const EXTENSIONS_MAX: usize = 16;
const TYPES_MAX: usize = 64;

/// Why an extension is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// It has no message types.
    #[error("an extension without message types")]
    Empty,
    /// The table has no space for the extension or its types.
    #[error("too many extensions")]
    Full,
    /// A type is taken, by another extension or twice by this one.
    #[error("message type {0:#010x} is taken")]
    Taken(u32),
}

/// Extensions by their message types. An extension is registered with all of its types or not at
/// all, since peers find out by one message whether the other side has it.
pub struct ExtensionTable<E> {
    extensions: ArrayVec<E, EXTENSIONS_MAX>,
    /// Types, each with the index of its extension.
    types: ArrayVec<(u32, usize), TYPES_MAX>,
}

impl<E> ExtensionTable<E> {
    /// Adds an extension with all of its types.
    ///
    /// # Errors
    /// [`RegisterError`]. None of its types is registered then.
    pub fn register(&mut self, kinds: &[u32], extension: E) -> Result<(), RegisterError> {
        if kinds.is_empty() {
            return Err(RegisterError::Empty);
        }
        for (at, &kind) in kinds.iter().enumerate() {
            if kinds[..at].contains(&kind) || self.find(kind).is_some() {
                return Err(RegisterError::Taken(kind));
            }
        }
        if kinds.len() > self.types.remaining_capacity() || self.extensions.is_full() {
            return Err(RegisterError::Full);
        }
        let owner = self.extensions.len();
        self.types.extend(kinds.iter().map(|&kind| (kind, owner)));
        self.extensions.push(extension);
        Ok(())
    }

    fn owner(&self, kind: u32) -> Option<usize> {
        let mut types = self.types.iter();
        let found = types.find(|(known, _)| *known == kind);
        found.map(|&(_, owner)| owner)
    }

    /// The extension of a message type.
    #[must_use]
    pub fn find(&self, kind: u32) -> Option<&E> {
        self.extensions.get(self.owner(kind)?)
    }

    /// The extension of a message type, mutable.
    pub fn find_mut(&mut self, kind: u32) -> Option<&mut E> {
        let owner = self.owner(kind)?;
        self.extensions.get_mut(owner)
    }
}

impl<E> Default for ExtensionTable<E> {
    fn default() -> Self {
        Self {
            extensions: ArrayVec::new(),
            types: ArrayVec::new(),
        }
    }
}

impl<E> fmt::Debug for ExtensionTable<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.types.iter().map(|(kind, _)| kind);
        formatter.debug_list().entries(kinds).finish()
    }
}
