//! The warning of a pool that finds no hugepages. Alone in its program, since whether anybody
//! listens to a log line is remembered for the whole process: tests beside it, without a listener,
//! could have it forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use millrace_mempool::{HugepagePolicy, PageSize, Registry};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[test]
fn auto_falls_back_with_one_warning() {
    let warnings = Arc::new(Warnings::default());
    tracing::subscriber::with_default(Arc::clone(&warnings), || {
        let registry = Registry::with_page_size(HugepagePolicy::Auto, Some(PageSize::Gibibyte1));
        let arenas = [(); 3].map(|()| registry.arena(1).unwrap());
        let fallen = arenas
            .iter()
            .filter(|arena| arena.page_size() == 4096)
            .count();
        // Machines that have 1 GiB pages to spare need no fall-back.
        assert_eq!(warnings.count.load(Relaxed), usize::from(fallen > 0));
        assert_eq!(registry.mapped().small, fallen * (2 << 20));
    });
}

#[derive(Default)]
struct Warnings {
    count: AtomicUsize,
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        self.count.fetch_add(1, Relaxed);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
