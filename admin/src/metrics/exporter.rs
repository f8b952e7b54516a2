//! The sources of metrics and the text that Prometheus reads.

use std::sync::{Arc, PoisonError, RwLock};

use prometheus::core::{Collector, Desc};
use prometheus::{Encoder, Registry, TextEncoder, proto};

use super::{Families, catalogue, process::Process};

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A subsystem with counters.
pub trait MetricsSource: Send + Sync {
    /// Adds the current samples, from atomics written by others. Called at each scrape, on a thread
    /// that serves HTTP: it may be slow, but never waits for a reactor.
    fn collect(&self, out: &mut Families);
}

/// The text could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the metrics cannot be written: {0}")]
pub struct RenderError(#[from] prometheus::Error);

type Sources = Arc<RwLock<Vec<Arc<dyn MetricsSource>>>>;

/// The sources of the process; clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    sources: Sources,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// With the process's own metrics as the only source.
    pub fn new() -> Self {
        let sources: Sources = Arc::new(RwLock::new(vec![Arc::new(Process)]));
        let registry = Registry::new();
        // Refused only for conflicting descriptions; the catalogue's test excludes them.
        if let Err(error) = registry.register(Box::new(All::new(Arc::clone(&sources)))) {
            tracing::error!(%error, "no metrics");
        }
        Self { registry, sources }
    }

    /// Adds a source.
    pub fn register(&self, source: Arc<dyn MetricsSource>) {
        self.sources
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(source);
    }

    /// Queries all sources and writes the text of one scrape, of type [`CONTENT_TYPE`].
    ///
    /// # Errors
    ///
    /// The exposition library refuses a sample.
    pub fn render(&self) -> Result<String, RenderError> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// The one collector: everything in the catalogue.
struct All {
    descriptions: Vec<Desc>,
    sources: Sources,
}

impl All {
    fn new(sources: Sources) -> Self {
        let describe = |family: &'static super::Family| {
            let labels = family
                .labels
                .iter()
                .map(|label| label.name.to_owned())
                .collect();
            Desc::new(
                family.name.to_owned(),
                family.help.to_owned(),
                labels,
                Default::default(),
            )
        };
        Self {
            descriptions: catalogue::all().filter_map(|f| describe(f).ok()).collect(),
            sources,
        }
    }
}

impl Collector for All {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let sources = self
            .sources
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut families = Families::default();
        for source in &sources {
            source.collect(&mut families);
        }
        families.into_proto()
    }
}
