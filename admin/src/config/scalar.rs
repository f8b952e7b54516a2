//! Values that are one word in the file and have their own type in the model.

/// Implements `Serialize` and `Deserialize` through `Display` and `FromStr`, with a sentence
/// that says what is accepted. With `number = Type`, a bare whole number is `Type(number)`.
macro_rules! text_scalar {
    ($type:ident, $expected:literal $(, number = $number:path)?) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse::<$type>()
                            .map_err(|error| E::custom(format_args!("`{text}`: {error}")))
                    }

                    $(fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$type, E> {
                        Ok($number(number))
                    })?
                }
                input.deserialize_any(Visitor)
            }
        }
    };
}

pub(super) use text_scalar;

/// Whole numbers as a field attribute, with a description instead of a Rust type's name:
/// `#[serde(deserialize_with = "scalar::whole")]`.
pub(super) fn whole<'de, D: serde::Deserializer<'de>>(input: D) -> Result<u32, D::Error> {
    struct Visitor;
    impl serde::de::Visitor<'_> for Visitor {
        type Value = u32;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a whole number from 0 to 4294967295")
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u32, E> {
            u32::try_from(number)
                .map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))
        }
    }
    input.deserialize_any(Visitor)
}

/// The same for an optional and larger number.
pub(super) fn count<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    struct Visitor;
    impl serde::de::Visitor<'_> for Visitor {
        type Value = u64;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a whole number, such as 50000")
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }
    }
    input.deserialize_any(Visitor).map(Some)
}

/// An address and port as a field attribute: `#[serde(with = "scalar::socket")]`.
pub(super) mod socket {
    use std::fmt;
    use std::net::SocketAddr;

    use serde::{Deserializer, Serializer, de};

    const EXPECTED: &str = "an address and a port from 0 to 65535, such as 127.0.0.1:20049 or \
                            [::]:20049 (host names are not looked up)";

    pub fn serialize<S: Serializer>(address: &SocketAddr, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(address)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<SocketAddr, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = SocketAddr;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SocketAddr, E> {
                text.parse()
                    .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &EXPECTED))
            }
        }
        input.deserialize_any(Visitor)
    }
}
