//! Which extension a message type belongs to.

use millrace_wire::rpcrdma::{ExtensionTable, RegisterError};

#[test]
fn rr2_opt_07_an_extension_is_registered_wholly_or_not_at_all() {
    let mut table = ExtensionTable::default();
    assert_eq!(table.register(&[7, 8], 'a'), Ok(()));
    assert_eq!(table.register(&[9, 8], 'b'), Err(RegisterError::Taken(8)));
    assert_eq!(table.find(9), None, "nothing of it is there");
    assert_eq!(table.register(&[9, 9], 'b'), Err(RegisterError::Taken(9)));
    assert_eq!(table.register(&[], 'b'), Err(RegisterError::Empty));
    assert_eq!(table.register(&[10; 1], 'b'), Ok(()));
    assert_eq!(table.find(8), Some(&'a'));
    assert_eq!(table.find_mut(10), Some(&mut 'b'));
    assert_eq!(format!("{table:?}"), "[7, 8, 10]");
}

#[test]
fn the_table_says_when_it_is_full() {
    let mut table = ExtensionTable::default();
    let many: Vec<u32> = (100..200).collect();
    assert_eq!(table.register(&many, 0), Err(RegisterError::Full));
    assert_eq!(table.find(100), None);
    let mut large = ExtensionTable::default();
    assert_eq!(large.register(&many[..64], 0), Ok(()), "as many as fit");
    assert_eq!(large.register(&[7], 1), Err(RegisterError::Full));
    for kind in 0..16 {
        assert_eq!(table.register(&[kind], kind), Ok(()));
    }
    assert_eq!(table.register(&[16], 16), Err(RegisterError::Full));
    assert_eq!((table.find(15), table.find(16)), (Some(&15), None));
}
