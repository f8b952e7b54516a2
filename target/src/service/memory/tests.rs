use std::fs;

use millrace_admin::config;

use super::*;

/// A made-up tree of the kernel's files.
struct Machine(tempfile::TempDir);

impl Machine {
    fn with(available_mib: u64, huge: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let available = available_mib << 10;
        let text = format!("MemTotal: 99 kB\nMemAvailable:    {available} kB\n{huge}");
        machine.file("proc/meminfo", &text);
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn check(&self, text: &str) -> Result<(), ConfigProblem> {
        let config = config::parse(text, "test").unwrap();
        let demands = demand::of(&config, 2);
        check(&config, &demands, Freed::default(), self.0.path())
    }

    #[track_caller]
    fn refuses(&self, text: &str, path: &str, words: &[&str]) {
        let problem = self.check(text).expect_err("too much");
        assert_eq!(problem.path.to_string(), path);
        for words in words {
            let told = &problem.message;
            assert!(told.contains(words), "`{words}` in `{told}`");
        }
    }
}

const HUGE_100: &str = "HugePages_Total: 120\nHugePages_Free: 110\nHugePages_Rsvd: 10\n\
    Hugepagesize: 2048 kB\n";

fn with(hugepages: &str, pool: &str, export: &str) -> String {
    format!(
        "mempool: {{ hugepages: {hugepages}, size: {pool} }}\n\
         exports: [{{ path: /a, store: {{ kind: memory, size: 2MiB }} }},\
         {{ path: /b, store: {{ kind: memory, size: {export} }} }}]"
    )
}

#[test]
fn the_sum_is_compared_and_the_key_that_asks_for_most_is_named() {
    let machine = Machine::with(1024, "");
    assert_eq!(machine.check(&with("off", "64MiB", "512MiB")), Ok(()));
    let words = [
        "975MiB are asked for, and 1151MiB in all",
        "1GiB are available",
        "smaller",
    ];
    let export = "exports[1].store.size";
    machine.refuses(&with("off", "64MiB", "960MiB"), export, &words);
    machine.refuses(
        &with("off", "448MiB", "128MiB"),
        "mempool.size",
        &["896MiB are asked for"],
    );
    machine.refuses(
        &with("auto", "64MiB", "1048576GiB"),
        export,
        &["1GiB are available"],
    );
    machine.refuses(
        &with("auto", "64MiB", "17179869183GiB"),
        export,
        &["1GiB are available"],
    );
}

#[test]
fn huge_pages_count_for_whole_arenas_and_only_where_they_are_used() {
    let machine = Machine::with(128, HUGE_100);
    // Two hundred MiB are free in them.
    let fits = with("auto", "64MiB", "64MiB");
    assert_eq!(machine.check(&fits), Ok(()));
    machine.refuses(
        &with("off", "64MiB", "64MiB"),
        "mempool.size",
        &["128MiB are available;"],
    );
    // The export takes half of them, the pools fit beside it by one.
    let words = ["128MiB are available (and 200MiB in free huge pages)"];
    machine.refuses(&with("auto", "96MiB", "100MiB"), "mempool.size", &words);
    // An arena that does not fit as a whole is in small pages as a whole.
    machine.refuses(
        &with("auto", "8MiB", "210MiB"),
        "exports[1].store.size",
        &words,
    );
}

#[test]
fn huge_pages_that_are_required_are_there_or_it_is_said_how_many_to_reserve() {
    let machine = Machine::with(60, HUGE_100);
    // 2 x 64 MiB, 2 and 58 MiB with 2.25 MiB of spare memory each, in whole pages, and two pages of
    // zeros: 64 + 3 + 31 + 2.
    assert_eq!(machine.check(&with("required", "64MiB", "58MiB")), Ok(()));
    let words = [
        "200MiB are free in huge pages",
        "`sysctl vm.nr_hugepages=123`",
    ];
    machine.refuses(&with("required", "64MiB", "64MiB"), "mempool.size", &words);
    let none = Machine::with(1024, "");
    none.refuses(&with("required", "8MiB", "8MiB"), "", &["no huge pages"]);
}

const V2_MOUNT: &str = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn the_tightest_group_on_the_path_limits_and_caches_of_files_do_not_count() {
    let machine = Machine::with(4096, "");
    machine.file("proc/self/mountinfo", V2_MOUNT);
    machine.file("proc/self/cgroup", "0::/system.slice/millrace.service\n");
    let slice = "sys/fs/cgroup/system.slice";
    machine.file(&format!("{slice}/millrace.service/memory.max"), "max\n");
    machine.file(&format!("{slice}/memory.max"), &format!("{}\n", 700 << 20));
    machine.file(
        &format!("{slice}/memory.current"),
        &format!("{}\n", 600 << 20),
    );
    let small = with("off", "64MiB", "128MiB");
    let words = [
        "100MiB are left in the control group (/sys/fs/cgroup/system.slice/memory.max)",
        "MemoryMax=",
    ];
    machine.refuses(&small, "exports[1].store.size", &words);
    let stat = format!(
        "anon 1\ninactive_file {}\nactive_file {}\n",
        300 << 20,
        100 << 20
    );
    machine.file(&format!("{slice}/memory.stat"), &stat);
    assert_eq!(machine.check(&small), Ok(()));
    machine.refuses(
        &with("off", "64MiB", "512MiB"),
        "exports[1].store.size",
        &["500MiB are left"],
    );
}

#[test]
fn groups_of_the_first_version_and_of_containers_are_found() {
    let machine = Machine::with(4096, "");
    let mounts = "31 1 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
        32 1 0:27 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
    machine.file("proc/self/mountinfo", mounts);
    let folder = "sys/fs/cgroup/memory";
    machine.file(
        &format!("{folder}/memory.limit_in_bytes"),
        &format!("{}\n", 256 << 20),
    );
    machine.file(
        &format!("{folder}/memory.usage_in_bytes"),
        &format!("{}\n", 56 << 20),
    );
    let words = [
        "200MiB are left",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let asks = with("off", "64MiB", "128MiB");
    for path in [
        "/docker/abc",
        "/docker/abc/not-there",
        "/../../somewhere",
        "/",
    ] {
        machine.file(
            "proc/self/cgroup",
            &format!("4:memory:{path}\n3:cpu:/docker/abc\n"),
        );
        machine.refuses(&asks, "exports[1].store.size", &words);
    }
    // As the kernel says that there is no limit.
    machine.file(
        &format!("{folder}/memory.limit_in_bytes"),
        "9223372036854771712\n",
    );
    assert_eq!(machine.check(&asks), Ok(()));
}

#[test]
fn a_change_takes_what_it_adds() {
    let parse = |text: &str| config::parse(text, "test").unwrap();
    let before = parse(&with("off", "64MiB", "512MiB"));
    let machine = Machine::with(300, "");
    let grows = |next: &Config| {
        let demands = demand::of_change(&before, next, 2);
        check(next, &demands, Freed::default(), machine.0.path())
    };
    assert_eq!(grows(&before), Ok(()));
    let mut next = before.clone();
    next.mempool.size = ByteSize::mib(128);
    assert_eq!(grows(&next), Ok(()));
    next.exports[1].path = "/c".to_owned();
    let problem = grows(&next).expect_err("too much");
    assert_eq!(problem.path.to_string(), "exports[1].store.size");
    next.exports.pop();
    next.mempool.size = ByteSize::mib(256);
    let problem = grows(&next).expect_err("too much");
    assert_eq!(problem.path.to_string(), "mempool.size");
    assert!(
        problem.message.starts_with("384MiB are asked for; 300MiB"),
        "{}",
        problem.message
    );
}

#[test]
fn what_a_process_frees_is_there_for_the_next_one() {
    let machine = Machine::with(100, HUGE_100);
    let config = config::parse(&with("required", "64MiB", "90MiB"), "test").unwrap();
    let demands = demand::of(&config, 2);
    let with = |small: u64, huge: u64| {
        let freed = Freed {
            small: small << 20,
            huge: huge << 20,
        };
        check(&config, &demands, freed, machine.0.path()).is_ok()
    };
    assert!(!with(0, 0));
    assert!(with(0, 40));
    let machine = Machine::with(10, HUGE_100);
    let config = config::parse("mempool: { hugepages: off, size: 8MiB }", "test").unwrap();
    let demands = demand::of(&config, 1);
    let with = |small: u64| {
        let freed = Freed { small, huge: 0 };
        check(&config, &demands, freed, machine.0.path()).is_ok()
    };
    assert!(!with(0));
    assert!(with(100 << 20));
}
