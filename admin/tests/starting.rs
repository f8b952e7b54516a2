//! The API of a service that has yet to start.

use std::net::TcpListener;
use std::sync::{Arc, mpsc};

use millrace_admin::api::{AdminState, serve_start};
use millrace_admin::change::ConfigStore;
use millrace_admin::client::{Answer, Client, Session};
use millrace_admin::config::Config;
use millrace_admin::metrics::Metrics;
use serde_json::{Value, json};
use support::Service;

mod support;

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn a_service_that_starts_says_so_until_it_serves_on_the_same_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sender, asked) = mpsc::channel();
    let stage = move || {
        sender.send(()).unwrap();
        "opening exports[0]".to_owned()
    };
    let starting = serve_start(listener, None, None, stage).unwrap();
    let client = Client::new(&format!("http://{}", starting.address())).unwrap();
    let mut session = Session::new(client).unwrap();
    let health = session.get("/healthz").unwrap();
    assert_eq!(health.status, 200);
    assert_eq!(body(&health), json!({ "stalled": [] }));
    asked.try_recv().expect_err("nobody asked for the stage");
    let ready = session.get("/readyz").unwrap();
    assert_eq!(ready.status, 503);
    let told = json!({ "readiness": "starting", "stage": "opening exports[0]" });
    assert_eq!(body(&ready), told);
    asked.try_recv().expect("the stage is that of the request");
    for path in ["/metrics", "/api/v1/config", "/"] {
        let refused = session.get(path).unwrap();
        assert_eq!(refused.status, 503, "{path}");
        let told = "the server starts: opening exports[0]";
        assert_eq!(body(&refused)["detail"], told, "{path}");
    }

    let service = Service::new(Config::default());
    let config = service.config.lock().unwrap().clone();
    let config_store = Arc::new(ConfigStore::new(Arc::clone(&service) as _, config, None));
    let state = AdminState::new(Arc::clone(&service) as _, Metrics::new(), config_store);
    let _admin = starting.serve(state);
    let ready = session.get("/readyz").unwrap();
    assert_eq!(ready.status, 200);
    assert_eq!(body(&ready), json!({ "readiness": "ready" }));
    assert_eq!(session.get("/api/v1/config").unwrap().status, 200);
}
