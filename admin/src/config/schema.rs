//! JSON schemas of text values in the API's description.
//!
//! A pattern matches every accepted text, and some that are refused: an address with a part beyond
//! 255 matches.

use std::borrow::Cow;

use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use super::{Bandwidth, ByteSize, Cores, Network};

/// Stands for addresses, such as `10.0.0.1`, in the API's description.
pub struct AddressText;

/// Stands for client IDs of NFS version 4 in the API's description.
pub struct ClientIdText;

/// Stands for names of gateways in the API's description.
pub struct GatewayNameText;

/// Stands for stateids of NFS version 4 in the API's description.
pub struct StateidText;

/// Stands for durations, such as `100us`, in the API's description.
pub struct DurationText;

/// Stands for addresses with ports, such as `127.0.0.1:20049`, in the API's description.
pub struct SocketText;

/// Stands for the tags of `If-Match` and `If-None-Match` in the API's description.
pub struct TagsText;

/// A number of bytes, with or without a unit.
const SIZE: &str = r"^\s*[0-9]+\s*(KiB|MiB|GiB|TiB)?\s*$";

fn text(pattern: &str, description: &str, example: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(pattern))
        .description(Some(description))
        .examples([example])
}

fn whole(description: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(0))
        .description(Some(description))
}

macro_rules! schema {
    ($type:ident, $name:literal, $schema:expr) => {
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
        }
    };
}

schema!(
    ByteSize,
    "ByteSize",
    OneOfBuilder::new()
        .item(text(
            SIZE,
            "With KiB, MiB, GiB or TiB, or without.",
            "256MiB"
        ))
        .item(whole("As it is."))
        .description(Some("A number of bytes; answers have it as text."))
);
schema!(
    Bandwidth,
    "Bandwidth",
    text(
        r"^\s*[0-9]+\s*(KiB|MiB|GiB|TiB)?\s*/s$",
        "Bytes per second.",
        "2GiB/s"
    )
);
schema!(
    Network,
    "Network",
    text(
        r"^[0-9A-Fa-f:.]+(/[0-9]+)?$",
        "A network in CIDR notation, or one address.",
        "10.0.0.0/8"
    )
);
schema!(
    AddressText,
    "Address",
    text(
        r"^[0-9A-Fa-f:.]+$",
        "An address of version 4 or 6.",
        "10.0.0.1"
    )
);
schema!(
    ClientIdText,
    "ClientId",
    text(
        r"^[0-9a-f]{16}$",
        "A client ID of NFS version 4, 16 hexadecimal digits.",
        "5f2a9c0000000001"
    )
);
schema!(
    StateidText,
    "Stateid",
    text(
        r"^[0-9a-f]{24}$",
        "A stateid of NFS version 4 without its sequence number, 24 hexadecimal digits.",
        "5f2a01000000000000000001"
    )
);
schema!(
    GatewayNameText,
    "GatewayName",
    text(
        r"^[a-z0-9][a-z0-9-]{0,63}$",
        "The name of a gateway.",
        "gateway-a"
    )
);
schema!(
    TagsText,
    "Tags",
    text(
        r#"^(\*|(W/)?"[!#-~]*"( *, *(W/)?"[!#-~]*")*)$"#,
        "Tags of configurations with their quotes, commas between them, or `*` for any.",
        "*"
    )
);
schema!(
    DurationText,
    "Duration",
    text(
        r"^\s*[0-9]+\s*(us|ms|s|m|h)\s*$",
        "A time with its unit.",
        "100us"
    )
);
schema!(
    SocketText,
    "SocketAddress",
    text(
        r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+(%[0-9]+)?\]):[0-9]+$",
        "An address and a port.",
        "127.0.0.1:20049"
    )
);
schema!(
    Cores,
    "Cores",
    OneOfBuilder::new()
        .item(
            ObjectBuilder::new()
                .schema_type(Type::String)
                .enum_values(Some(["auto"]))
                .description(Some("Every core the process may use but the last."))
        )
        .item(
            ArrayBuilder::new()
                .items(whole("A core's number.").maximum(Some(1023)))
                .min_items(Some(1))
                .unique_items(true)
        )
        .description(Some("Which cores have a reactor."))
);
