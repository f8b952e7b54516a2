//! Queries of requests: a key that the description of an operation does not have is refused. Metrics,
//! probes and pages are asked by programs that may add keys of their own.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::{OpenApi, RefOr};

use super::problem::typed_problem;
use crate::status::ProblemType;

/// The keys of each operation's query, by path and method. Those of `HEAD` are those of `GET`.
#[derive(Clone)]
pub struct QueryKeys(Arc<HashMap<(String, Method), Vec<String>>>);

impl QueryKeys {
    /// The keys that a description has.
    pub fn of(api: &OpenApi) -> Self {
        let mut keys = HashMap::new();
        let strict = |(path, _): &(&String, &PathItem)| path.starts_with("/api/");
        for (path, item) in api.paths.paths.iter().filter(strict) {
            for (method, operation) in operations(item) {
                keys.insert((path.clone(), method), described(operation));
            }
        }
        Self(Arc::new(keys))
    }
}

fn operations(item: &PathItem) -> impl Iterator<Item = (Method, &Operation)> {
    let all = [
        (Method::GET, &item.get),
        (Method::HEAD, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::PATCH, &item.patch),
        (Method::DELETE, &item.delete),
    ];
    all.into_iter()
        .filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

fn described(operation: &Operation) -> Vec<String> {
    let parameters = operation.parameters.iter().flatten();
    let queries = parameters.filter_map(|parameter| match parameter {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => {
            Some(parameter.name.clone())
        }
        _ => None,
    });
    queries.collect()
}

/// Refuses a request with an unknown key in its query.
pub async fn known(
    State(QueryKeys(keys)): State<QueryKeys>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Result<Response, Response> {
    let operation = path.map(|path| (path.as_str().to_owned(), request.method().clone()));
    // Others have no handler that could ignore the query.
    if let Some(known) = operation.and_then(|operation| keys.get(&operation)) {
        let query = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
        let pairs = query.map_or_else(|_| Vec::new(), |Query(pairs)| pairs);
        let unknown = pairs.iter().find(|(key, _)| !known.contains(key));
        if let Some((key, _)) = unknown {
            return Err(refused(key, known));
        }
    }
    Ok(next.run(request).await)
}

fn refused(key: &str, known: &[String]) -> Response {
    let key: String = key.escape_debug().take(64).collect();
    let detail = match known {
        [] => format!("the query has `{key}`, and there are no parameters here"),
        _ => format!("the query has `{key}`; it may have {}", known.join(", ")),
    };
    typed_problem(ProblemType::Query, detail)
}
