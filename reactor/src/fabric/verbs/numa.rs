//! The distance between cores and devices, as reported in `/sys`.
//!
//! A machine of several sockets has a memory node for each. A device is attached to one of them:
//! its transfers from or to memory of another node, and polling by a core of another node, cross
//! the link between the sockets. Placement depends on three things:
//!
//! * Cores: selected by the configuration. A reactor that is far from a device works, but slower;
//!   this is logged once.
//! * Memory: an arena's pages come from the node of the thread that maps it, which faults them all
//!   in at once (first touch). Pools that a reactor makes on its own pinned thread are near its
//!   core; arenas that another thread adds later are near that thread. Memory policies of the
//!   process (`numactl`) override both.
//! * Interrupts: a completion queue wakes its reader through one of the device's vectors, whose
//!   order drivers give to the cores of the device's own node first ([`vector`]).

use std::fs;
use std::path::Path;

/// The path of the kernel's memory nodes.
const NODES: &str = "/sys/devices/system/node";

/// The memory node of a core; none if the kernel does not report it.
pub fn node_of_core(core: usize) -> Option<u32> {
    node_in(Path::new(NODES), core)
}

/// The cores of a memory node, in order; none if the kernel does not report them.
pub fn cores_of_node(node: u32) -> Vec<usize> {
    cores_in(Path::new(NODES), node)
}

fn node_in(nodes: &Path, core: usize) -> Option<u32> {
    let online = fs::read_to_string(nodes.join("online")).ok()?;
    list(&online)
        .filter_map(|node| u32::try_from(node).ok())
        .find(|&node| cores_in(nodes, node).contains(&core))
}

fn cores_in(nodes: &Path, node: u32) -> Vec<usize> {
    let path = nodes.join(format!("node{node}")).join("cpulist");
    let text = fs::read_to_string(path).unwrap_or_default();
    list(&text).collect()
}

/// The numbers of a list such as `0-3,8`. An invalid list has none.
fn list(text: &str) -> impl Iterator<Item = usize> {
    /// More than the limit of cores or nodes in Linux.
    const MOST: usize = 1 << 16;
    text.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => first..(last.min(MOST) + 1),
            _ => 0..0,
        }
    })
}

/// The completion vector for a reactor: of `vectors`, the one whose interrupt is likely to be on
/// its own core, or else the requested one. `near` are the cores of the device's node.
pub fn vector(core: Option<usize>, near: &[usize], wish: usize, vectors: u32) -> u32 {
    let vectors = usize::try_from(vectors).unwrap_or(1).max(1);
    let place = core.and_then(|core| near.iter().position(|&other| other == core));
    u32::try_from(place.unwrap_or(wish) % vectors).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let read = |text: &str| list(text).collect::<Vec<_>>();
        assert_eq!(read("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(read("5"), [5]);
        assert_eq!(read("3-1,x,-,1-y,7"), [7]);
        assert_eq!(read(""), [0; 0]);
        assert_eq!(read("0-18446744073709551615").len(), (1 << 16) + 1);
    }

    #[test]
    fn a_core_has_the_node_that_lists_it() {
        let root = std::env::temp_dir().join(format!("millrace-numa-{}", std::process::id()));
        for (node, cores) in [(0, "0-3,8-11"), (2, "4-7,12-15")] {
            let folder = root.join(format!("node{node}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpulist"), format!("{cores}\n")).unwrap();
        }
        fs::write(root.join("online"), "0,2\n").unwrap();
        assert_eq!(node_in(&root, 3), Some(0));
        assert_eq!(node_in(&root, 12), Some(2));
        assert_eq!(node_in(&root, 16), None);
        assert_eq!(cores_in(&root, 2), [4, 5, 6, 7, 12, 13, 14, 15]);
        assert_eq!(cores_in(&root, 1), [0; 0]);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(node_in(&root, 3), None);
    }

    #[test]
    fn the_vector_follows_the_place_among_the_near_cores() {
        let near = [4, 5, 6, 7];
        assert_eq!(vector(Some(6), &near, 0, 8), 2);
        assert_eq!(vector(Some(7), &near, 0, 2), 1);
        // Far away, or not pinned: as requested.
        assert_eq!(vector(Some(1), &near, 9, 8), 1);
        assert_eq!(vector(None, &near, 3, 8), 3);
        assert_eq!(vector(Some(4), &[], 3, 0), 0);
    }
}
