//! Hugepage policies and the registration of arenas.

use std::fs;
use std::sync::{Arc, Mutex};

use millrace_mempool::{
    Arena, ArenaError, Class, HugepagePolicy, PageSize, Pool, PoolConfig, RegionId, RegisterError,
    Registrar, Registry,
};

/// Keeps a diary.
#[derive(Default)]
struct Fabric {
    events: Mutex<Vec<(&'static str, RegionId)>>,
    refuse: bool,
}

impl Registrar for Fabric {
    fn register(&self, arena: &Arena) -> Result<(), RegisterError> {
        if self.refuse {
            return Err(RegisterError::new("locked memory is limited"));
        }
        assert!(arena.len() >= 2 << 20 && arena.len().is_multiple_of(arena.page_size()));
        self.events.lock().unwrap().push(("register", arena.id()));
        Ok(())
    }

    fn unregister(&self, arena: &Arena) {
        self.events.lock().unwrap().push(("unregister", arena.id()));
    }
}

#[test]
fn every_arena_is_registered_once_with_every_fabric() {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 1 }).unwrap();
    let gone = registry.arena(1).unwrap();
    drop(gone);
    let early = Arc::new(Fabric::default());
    registry.attach(early.clone()).unwrap();
    pool.grow(1).unwrap();
    let late = Arc::new(Fabric::default());
    registry.attach(late.clone()).unwrap();
    let kept = registry.arena(1).unwrap();
    let all = [RegionId(0), RegionId(2), RegionId(3)];
    let registered = all.map(|region| ("register", region));
    assert_eq!(*early.events.lock().unwrap(), registered);
    assert_eq!(*late.events.lock().unwrap(), registered);
    assert_eq!(registry.mapped().small, 6 << 20);

    let slice = pool.try_acquire(Class::Control).unwrap().into_slice(0..1);
    drop(kept);
    drop(pool);
    assert_eq!(
        early.events.lock().unwrap()[3..].len(),
        2,
        "the slice holds its arena"
    );
    drop(slice);
    let mut ends = early.events.lock().unwrap()[3..].to_vec();
    ends.sort_unstable();
    assert_eq!(ends, all.map(|region| ("unregister", region)));
    assert_eq!(late.events.lock().unwrap().len(), 6);
    assert_eq!(registry.mapped().small, 0);
}

#[test]
fn the_arenas_are_those_that_are_still_there() {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 1 }).unwrap();
    let gone = registry.arena(1).unwrap();
    let kept = registry.arena(1).unwrap();
    drop(gone);
    let ids = || -> Vec<_> { registry.arenas().iter().map(|arena| arena.id()).collect() };
    assert_eq!(ids(), [RegionId(0), kept.id()]);
    // Whoever holds one keeps it; asking does not.
    let held = registry.arenas();
    drop(pool);
    assert_eq!(ids(), [RegionId(0), kept.id()]);
    drop(held);
    assert_eq!(ids(), [kept.id()]);
}

#[test]
fn a_refused_arena_is_not_used() {
    let registry = Registry::new(HugepagePolicy::Off);
    let willing = Arc::new(Fabric::default());
    registry.attach(willing.clone()).unwrap();
    registry
        .attach(Arc::new(Fabric {
            refuse: true,
            ..Fabric::default()
        }))
        .unwrap();
    let error = registry.arena(1).unwrap_err();
    assert!(
        error.to_string().contains("locked memory is limited"),
        "{error}"
    );
    let events = willing.events.lock().unwrap().clone();
    assert_eq!(
        events,
        [("register", RegionId(0)), ("unregister", RegionId(0))]
    );
    assert_eq!(registry.mapped().small, 0);
}

#[test]
fn attaching_reports_a_refusal() {
    let registry = Registry::new(HugepagePolicy::Off);
    let _arena = registry.arena(1).unwrap();
    let refusing = Arc::new(Fabric {
        refuse: true,
        ..Fabric::default()
    });
    assert!(registry.attach(refusing).is_err());
    assert!(registry.arena(1).is_ok(), "who refused is not asked again");
}

#[test]
fn required_hugepages_name_the_need_and_the_command() {
    // No machine has 4 PiB of pages.
    let registry = Registry::new(HugepagePolicy::Required);
    let error = registry.arena(1 << 52).unwrap_err();
    let text = error.to_string();
    match error {
        ArenaError::Hugepages {
            page_size,
            wanted,
            free,
            command,
            ..
        } => {
            assert_eq!(wanted, (1 << 52) / page_size);
            assert!(free < wanted);
            assert!(command.starts_with("sysctl vm.nr_hugepages="));
            assert!(
                text.contains(&format!("{wanted} wanted, {free} free")),
                "{text}"
            );
            assert!(text.contains(&command), "{text}");
        }
        ArenaError::NoHugepages => assert!(text.contains("mempool.hugepages")),
        other => panic!("{other}"),
    }
}

#[test]
fn impossible_sizes_are_refused() {
    for policy in [HugepagePolicy::Auto, HugepagePolicy::Off] {
        let outcome = Registry::new(policy).arena(usize::MAX);
        assert!(matches!(outcome, Err(ArenaError::Size(usize::MAX))));
    }
}

#[test]
fn huge_pages_are_used_where_they_are_free() {
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let chosen = Registry::with_page_size(HugepagePolicy::Required, Some(PageSize::Mebibytes2));
    match chosen.arena(1) {
        Ok(arena) => {
            assert_eq!(arena.page_size(), 2 << 20);
            assert_eq!(arena.base().as_ptr() as usize % (2 << 20), 0);
            assert_eq!(chosen.mapped().huge, 2 << 20);
        }
        // Others may take the last pages at any time, but then the error says so.
        Err(ArenaError::Hugepages {
            wanted: 1, free: 0, ..
        }) => millrace_testing::skip!("no huge page is free"),
        Err(error) => panic!("{error}; free by the system's count: {free:?}"),
    }
}
