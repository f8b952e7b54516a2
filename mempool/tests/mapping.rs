//! How the kernel sees an arena. Alone in its process, so that no neighbour merges with it.

use std::fs;

use millrace_mempool::{HugepagePolicy, Registry};

#[test]
fn arenas_are_resident_and_not_inherited() {
    for policy in [HugepagePolicy::Off, HugepagePolicy::Auto] {
        let arena = Registry::new(policy).arena(6 << 20).unwrap();
        let first = arena.base().as_ptr() as usize;
        let text = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut covering = false;
        let (mut resident, mut flags) = (0, String::new());
        for line in text.lines() {
            let range = line.split(' ').next().unwrap().split_once('-');
            let range = range.map(|(low, high)| {
                (
                    usize::from_str_radix(low, 16),
                    usize::from_str_radix(high, 16),
                )
            });
            if let Some((Ok(low), Ok(high))) = range {
                covering = (low..high).contains(&first);
            } else if covering && let Some((key, value)) = line.split_once(':') {
                let value = value.trim();
                match key {
                    "Rss" | "Private_Hugetlb" => {
                        resident += value.trim_end_matches(" kB").parse::<usize>().unwrap();
                    }
                    "VmFlags" => flags = value.to_owned(),
                    _ => {}
                }
            }
        }
        assert!(
            resident >= 6 << 10,
            "{policy:?}: all faulted in, but {resident} KiB"
        );
        assert!(
            flags.split(' ').any(|flag| flag == "dc"),
            "{policy:?}: not for forks: {flags}"
        );
    }
}
