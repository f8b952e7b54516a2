//! `/api/v1/nfs4` and the paths below it: clients of NFS version 4 and their state, and the grace
//! period.

use axum::Json;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ask::try_ask;
use super::auth::{Operator, found};
use super::context::AdminState;
use super::ending::{Force, unused};
use super::named::{ClientIdName, Name, Named, StateidName, address};
use super::problem::{problem, typed_problem};
use crate::change::in_use;
use crate::config::{AddressText, ClientIdText, StateidText};
use crate::control::{Control, ControlError, Nfs4Control};
use crate::status::{
    GraceStatus, ListPage, Nfs4Client, Nfs4Clients, Nfs4State, Nfs4StateFilter, Nfs4StateKind,
    Nfs4States, ProblemType,
};

/// Items of a page, unless the query says otherwise, and at most.
const PAGE: u16 = 100;
const PAGE_MAX: u16 = 1000;

/// The query of a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    after: u32,
    limit: Option<u16>,
    client: Option<String>,
    address: Option<String>,
    kind: Option<Nfs4StateKind>,
    export: Option<String>,
}

/// A page of the list of clients. As an argument of a handler it answers 400 to another query.
pub struct ClientsQuery(ListPage);

/// A page of the list of states. As an argument of a handler it answers 400 to another query.
pub struct StatesQuery(ListPage, Nfs4StateFilter);

impl ListQuery {
    fn page(&self) -> Option<ListPage> {
        let limit = self.limit.unwrap_or(PAGE);
        (1..=PAGE_MAX).contains(&limit).then_some(ListPage {
            after: self.after,
            limit: usize::from(limit),
        })
    }
}

impl FromRequestParts<AdminState> for ClientsQuery {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, Response> {
        let query: Option<ListQuery> = read(parts);
        let page = query.and_then(|query| query.page());
        page.map(Self)
            .ok_or_else(|| refused("the query may have after=NUMBER and limit=1 to 1000"))
    }
}

impl FromRequestParts<AdminState> for StatesQuery {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, Response> {
        let query: Option<ListQuery> = read(parts);
        let query = query.ok_or_else(states_refused)?;
        let address = query.address.as_deref().map(address).transpose()?;
        let filtered = (|| {
            let page = query.page()?;
            let client = match &query.client {
                Some(text) => Some(ClientIdName::read(text)?.0),
                None => None,
            };
            let filter = Nfs4StateFilter {
                client,
                address,
                kind: query.kind,
                export: query.export,
            };
            Some(Self(page, filter))
        })();
        filtered.ok_or_else(states_refused)
    }
}

fn states_refused() -> Response {
    refused(
        "the query may have after=NUMBER, limit=1 to 1000, client=ID, address=ADDRESS, kind=open, \
         lock, delegation or revoked, and export=PATH",
    )
}

fn read<T: DeserializeOwned>(parts: &Parts) -> Option<T> {
    let query = Query::try_from_uri(&parts.uri);
    query.ok().map(|Query(query)| query)
}

fn refused(detail: &str) -> Response {
    typed_problem(ProblemType::Query, detail)
}

/// Lists the clients of NFS version 4.
///
/// Without NFS version 4 there are none.
#[utoipa::path(
    get, path = "/api/v1/nfs4/clients", tag = "nfs4", operation_id = "list_nfs4_clients",
    params(
        (
            "after" = Option<u32>, Query, minimum = 0, maximum = 4_294_967_295_i64,
            description = "`next` of the page before.",
        ),
        (
            "limit" = Option<u16>, Query, minimum = 1, maximum = 1000,
            description = "Most clients of the page, 100 if left out.",
        ),
    ),
    responses(
        (status = 200, description = "A page of the list.", body = Nfs4Clients),
        (status = 400),
    ),
)]
pub async fn list_clients(
    State(state): State<AdminState>,
    ClientsQuery(page): ClientsQuery,
) -> Result<Json<Nfs4Clients>, Response> {
    let list = try_ask(&state, move |control| {
        served(control, |nfs4| nfs4.clients(page))
    });
    Ok(Json(list.await?))
}

/// Shows a client of NFS version 4.
#[utoipa::path(
    get, path = "/api/v1/nfs4/clients/{id}", tag = "nfs4", operation_id = "get_nfs4_client",
    params(("id" = inline(ClientIdText), Path, description = "The client ID.")),
    responses((status = 200, description = "The client.", body = Nfs4Client), (status = 404)),
)]
pub async fn show_client(
    State(state): State<AdminState>,
    Named(ClientIdName(id)): Named<ClientIdName>,
) -> Result<Json<Nfs4Client>, Response> {
    let client = try_ask(&state, move |control| {
        served(control, |nfs4| nfs4.client(id))
    });
    let client = client.await?;
    client.map(Json).ok_or_else(|| no_client(id))
}

/// Ends a client of NFS version 4.
///
/// Its sessions, opens, locks and delegations are gone at once, and others may have what they
/// blocked. A client that still lives begins anew and opens its files again; its locks are lost, and
/// its programs get errors where they had locks. One with open files, locks or delegations is ended
/// by force only.
#[utoipa::path(
    delete, path = "/api/v1/nfs4/clients/{id}", tag = "nfs4", operation_id = "end_nfs4_client",
    params(
        ("id" = inline(ClientIdText), Path, description = "The client ID."),
        ("force" = Option<bool>, Query, description = "Also if it has open files, locks or delegations."),
    ),
    responses(
        (status = 204, description = "It is gone."),
        (status = 400),
        (status = 404),
        (status = 409),
    ),
)]
pub async fn end_client(
    State(state): State<AdminState>,
    who: Operator,
    Named(ClientIdName(id)): Named<ClientIdName>,
    force: Force,
) -> Result<StatusCode, Response> {
    unused(&state, force, move |control| {
        in_use::of_nfs4_client(control, id)
    })
    .await?;
    let what = format!("end NFS version 4 client {id:016x}");
    let ended = who.act(&state, what, found, move |control| {
        let ended = served(control, |nfs4| nfs4.end_client(id))?;
        Ok(ended.then_some(()))
    });
    ended.await?.ok_or_else(|| no_client(id))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists opens, locks and delegations.
///
/// Without NFS version 4 there are none.
#[utoipa::path(
    get, path = "/api/v1/nfs4/states", tag = "nfs4", operation_id = "list_nfs4_states",
    params(
        (
            "after" = Option<u32>, Query, minimum = 0, maximum = 4_294_967_295_i64,
            description = "`next` of the page before.",
        ),
        (
            "limit" = Option<u16>, Query, minimum = 1, maximum = 1000,
            description = "Most states of the page, 100 if left out.",
        ),
        ("client" = inline(Option<ClientIdText>), Query, description = "Those of this client only."),
        ("address" = inline(Option<AddressText>), Query, description = "Those of clients whose latest sessions came from this address only."),
        ("kind" = inline(Option<Nfs4StateKind>), Query, description = "Those of this kind only."),
        ("export" = Option<String>, Query, description = "Those of this export only."),
    ),
    responses(
        (status = 200, description = "A page of the list.", body = Nfs4States),
        (status = 400),
        (status = 422),
    ),
)]
pub async fn list_states(
    State(state): State<AdminState>,
    StatesQuery(page, filter): StatesQuery,
) -> Result<Json<Nfs4States>, Response> {
    let list = try_ask(&state, move |control| {
        served(control, |nfs4| nfs4.states(&filter, page))
    });
    Ok(Json(list.await?))
}

/// Shows an open, locks or a delegation.
#[utoipa::path(
    get, path = "/api/v1/nfs4/states/{stateid}", tag = "nfs4", operation_id = "get_nfs4_state",
    params(("stateid" = inline(StateidText), Path, description = "The stateid.")),
    responses((status = 200, description = "The state.", body = Nfs4State), (status = 404)),
)]
pub async fn show_state(
    State(state): State<AdminState>,
    Named(StateidName(stateid)): Named<StateidName>,
) -> Result<Json<Nfs4State>, Response> {
    let shown = try_ask(&state, move |control| {
        served(control, |nfs4| nfs4.state(stateid))
    });
    shown.await?.map(Json).ok_or_else(no_state)
}

/// Revokes an open, locks or a delegation.
///
/// An open and its locks are revoked together. The client is told with its next request; its programs
/// get errors where they use what is revoked.
#[utoipa::path(
    delete, path = "/api/v1/nfs4/states/{stateid}", tag = "nfs4",
    operation_id = "revoke_nfs4_state",
    params(("stateid" = inline(StateidText), Path, description = "The stateid.")),
    responses((status = 204, description = "It is revoked."), (status = 404), (status = 409)),
)]
pub async fn revoke(
    State(state): State<AdminState>,
    who: Operator,
    Named(StateidName(stateid)): Named<StateidName>,
) -> Result<StatusCode, Response> {
    let name: String = stateid.iter().map(|byte| format!("{byte:02x}")).collect();
    let what = format!("revoke NFS version 4 state {name}");
    let revoked = who.act(&state, what, found, move |control| {
        let revoked = served(control, |nfs4| nfs4.revoke(stateid))?;
        Ok(revoked.then_some(()))
    });
    revoked.await?.ok_or_else(no_state)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows the grace period.
#[utoipa::path(
    get, path = "/api/v1/nfs4/grace", tag = "nfs4", operation_id = "get_nfs4_grace",
    responses((status = 200, description = "The grace period.", body = GraceStatus)),
)]
pub async fn show_grace(State(state): State<AdminState>) -> Result<Json<GraceStatus>, Response> {
    let grace = try_ask(&state, |control| served(control, |nfs4| nfs4.grace()));
    Ok(Json(grace.await?))
}

/// Ends the grace period.
///
/// What has not been reclaimed is lost, and others may have it.
#[utoipa::path(
    delete, path = "/api/v1/nfs4/grace", tag = "nfs4", operation_id = "end_nfs4_grace",
    responses(
        (status = 204, description = "It has ended."),
        (status = 404, description = "There is no grace period now."),
        (status = 409),
    ),
)]
pub async fn end_grace(
    State(state): State<AdminState>,
    who: Operator,
) -> Result<StatusCode, Response> {
    let what = "end the grace period".to_owned();
    let ended = who.act(&state, what, found, |control| {
        let ended = served(control, |nfs4| nfs4.end_grace())?;
        Ok(ended.then_some(()))
    });
    ended.await?.ok_or_else(|| {
        let detail = "there is no grace period now";
        problem(StatusCode::NOT_FOUND, detail)
    })?;
    Ok(StatusCode::NO_CONTENT)
}

/// Asks where NFS version 4 is served; elsewhere there is nothing of the kind.
fn served<T: Default>(
    control: &dyn Control,
    ask: impl FnOnce(&dyn Nfs4Control) -> Result<T, ControlError>,
) -> Result<T, ControlError> {
    match control.nfs4() {
        Some(nfs4) => ask(nfs4),
        None => Ok(T::default()),
    }
}

fn no_client(id: u64) -> Response {
    let detail =
        format!("there is no client {id:016x} of NFS version 4; /api/v1/nfs4/clients lists them");
    problem(StatusCode::NOT_FOUND, detail)
}

fn no_state() -> Response {
    let detail = "there is no such state in force; /api/v1/nfs4/states lists all";
    problem(StatusCode::NOT_FOUND, detail)
}
