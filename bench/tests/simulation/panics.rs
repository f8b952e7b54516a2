//! Panics, kept for the one who asks, as tasks of the responder's only end their connection.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

static HOOK: Once = Once::new();

/// Forgets the panics of this thread, and from now on keeps those of threads that called this.
pub fn clear() {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let quiet = PANICS.with_borrow_mut(|panics| {
                panics.push(info.to_string());
                panics.len() > 1
            });
            if !quiet {
                before(info);
            }
        }));
    });
    PANICS.with_borrow_mut(Vec::clear);
}

/// The first panic of this thread since then.
pub fn first() -> Option<String> {
    PANICS.with_borrow(|panics| panics.first().cloned())
}
