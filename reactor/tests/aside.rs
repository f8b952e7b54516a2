//! Threads that keep out of the reactors' way.

use std::thread;

use millrace_reactor::{Aside, allowed_cores, helper_cores, run_on, step_aside};
use rustix::process::getpriority_process;

#[test]
fn a_thread_leaves_the_reactors_cores_and_so_do_its_children() {
    let allowed = allowed_cores();
    let [first, rest @ ..] = allowed.as_slice() else {
        panic!("no core");
    };
    if rest.is_empty() {
        millrace_testing::skip!("this process has one core only");
        return;
    }
    let (aside, child) = thread::spawn({
        let first = *first;
        move || {
            let aside = step_aside(&[first, 5000]).unwrap();
            (aside, thread::spawn(allowed_cores).join().unwrap())
        }
    })
    .join()
    .unwrap();
    assert_eq!(aside, Aside::Cores(rest.to_vec()));
    assert_eq!(child, rest);
}

#[test]
fn a_thread_that_a_reactor_starts_leaves_its_core() {
    let allowed = allowed_cores();
    let [first, .., last] = *allowed.as_slice() else {
        millrace_testing::skip!("this process has one core only");
        return;
    };
    thread::spawn(move || {
        run_on(&[first]).unwrap();
        let aside = thread::spawn(move || {
            assert_eq!(allowed_cores(), [first]);
            run_on(&[last, 5000]).unwrap();
            allowed_cores()
        });
        assert_eq!(aside.join().unwrap(), [last]);
        assert!(run_on(&[]).is_err(), "nowhere");
    })
    .join()
    .unwrap();
}

#[test]
fn helpers_have_the_cores_without_reactors_if_they_are_enough() {
    assert_eq!(helper_cores(&[0, 1, 2, 5], &[1, 5]), [0, 2]);
    assert_eq!(helper_cores(&[0, 1, 2, 5], &[1]), [0, 2, 5]);
    assert_eq!(helper_cores(&[0, 1, 2], &[1, 2]), [0, 1, 2]);
    assert_eq!(helper_cores(&[0, 1], &[1, 0]), [0, 1]);
}

#[test]
fn where_reactors_have_all_cores_the_thread_yields() {
    let allowed = allowed_cores();
    let all = allowed.clone();
    thread::spawn(move || {
        let before = getpriority_process(None).unwrap();
        let nice = before.max(10);
        assert_eq!(step_aside(&all).unwrap(), Aside::Nice(nice));
        assert_eq!(getpriority_process(None).unwrap(), nice);
        // It is never raised again, and may still run everywhere.
        assert_eq!(step_aside(&all).unwrap(), Aside::Nice(nice));
        assert_eq!(allowed_cores(), allowed);
    })
    .join()
    .unwrap();
}

#[test]
fn the_log_says_where_it_runs() {
    assert_eq!(Aside::Cores(vec![1]).to_string(), "core 1");
    assert_eq!(Aside::Cores(vec![1, 3]).to_string(), "cores 1 3");
    let nice = Aside::Nice(10).to_string();
    assert_eq!(nice, "the reactors' cores, nice 10");
}
