//! A folder on a file system that hangs, beside an export in memory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_admin::control::Control;
use millrace_bench::requester::Call;
use millrace_wire::nfs3::{CommitArguments, Procedure};

use super::running::Running;

/// The file system of the store's own tests: in this process, and silent when it is told to be.
#[path = "../../../target/store/tests/posix_machine/fuse.rs"]
#[allow(dead_code)] // The store's tests use all of it.
mod fuse;

/// A folder that goes with the value.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(parent: &Path, name: &str) -> Self {
        let name = format!("millrace-live-{}-{name}", std::process::id());
        let path = parent.join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A turn that waited for the file system would have waited for ever; the rest is what a busy
/// machine takes from any thread.
const LONGEST_TURN: Duration = Duration::from_secs(2);

#[test]
fn a_folder_that_hangs_holds_up_neither_other_exports_nor_the_end() {
    let Some(fuse) = fuse::Fuse::mount(&["file"]) else {
        return;
    };
    let exports = format!(
        "{{ path: /scratch, store: {{ kind: memory, size: 8MiB }} }}, \
         {{ path: /slow, store: {{ kind: posix, root: {}, direct: never }} }}",
        fuse.path().display()
    );
    let running = Running::serving(&exports, "");
    let scratch = running.mount("/scratch").expect("mounted");
    let slow = running.mount("/slow").expect("mounted");
    let mut hung = running.client(0);
    let file = hung.session.lookup(slow, b"file").expect("found").object;
    let mut client = running.client(0);
    let kept = client.create(scratch, "kept", b"kept");

    fuse.behave(|behaviour| behaviour.silent = true);
    let (connection, _) = hung.session.parts();
    for token in 0..4 {
        let all = CommitArguments {
            file,
            offset: 0,
            count: 0,
        };
        let call = Call::nfs3(u64::MAX - token, Procedure::Commit, all, 0);
        connection.submit(&call, Instant::now()).expect("room");
    }
    running.until("the file system is asked", |_| {
        hung.turn();
        fuse.held() > 0
    });
    // Everybody else is served, and the management plane answers.
    for _ in 0..100 {
        assert_eq!(client.read(kept, 4).expect("served"), b"kept");
    }
    let control = running.control();
    assert_eq!(control.exports().expect("answers").len(), 2);
    for reactor in control.reactors().expect("they turn") {
        assert!(!reactor.stalled, "{reactor:?}");
        let longest = Duration::from_secs_f64(reactor.longest_turn_seconds);
        assert!(longest < LONGEST_TURN, "{reactor:?}");
    }
    // What hangs is left behind: this returns.
    drop(client);
    running.stop(Duration::from_millis(100));
    fuse.behave(|behaviour| behaviour.silent = false);
}
