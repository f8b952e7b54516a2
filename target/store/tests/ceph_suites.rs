//! The suites of all stores, in a CephFS file system.

mod ceph_common;
mod common;
mod suites;

use ceph_common::{with_store, with_strict_store};

suites::namespace_tests!(with_store);
suites::hold_tests!(with_store);
suites::permission_tests!(with_store);
suites::xattr_tests!(with_store);
// The library reserves no space, tells no holes, and counts space by the sizes of files.
suites::tests_of!(
    with_store,
    ranges,
    lent_memory_stays_as_it_is,
    ranges_share_storage_where_the_store_can,
    ranges_are_copied_where_the_store_can,
    advice_is_no_error,
);

mod strict {
    crate::suites::namespace_tests!(crate::with_strict_store);
}
