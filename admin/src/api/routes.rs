//! The routes, and the parts common to all responses.

use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::author;
use super::context::AdminState;
use super::origin;
use super::problem::problem;
use super::query::{self, QueryKeys};
use super::upload::received;
use super::{
    bans, capture, client_limits, clients, config, connections, document, drain, events, figures,
    gateways, gss, health, listeners, log, nfs4, status, whoami,
};
use crate::config::ReadToken;
use crate::dashboard;
use crate::guide;
use crate::roles::Role;

/// Every endpoint, and the description of all.
pub fn table() -> OpenApiRouter<AdminState> {
    OpenApiRouter::with_openapi(document::frame())
        .routes(routes!(dashboard::page))
        .routes(routes!(dashboard::asset))
        .routes(routes!(guide::contents))
        .routes(routes!(guide::page))
        .routes(routes!(health::metrics))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(document::openapi))
        .routes(routes!(status::version))
        .routes(routes!(whoami::show))
        .routes(routes!(config::show, config::put, config::patch))
        .routes(routes!(config::history))
        .routes(routes!(config::generation))
        .routes(routes!(config::pending))
        .routes(routes!(config::rollback))
        .routes(routes!(config::reload))
        .routes(routes!(clients::list))
        .routes(routes!(clients::show, clients::evict))
        .routes(routes!(client_limits::put, client_limits::delete))
        .routes(routes!(bans::list))
        .routes(routes!(bans::ban, bans::lift))
        .routes(routes!(connections::list))
        .routes(routes!(connections::show, connections::evict))
        .routes(routes!(capture::capture))
        .routes(routes!(status::reactors))
        .routes(routes!(status::pools))
        .routes(routes!(status::exports))
        .routes(routes!(status::operations))
        .routes(routes!(figures::list))
        .routes(routes!(events::follow))
        .routes(routes!(listeners::list, listeners::add))
        .routes(routes!(listeners::show, listeners::remove))
        .routes(routes!(log::show, log::put))
        .routes(routes!(gss::list_contexts, gss::flush))
        .routes(routes!(gateways::list))
        .routes(routes!(gateways::take_over))
        .routes(routes!(nfs4::list_clients))
        .routes(routes!(nfs4::show_client, nfs4::end_client))
        .routes(routes!(nfs4::list_states))
        .routes(routes!(nfs4::show_state, nfs4::revoke))
        .routes(routes!(nfs4::show_grace, nfs4::end_grace))
        .routes(routes!(drain::show, drain::start, drain::cancel))
}

/// The router of all endpoints. Disables type guessing in browsers, and caching.
pub fn router(context: AdminState) -> Router {
    let (router, api) = table().split_for_parts();
    let keys = QueryKeys::of(&api);
    let fixed = |name, value| {
        SetResponseHeaderLayer::overriding(name, header::HeaderValue::from_static(value))
    };
    router
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(Extension(document::DescriptionText::of(api)))
        .layer(middleware::from_fn_with_state(keys, query::known))
        .layer(DefaultBodyLimit::max(context.limits.body_bytes))
        .layer(middleware::map_request_with_state(
            context.clone(),
            admitted,
        ))
        .layer(fixed(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(fixed(header::CACHE_CONTROL, "no-store"))
        .with_state(context)
}

async fn not_found(uri: Uri) -> Response {
    let path = uri.path();
    problem(
        StatusCode::NOT_FOUND,
        format!("nothing at {path}; / has links to all pages"),
    )
}

/// The response to a method without a handler. The router adds the header `Allow`.
async fn not_allowed(method: Method, uri: Uri) -> Response {
    if method == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let path = uri.path();
    let detail =
        format!("{path} does not have the method {method}; the header Allow lists its methods");
    problem(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// Refuses requests that are not for this server, come from another site's page or have no right to
/// read; reads the bodies of the others.
async fn admitted(
    State(context): State<AdminState>,
    request: Request,
) -> Result<Request, Response> {
    let config = context.config_store.config();
    origin::check(&request, &config.admin.hosts)?;
    // The dashboard's page and the guide contain no figures, and health checks have no token. The
    // page asks what it may do before it has one.
    let path = request.uri().path();
    let open = matches!(path, "/" | "/healthz" | "/readyz" | whoami::PATH)
        || ["/assets/", "/docs/"]
            .iter()
            .any(|folder| path.starts_with(folder));
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let (parts, body) = request.into_parts();
    if config.admin.read_token != ReadToken::None && reads && !open {
        author(&parts, &context, Role::Read).await?;
    }
    received(Request::from_parts(parts, body), &context.limits).await
}
