//! `/api/v1/events`: what happens, as server-sent events.
//!
//! Changes and orders are published by the store of the configuration. The rest is found by
//! comparing the service's state each second while somebody follows; nothing in the service waits
//! for it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::{Extensions, HeaderMap};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::watch;
use tokio::{select, task, time};

use super::ask::ask;
use super::auth::is_operator;
use super::context::AdminState;
use super::long::LongAnswer;
use super::observe::Observation;
use super::problem::typed_problem;
use crate::events::{EventLog, EventPosition};
use crate::status::{ProblemType, ServiceEvent};

/// How long a stream lasts at most.
const STREAM_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a comment is sent while nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// True when the server ends; an extension of every request.
#[derive(Clone)]
pub struct StopSignal(pub watch::Receiver<bool>);

/// The streams of events, and whether the service is observed for them.
#[derive(Default)]
pub struct EventStreams(Mutex<StreamCounts>);

#[derive(Default)]
struct StreamCounts {
    streams: u32,
    observed: bool,
}

/// One of the streams, until it is dropped.
struct StreamPermit(Arc<EventStreams>);

/// The duty to observe the service, until it is dropped.
struct ObserverPermit(Option<Arc<EventStreams>>);

impl EventStreams {
    /// `None` if there are too many already.
    fn begin(self: &Arc<Self>, most: u32) -> Option<(StreamPermit, Option<ObserverPermit>)> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.streams >= most {
            return None;
        }
        counts.streams += 1;
        let observer = (!counts.observed).then(|| ObserverPermit(Some(Arc::clone(self))));
        counts.observed = true;
        Some((StreamPermit(Arc::clone(self)), observer))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .streams -= 1;
    }
}

impl ObserverPermit {
    /// Whether there are streams still. If there are none, the next one brings its own observer.
    fn is_needed(&mut self) -> bool {
        let Some(streams) = &self.0 else { return false };
        let mut counts = streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.streams > 0 {
            return true;
        }
        counts.observed = false;
        drop(counts);
        self.0 = None;
        false
    }
}

impl Drop for ObserverPermit {
    fn drop(&mut self) {
        if let Some(streams) = &self.0 {
            let mut counts = streams.0.lock().unwrap_or_else(PoisonError::into_inner);
            counts.observed = false;
        }
    }
}

/// Follows what happens, as server-sent events.
///
/// Each event has its kind as `event`, an identifier as `id`, and a `ServiceEvent` in JSON as `data`. The
/// header `Last-Event-ID` continues after that one, as far as the server keeps events: `lost` tells
/// how many it does not. Clients that come and go, and the state of the service, are compared each
/// second while somebody follows. Ends when the server does, and after a day.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "status", operation_id = "follow_events",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "The latest event that the client has."),
    ),
    responses(
        (status = 200, description = "A stream of events.", body = String,
         content_type = "text/event-stream"),
        (status = 503, description = "As many follow already as may."),
    ),
)]
pub async fn follow(
    State(state): State<AdminState>,
    headers: HeaderMap,
    extensions: Extensions,
    stop: Option<Extension<StopSignal>>,
    long: Option<Extension<LongAnswer>>,
) -> Result<Response, Response> {
    // Strangers cannot lock operators out.
    let most = match is_operator(&extensions) {
        true => state.limits.event_streams.saturating_mul(2),
        false => state.limits.event_streams,
    };
    let (permit, observer) = state.event_streams.begin(most).ok_or_else(|| {
        let detail = format!("{most} clients follow events, the most at a time");
        typed_problem(ProblemType::Unavailable, detail)
    })?;
    let log = state.config_store.events();
    let last = headers.get("last-event-id");
    let last = last.map(|last| String::from_utf8_lossy(last.as_bytes()));
    let reader = EventReader {
        position: log.position(last.as_deref()),
        notices: log.notices(),
        log,
        stop: stop.map(|Extension(StopSignal(stop))| stop),
        _permit: permit,
    };
    if let Some(observer) = observer {
        // Before the answer, so that the client misses nothing from then on.
        let first = ask(&state, Observation::of).await?;
        task::spawn(observe(state, first, observer));
    }
    if let Some(Extension(long)) = long {
        long.allow(STREAM_TIME);
    }
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok::<_, Infallible>(sent(&event)), reader))
    });
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response())
}

/// Publishes what changes, while somebody follows.
async fn observe(state: AdminState, mut before: Observation, mut permit: ObserverPermit) {
    let log = state.config_store.events();
    loop {
        time::sleep(state.limits.observation_interval).await;
        if !permit.is_needed() {
            return;
        }
        // A service that does not answer is compared when it does.
        if let Ok(mut now) = ask(&state, Observation::of).await {
            for what in now.since(&mut before) {
                log.publish(what);
            }
            before = now;
        }
    }
}

struct EventReader {
    log: Arc<EventLog>,
    position: EventPosition,
    notices: watch::Receiver<u64>,
    stop: Option<watch::Receiver<bool>>,
    _permit: StreamPermit,
}

impl EventReader {
    /// The next event, as soon as there is one; `None` when the server ends.
    async fn next(&mut self) -> Option<ServiceEvent> {
        loop {
            self.notices.borrow_and_update();
            if self.stop.as_ref().is_some_and(|stop| *stop.borrow()) {
                return None;
            }
            if let Some(event) = self.log.read(&mut self.position) {
                return Some(event);
            }
            match &mut self.stop {
                // Both end if their sender is gone.
                Some(stop) => select! {
                    changed = self.notices.changed() => changed.ok()?,
                    changed = stop.changed() => changed.ok()?,
                },
                None => self.notices.changed().await.ok()?,
            }
        }
    }
}

fn sent(event: &ServiceEvent) -> sse::Event {
    // JSON of serde_json has no line breaks. Serializing strings and numbers does not fail.
    let data = serde_json::to_string(event).unwrap_or_default();
    sse::Event::default()
        .id(&event.id)
        .event(event.what.kind())
        .data(data)
}
