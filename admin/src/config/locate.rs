//! Finds the line and column of a key path.
//!
//! The YAML library gives no positions for values it has read, but it adds the position of the
//! current event to an error returned by a visitor. So the search walks down the path and, at its
//! end, fails on purpose: the error's position is the answer. That works for block and flow style,
//! aliases and quoting alike, because the library does the parsing.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::path::Segment;

/// The position to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The value at the path.
    Value,
    /// The last key of the path, at its n-th occurrence in its mapping, from 1.
    Key(usize),
}

/// The message of an error that means "found"; other errors of the walk mean "absent".
pub const FOUND: &str = "found";

/// A walk to the end of a path; deserializing with it always fails.
pub struct Walk<'a> {
    /// The rest of the path.
    pub rest: &'a [Segment],
    /// The position to find.
    pub point: Point,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl Walk<'_> {
    fn scalar<E: de::Error>(&self) -> Result<(), E> {
        if self.rest.is_empty() {
            Err(E::custom(FOUND))
        } else {
            Err(E::custom("not there"))
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Also the text of an error about a value of a kind not handled below.
        f.write_str(FOUND)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.scalar()
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<(), E> {
        self.scalar()
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.scalar()
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        self.scalar()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((Segment::Index(wanted), rest)) = self.rest.split_first() else {
            return self.scalar();
        };
        for _ in 0..*wanted {
            if items.next_element::<IgnoredAny>()?.is_none() {
                return Err(de::Error::custom("not there"));
            }
        }
        items.next_element_seed(Walk {
            rest,
            point: self.point,
        })?;
        Err(de::Error::custom("not there"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((Segment::Key(wanted), rest)) = self.rest.split_first() else {
            return self.scalar();
        };
        let mut occurrence = match self.point {
            Point::Key(occurrence) if rest.is_empty() => occurrence,
            _ => 1,
        };
        let fail_at_key = rest.is_empty() && matches!(self.point, Point::Key(_));
        loop {
            let key = Key {
                wanted,
                fail: fail_at_key && occurrence == 1,
            };
            match entries.next_key_seed(key)? {
                None => return Err(de::Error::custom("not there")),
                Some(true) if occurrence == 1 => {
                    entries.next_value_seed(Walk {
                        rest,
                        point: self.point,
                    })?;
                }
                Some(matched) => {
                    occurrence -= usize::from(matched);
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
    }
}

/// Compares one key with the wanted one; fails on a match if it is the target.
struct Key<'a> {
    wanted: &'a str,
    fail: bool,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<bool, D::Error> {
        input.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<bool, E> {
        match key == self.wanted {
            true if self.fail => Err(E::custom(FOUND)),
            matched => Ok(matched),
        }
    }
}
