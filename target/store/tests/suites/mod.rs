//! Tests that every store has to pass. A store's test file calls the macros with a function that
//! gives a test an empty store whose root anyone may write.

#![allow(dead_code, unused_imports, unused_macros)] // Each test file uses its part.

pub mod holds;
pub mod model;
pub mod namespace;
pub mod permission;
pub mod ranges;
pub mod xattrs;

macro_rules! tests_of {
    ($with:path, $suite:ident, $($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                $with(|store| crate::suites::$suite::$name(store));
            }
        )+
    };
}

macro_rules! namespace_tests {
    ($with:path) => {
        crate::suites::tests_of!(
            $with,
            namespace,
            names_are_found,
            every_kind_can_be_made,
            create_takes_the_three_ways,
            operations_report_the_directory_before_and_after,
            every_change_raises_the_change_attribute,
            hard_links_share_an_object,
            removal_keeps_the_rules,
            rename_moves_and_replaces,
            a_directory_cannot_move_below_itself,
            renaming_a_link_onto_the_same_object_does_nothing,
            listings_survive_changes,
        );
    };
}

/// Of stores that keep files for those who have them open.
macro_rules! hold_tests {
    ($with:path) => {
        crate::suites::tests_of!(
            $with,
            holds,
            held_files_stay_without_a_name,
            replaced_files_are_held,
            files_only_are_held,
        );
    };
}

/// Of stores that count the space that files really take.
macro_rules! space_tests {
    ($with:path) => {
        crate::suites::tests_of!($with, namespace, a_file_takes_no_space_for_its_size);
    };
}

macro_rules! permission_tests {
    ($with:path) => {
        crate::suites::tests_of!(
            $with,
            permission,
            rights_follow_owner_group_and_others,
            rights_on_directories,
            the_owner_may_read_and_write_whatever_the_mode,
            directories_need_search_and_write_permission,
            sticky_directories_protect_names_of_others,
            moving_a_directory_needs_the_right_to_write_it,
            set_group_id_directories_are_inherited,
            set_id_bits_go_when_others_write_or_ownership_changes,
            ownership_is_the_superusers_to_give,
            times_can_be_set,
            a_guard_holds_off_late_changes,
            setting_nothing_changes_nothing,
            devices_are_made_by_the_superuser,
            access_lists_agree_with_modes,
        );
    };
}

macro_rules! range_tests {
    ($with:path) => {
        crate::suites::tests_of!(
            $with,
            ranges,
            space_is_allocated_and_the_file_grows,
            what_cannot_be_allocated_changes_nothing,
            holes_read_as_zeros_and_release_space,
            lent_memory_stays_as_it_is,
            data_and_holes_are_found,
            ranges_share_storage_where_the_store_can,
            ranges_are_copied_where_the_store_can,
            advice_is_no_error,
        );
    };
}

macro_rules! xattr_tests {
    ($with:path) => {
        crate::suites::tests_of!(
            $with,
            xattrs,
            extended_attributes_are_kept,
            changes_of_extended_attributes_are_changes,
            bounds_of_extended_attributes,
            who_may_use_extended_attributes,
            other_objects_have_none,
        );
    };
}

pub(crate) use {
    hold_tests, namespace_tests, permission_tests, range_tests, space_tests, tests_of, xattr_tests,
};
