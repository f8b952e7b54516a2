//! Tables that grow by segments.

use crate::state::table::{SegmentedMap, SegmentedVec};

#[test]
fn a_list_of_segments_behaves_like_a_list() {
    let mut list = SegmentedVec::default();
    let mut model = Vec::new();
    assert_eq!((list.len(), list.get(0)), (0, None));
    for value in 0..5000_u32 {
        list.push(value);
        model.push(value);
        assert_eq!(list.len(), model.len());
    }
    for value in list.iter_mut().chain(model.iter_mut()) {
        *value *= 3;
    }
    *list.get_mut(1024).unwrap() = 7;
    model[1024] = 7;
    for index in [0, 1, 1023, 1024, 1025, 4095, 4096, 4999, 5000, 9999] {
        assert_eq!(list.get(index), model.get(index));
        assert!(list.iter_from(index).eq(model.iter().skip(index)));
    }
    assert_eq!(list.get_mut(5000), None);
}

#[test]
fn a_map_of_segments_behaves_like_a_map() {
    let mut map = SegmentedMap::default();
    for key in 0..3000_u32 {
        map.insert(key, key);
    }
    for key in (0..3000).step_by(2) {
        map.insert(key, key + 1);
        map.remove(&(key + 1));
        map.remove(&(key + 1));
    }
    assert_eq!(map.len(), 1500);
    for key in 0..3001 {
        let expected = (key < 3000 && key % 2 == 0).then_some(key + 1);
        assert_eq!(map.get(&key).copied(), expected);
    }
}
