//! The size classes of pool buffers.

/// A size class. A request waits in the queue of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// 4 KiB: receives, replies and other control traffic. Its reserve is never used for data.
    Control,
    /// 64 KiB: small and medium payloads.
    Medium,
    /// 1 MiB: the largest payload of one request.
    Large,
}

impl Class {
    /// All classes, smallest first.
    pub const ALL: [Self; 3] = [Self::Control, Self::Medium, Self::Large];

    /// Capacity in bytes of a buffer of this class.
    pub const fn size(self) -> usize {
        match self {
            Self::Control => 4 << 10,
            Self::Medium => 64 << 10,
            Self::Large => 1 << 20,
        }
    }

    /// The smallest class whose buffers hold `bytes`; `None` above the largest.
    pub const fn for_size(bytes: usize) -> Option<Self> {
        if bytes <= Self::Control.size() {
            Some(Self::Control)
        } else if bytes <= Self::Medium.size() {
            Some(Self::Medium)
        } else if bytes <= Self::Large.size() {
            Some(Self::Large)
        } else {
            None
        }
    }

    /// The next larger class.
    pub(crate) const fn larger(self) -> Option<Self> {
        match self {
            Self::Control => Some(Self::Medium),
            Self::Medium => Some(Self::Large),
            Self::Large => None,
        }
    }

    /// The next smaller class.
    pub(crate) const fn smaller(self) -> Option<Self> {
        match self {
            Self::Control => None,
            Self::Medium => Some(Self::Control),
            Self::Large => Some(Self::Medium),
        }
    }

    /// A word for logs and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Class;

    #[test]
    fn the_smallest_class_that_fits_is_chosen() {
        assert_eq!(Class::for_size(0), Some(Class::Control));
        assert_eq!(Class::for_size(4096), Some(Class::Control));
        assert_eq!(Class::for_size(4097), Some(Class::Medium));
        assert_eq!(Class::for_size(65536), Some(Class::Medium));
        assert_eq!(Class::for_size(65537), Some(Class::Large));
        assert_eq!(Class::for_size(1 << 20), Some(Class::Large));
        assert_eq!(Class::for_size((1 << 20) + 1), None);
    }
}
