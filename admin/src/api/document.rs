//! `/api/v1/openapi.json`: the description of the API, generated from the handlers.
//!
//! Each handler has its own description (`#[utoipa::path]`). This module adds the common parts:
//! responses of any request, the token for changes, and the body of each error response.

use axum::Extension;
use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::response::{Response as Answer, ResponseBuilder};
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, HeaderBuilder, Info, License, OpenApi, OpenApiBuilder, Ref, RefOr,
    SecurityRequirement, Tag,
};
use utoipa::{PartialSchema, ToSchema};

use crate::change::ChangeReport;
use crate::status::{
    FieldProblem, Occurrence, Problem, ReactorOutcome, ResourceUse, ServiceEvent, Version,
};

const PROBLEM: &str = "application/problem+json";
const TOKEN: &str = "token";

/// Status, name and meaning of error responses.
const FAILURES: &[(&str, &str, &str)] = &[
    (
        "400",
        "BadRequest",
        "The request cannot be read: query, header or body are malformed, or the query has an unknown key.",
    ),
    ("401", "Unauthorized", "The token is missing or wrong."),
    (
        "403",
        "Forbidden",
        "The API is read-only, as the server has no token; the client's role does not permit the \
         request; or a page of another site sent it.",
    ),
    ("404", "NotFound", "Not found."),
    (
        "405",
        "MethodNotAllowed",
        "The path does not have this method; `Allow` lists its methods.",
    ),
    (
        "409",
        "Conflict",
        "The request conflicts with the current state.",
    ),
    (
        "412",
        "PreconditionFailed",
        "The configuration is not the one that `If-Match` names.",
    ),
    ("413", "ContentTooLarge", "The body is too long."),
    (
        "415",
        "UnsupportedMediaType",
        "The type of the body is not accepted here.",
    ),
    (
        "421",
        "MisdirectedRequest",
        "`Host` is no name of this server; `admin.hosts` lists its names.",
    ),
    (
        "422",
        "UnprocessableContent",
        "The body has values that are not possible; `errors` names each field.",
    ),
    (
        "428",
        "PreconditionRequired",
        "The header `If-Match` is missing.",
    ),
    (
        "429",
        "TooManyRequests",
        "Too many requests; `Retry-After` says how long to wait.",
    ),
    (
        "500",
        "InternalServerError",
        "The answer could not be composed; see the log.",
    ),
    (
        "503",
        "ServiceUnavailable",
        "The service, or a part of it, did not answer in time.",
    ),
];

/// Responses of any request.
const ALWAYS: &[&str] = &["400", "401", "403", "421", "429", "500", "503"];
/// Responses of any request with a body.
const BODIES: &[&str] = &["400", "413", "415", "422"];

/// The text of a description.
#[derive(Clone)]
pub struct DescriptionText(Bytes);

impl DescriptionText {
    /// The description of an API with these endpoints.
    pub fn of(api: OpenApi) -> Self {
        // Serializing strings, numbers and lists does not fail.
        let json = serde_json::to_string(&complete(api)).unwrap_or_default();
        // Texts written for rustdoc have its links.
        let json = json.replace("[`", "`").replace("`]", "`");
        // All 64-bit numbers here are unsigned.
        Self(Bytes::from(
            json.replace(r#""format":"int64""#, r#""format":"uint64""#),
        ))
    }
}

/// Describes the API.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "api", operation_id = "get_openapi",
    responses((status = 200, description = "An OpenAPI 3.1 document.", body = Object)),
)]
pub async fn openapi(Extension(DescriptionText(text)): Extension<DescriptionText>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, text).into_response()
}

/// The description without its endpoints.
pub fn frame() -> OpenApi {
    let mut info = Info::new("Millrace", &Version::current().version);
    info.description = Some(
        "The management plane of an NFS-over-RDMA target. Reading needs no token, unless \
         `admin.read_token` requires it; changes need `Authorization: Bearer TOKEN`, with a token \
         whose role permits them, or a client certificate with such a role. Errors have a body of \
         type `application/problem+json`, whose `type` is a name that stays the same; the guide for operators explains each. A query with \
         a key that an operation does not have is refused. `HEAD` is answered as `GET` is, without \
         the body; `OPTIONS` with 204 and `Allow`."
            .to_owned(),
    );
    let mut license = License::new("Apache-2.0 OR MIT");
    license.identifier = Some("Apache-2.0 OR MIT".to_owned());
    info.license = Some(license);
    let tag = |name: &str, description: &str| {
        let mut tag = Tag::new(name);
        tag.description = Some(description.to_owned());
        tag
    };
    let mut components = Components::new();
    for (name, schema) in [
        (Problem::name(), Problem::schema()),
        (FieldProblem::name(), FieldProblem::schema()),
        (ReactorOutcome::name(), ReactorOutcome::schema()),
        (ChangeReport::name(), ChangeReport::schema()),
        (ResourceUse::name(), ResourceUse::schema()),
        (ServiceEvent::name(), ServiceEvent::schema()),
        (Occurrence::name(), Occurrence::schema()),
    ] {
        components.schemas.insert(name.into_owned(), schema);
    }
    for &(status, name, meaning) in FAILURES {
        components
            .responses
            .insert(name.to_owned(), failure(status, meaning).into());
    }
    components.security_schemes.insert(
        TOKEN.to_owned(),
        SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)).into(),
    );
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .tags(Some([
            tag("api", "The API itself"),
            tag("health", "Health and metrics, for monitoring"),
            tag("status", "Status"),
            tag("clients", "Clients and their connections"),
            tag("nfs4", "The state of NFS version 4's clients"),
            tag("gss", "Contexts of Kerberos"),
            tag("gateways", "Servers of the same files that act as one"),
            tag("configuration", "The configuration and its changes"),
            tag("control", "Operations"),
            tag("dashboard", "The dashboard"),
        ]))
        .build()
}

fn failure(status: &str, meaning: &str) -> Answer {
    let schema = Ref::from_schema_name(Problem::name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let answer = ResponseBuilder::new()
        .description(meaning)
        .content(PROBLEM, content);
    let header = |text: &str| HeaderBuilder::new().description(Some(text)).build();
    let answer = match status {
        "401" => answer.header("WWW-Authenticate", header("The scheme, `Bearer`.")),
        "405" => answer.header("Allow", header("The methods of the path.")),
        _ => answer,
    };
    answer.build()
}

/// Adds the parts common to all endpoints.
pub fn complete(mut api: OpenApi) -> OpenApi {
    for item in api.paths.paths.values_mut() {
        for (changes, operation) in operations(item) {
            let statuses: [(bool, &[&str]); 2] =
                [(true, ALWAYS), (operation.request_body.is_some(), BODIES)];
            for status in statuses
                .iter()
                .filter(|(applies, _)| *applies)
                .flat_map(|(_, statuses)| *statuses)
            {
                let answers = &mut operation.responses.responses;
                answers
                    .entry((*status).to_owned())
                    .or_insert_with(|| RefOr::T(Answer::new("")));
            }
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(Parameter { schema, .. }) = parameter {
                    present(schema);
                }
            }
            for (status, answer) in &mut operation.responses.responses {
                fill_in(status, answer);
            }
            if changes {
                let none: [&str; 0] = [];
                operation.security = Some(vec![SecurityRequirement::new(TOKEN, none)]);
            }
        }
    }
    api
}

/// An optional parameter may be absent, but is never `null`.
fn present(schema: &mut Option<RefOr<Schema>>) {
    match schema {
        Some(RefOr::T(Schema::Object(object))) => {
            if let SchemaType::Array(types) = &mut object.schema_type {
                types.retain(|one| *one != Type::Null);
            }
        }
        Some(RefOr::T(Schema::OneOf(one_of))) => {
            let null = SchemaType::Type(Type::Null);
            let is_null = |item: &RefOr<Schema>| matches!(item, RefOr::T(Schema::Object(object)) if object.schema_type == null);
            one_of.items.retain(|item| !is_null(item));
            if let [only] = one_of.items.as_slice() {
                *schema = Some(only.clone());
            }
        }
        _ => {}
    }
}

/// Adds the common body to an error response.
fn fill_in(status: &str, answer: &mut RefOr<Answer>) {
    let RefOr::T(own) = answer else { return };
    let Some((_, name, _)) = FAILURES.iter().find(|(known, ..)| *known == status) else {
        return;
    };
    if !own.content.is_empty() {
        return;
    }
    if own.description.is_empty() {
        *answer = RefOr::Ref(Ref::from_response_name(*name));
    } else {
        let usual = failure(status, &own.description);
        own.content = usual.content;
        own.headers.extend(usual.headers);
    }
}

/// The operations of a path, each with whether it changes something.
pub fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let reads = item.get.as_mut().map(|operation| (false, operation));
    let changes = [
        &mut item.put,
        &mut item.post,
        &mut item.patch,
        &mut item.delete,
    ]
    .into_iter()
    .filter_map(Option::as_mut)
    .map(|operation| (true, operation));
    reads.into_iter().chain(changes)
}
