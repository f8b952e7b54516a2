//! Positions in a configuration: `exports[1].store.size`.

use std::borrow::Cow;
use std::fmt;

/// One step of a [`KeyPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A key of a mapping.
    Key(Cow<'static, str>),
    /// A position in a sequence, from zero.
    Index(usize),
}

/// The path from the root of the configuration to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPath {
    segments: Vec<Segment>,
}

impl KeyPath {
    /// The top of the file.
    pub fn root() -> Self {
        Self::default()
    }

    /// This path with one more key.
    pub fn key(&self, key: impl Into<Cow<'static, str>>) -> Self {
        self.with(Segment::Key(key.into()))
    }

    /// This path with one more index.
    pub fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    /// The steps from the root.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The path without its last step; `None` at the top.
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.segments.split_last()?;
        Some(Self {
            segments: rest.to_vec(),
        })
    }

    fn with(&self, segment: Segment) -> Self {
        let mut segments = self.segments.clone();
        segments.push(segment);
        Self { segments }
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.segments.iter().enumerate() {
            match segment {
                Segment::Key(key) if position == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl serde::Serialize for KeyPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
