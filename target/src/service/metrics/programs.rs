//! Metrics of the programs, of their stores, and of the duplicate request cache.

use millrace_admin::metrics::{Families, catalogue};

use crate::counters::{ProcedureCounters, Size};
use crate::nfs4::Nfs4Counters;
use crate::replay::ReplayCache;
use crate::rpc::program::ProcedureInfo;
use crate::service::control::ReactorParts;
use crate::store_times::StoreClass;

pub(super) fn programs(out: &mut Families, parts: &ReactorParts) {
    let counters = &parts.programs;
    for program in &counters.programs {
        let name = program.info.name;
        for (info, procedure) in program.info.procedures.iter().zip(&program.procedures) {
            self::procedure(out, name, info, procedure);
            if let Some(direction) = info.data {
                let bytes = counters.bytes(direction);
                out.number(&catalogue::RPC_DATA, &[name, info.name], bytes);
            }
        }
    }
    for (status, count) in parts.nfs3.statuses.iter() {
        let name = status.name().trim_start_matches("NFS3ERR_").to_lowercase();
        out.number(&catalogue::NFS_ERRORS, &[&name], count);
    }
    operations(out, &parts.nfs4);
    for class in StoreClass::ALL {
        for store in [&parts.nfs3.store, &parts.nfs4.store] {
            let took = store.class(class).snapshot();
            out.histogram(&catalogue::STORE_DURATION, &[class.name()], &took);
        }
    }
    for (reason, count) in [
        ("not_a_call", counters.not_calls.get()),
        ("rpc_mismatch", counters.rpc_mismatch.get()),
        ("auth_error", counters.auth_errors.get()),
        ("program_unavailable", counters.program_unavailable.get()),
        ("program_mismatch", counters.program_mismatch.get()),
        (
            "procedure_unavailable",
            counters.procedure_unavailable.get(),
        ),
        ("garbage_arguments", counters.garbage_arguments.get()),
        ("not_admitted", counters.not_admitted.get()),
        ("too_large", counters.too_large.get()),
    ] {
        out.number(&catalogue::RPC_REJECTED, &[reason], count);
    }
}

/// What the COMPOUNDs of NFS version 4 consist of.
fn operations(out: &mut Families, counters: &Nfs4Counters) {
    out.number(&catalogue::NFS4_REPLAYS, &[], counters.replays.get());
    for (name, answered, failed) in counters.operations.operations() {
        let name = name.to_lowercase();
        out.number(&catalogue::NFS4_OPERATIONS, &[&name], answered);
        out.number(&catalogue::NFS4_OPERATION_ERRORS, &[&name], failed);
    }
    for (status, count) in counters.operations.statuses() {
        let name = status.name().trim_start_matches("NFS4ERR_").to_lowercase();
        out.number(&catalogue::NFS4_ERRORS, &[&name], count);
    }
}

/// The duplicate request cache, which belongs to the whole process.
pub(super) fn replay(out: &mut Families, cache: &ReplayCache) {
    let totals = cache.totals();
    for (outcome, count) in [
        ("new", totals.new),
        ("replayed", totals.replayed),
        ("dropped", totals.dropped),
    ] {
        out.number(&catalogue::REPLAY_LOOKUPS, &[outcome], count);
    }
    out.number(&catalogue::REPLAY_ENTRIES, &[], totals.entries);
    out.number(&catalogue::REPLAY_BYTES, &[], totals.bytes);
    for (reason, count) in [("full", totals.evicted_full), ("age", totals.evicted_age)] {
        out.number(&catalogue::REPLAY_EVICTIONS, &[reason], count);
    }
}

fn procedure(
    out: &mut Families,
    program: &str,
    info: &ProcedureInfo,
    counters: &ProcedureCounters,
) {
    let labels = &[program, info.name];
    out.number(&catalogue::RPC_REQUESTS, labels, counters.calls.get());
    out.number(&catalogue::RPC_ERRORS, labels, counters.errors.get());
    let sized = counters.sized.iter().flat_map(|sized| sized.iter());
    let sized = Size::ALL.iter().map(|size| size.name()).zip(sized);
    for (size, latency) in std::iter::once(("none", &counters.latency)).chain(sized) {
        let labels = &[program, info.name, size];
        out.histogram(&catalogue::RPC_DURATION, labels, &latency.snapshot());
    }
}

#[cfg(test)]
mod tests {
    use millrace_admin::metrics::catalogue::RPC_REQUESTS;
    use millrace_store::any::AnyStore;

    use crate::rpc::program::Programs;
    use crate::service::programs::ProgramTable;

    #[test]
    fn labels_have_every_program_and_procedure_that_is_counted() {
        let mut infos = Vec::new();
        ProgramTable::<AnyStore>::infos(&mut infos);
        let [program, procedure] = RPC_REQUESTS.labels else {
            panic!("two labels");
        };
        for info in infos.iter().filter(|info| info.counted) {
            assert!(program.takes(info.name), "{}", info.name);
            for one in info.procedures {
                assert!(procedure.takes(one.name), "{} {}", info.name, one.name);
            }
        }
    }
}
