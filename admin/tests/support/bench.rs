//! A service with a token and a configuration file, and requests for it.
#![allow(
    clippy::needless_pass_by_value,
    reason = "bodies stand where they are sent"
)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_admin::api::{AdminHandle, ApiLimits};
use millrace_admin::change::ChangeReport;
use millrace_admin::config::{Admin, Config, to_yaml};
use millrace_admin::status::Problem;
use serde_json::Value;

use super::Service;
use super::http::{Answer, Request};

pub const TOKEN: &str = "a-token-of-the-tests";

/// A service with a token and a configuration file.
pub struct Bench {
    pub folder: tempfile::TempDir,
    pub service: Arc<Service>,
    pub admin: AdminHandle,
}

impl Bench {
    pub fn new() -> Self {
        Self::within(ApiLimits::default())
    }

    /// With other limits of the API.
    pub fn within(limits: ApiLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let config = Config {
            admin: Admin {
                token_file: Some(token),
                audit_file: Some(folder.path().join("audit.jsonl")),
                ..Default::default()
            },
            ..Config::default()
        };
        let file = folder.path().join("millraced.yaml");
        let text = to_yaml(&config);
        fs::write(&file, format!("# by hand\n{text}")).unwrap();
        let service = Service::new(config);
        let admin = service.serve_within(Some(file), limits);
        Self {
            folder,
            service,
            admin,
        }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("millraced.yaml")
    }

    pub fn get(&self, path: &str) -> Answer {
        Request::new("GET", path).send(self.admin.address())
    }

    pub fn tag(&self) -> String {
        self.get("/api/v1/config").header("etag").unwrap()
    }

    /// With the token and the present tag.
    pub fn ask(&self, method: &str, path: &str, kind: &str, body: impl ToString) -> Answer {
        self.request(method, path, kind, &body)
            .header("if-match", &self.tag())
            .send(self.admin.address())
    }

    pub fn request(&self, method: &str, path: &str, kind: &str, body: &impl ToString) -> Request {
        let request = Request::new(method, path)
            .header("authorization", &format!("Bearer {TOKEN}"))
            .body(body.to_string());
        match kind {
            "" => request,
            kind => request.header("content-type", kind),
        }
    }

    pub fn patch(&self, body: Value) -> Answer {
        self.ask(
            "PATCH",
            "/api/v1/config",
            "application/merge-patch+json",
            body,
        )
    }
}

pub fn report(answer: &Answer) -> ChangeReport {
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

pub fn problem(answer: &Answer, status: u16) -> Problem {
    assert_eq!(answer.status, status, "{answer:?}");
    let kind = answer.header("content-type");
    assert_eq!(
        kind.as_deref(),
        Some("application/problem+json"),
        "{answer:?}"
    );
    serde_json::from_str(&answer.body).unwrap()
}
